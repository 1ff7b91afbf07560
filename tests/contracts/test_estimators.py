"""scikit-learn's own checks of estimators, where they apply.

``DPMixClassifier`` is fitted to (X, y) and goes through all of them. Learners of releases are fitted
to releases, which scikit-learn cannot make, and go through those that fit nothing.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

from builders import make_data, make_plan, make_schema
from privmix import release
from privmix.dpsgd import DPMixClassifier
from privmix.features import make_extractor
from privmix.learners import LEARNERS

WORDS = "it is refused, with a ValueError in the words of this package"
EXPECTED = {
    "check_classifier_data_not_an_array": "wants equal models from two fits, and noise is fresh",
    "check_classifiers_regression_target": WORDS,
    "check_class_weight_classifiers": "class_weight has the order of the public classes",
    "check_complex_data": WORDS,
    "check_dtype_object": "an array of objects has no type that is known beforehand",
    "check_estimator_sparse_array": WORDS,
    "check_estimator_sparse_matrix": WORDS,
    "check_estimator_sparse_tag": WORDS,
    "check_estimators_empty_data_messages": WORDS,
    "check_fit2d_predict1d": WORDS,
    "check_fit_idempotent": "the noise is fresh in every fit",
    "check_n_features_in_after_fitting": WORDS,
    "check_requires_y_none": WORDS,
    "check_supervised_y_2d": "labels of one column are refused",
}
FITTING_NOTHING = (
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_get_params_invariance",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
)


class Told(DPMixClassifier):
    """Is told the public facts of the data sets that scikit-learn makes up, which nobody states."""

    def fit(self, X, y):
        """Fit to (X, y)."""
        stated = {"classes": self.classes, "num_records": self.num_records}
        if y is not None:
            found = np.unique(np.asarray(y)).tolist()
            whole = all(isinstance(one, float) and one.is_integer() for one in found)
            found = [int(one) for one in found] if whole else found
            found += [found[0] + type(found[0])(1)] * (len(found) == 1)
            self.set_params(classes=found, num_records=max(len(found), np.shape(X)[0], 10))
        try:
            return super().fit(X, y)
        finally:
            self.set_params(**stated)


@pytest.mark.filterwarnings("ignore::privmix.running.unrecorded.UnrecordedSpendingWarning")
def test_private_training_passes_all_checks_but_those_that_are_named():
    """With an epsilon that leaves no noise to speak of: some checks ask for accuracy."""
    pytest.importorskip("sklearn", minversion="1.6")
    made = Told(None, 1e4, batch_size=10, epochs=5)
    found = estimator_checks.check_estimator(
        made, expected_failed_checks=EXPECTED, on_skip=None, on_fail=None
    )
    failed = {one["check_name"]: one["exception"] for one in found if one["status"] == "failed"}
    assert not failed, failed
    assert {one["check_name"] for one in found if one["status"] == "xfail"} == set(EXPECTED)
    assert sum(one["status"] == "passed" for one in found) > 40


@pytest.mark.parametrize("check", FITTING_NOTHING)
@pytest.mark.parametrize("name", LEARNERS)
def test_learners_of_releases_pass_the_checks_that_fit_nothing(name, check):
    getattr(estimator_checks, check)(LEARNERS[name].__name__, LEARNERS[name]())


@pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")
def test_learners_of_releases_go_where_estimators_go(tmp_path):
    schema = make_schema()
    x, y = make_data(schema, 60)
    made = release(x, y, make_plan(schema, "hybrid", 0.05), out=tmp_path / "r", test_seed=1)
    model = LEARNERS["noise-aware"](class_weight="balanced")
    fitted = clone(model).fit(made)
    assert fitted.get_params() == model.get_params() and not hasattr(model, "coef_")
    assert fitted.set_params(class_weight=None).fit(made).class_weight is None
    assert fitted.__sklearn_tags__().estimator_type == "classifier"
    assert LEARNERS["noise-aware-regression"]().__sklearn_tags__().estimator_type == "regressor"
    assert fitted.score(x, y) == np.mean(fitted.predict(x) == y)
    extractor = make_extractor("identity", width=5)
    assert make_pipeline(extractor, fitted).score(x, y) == fitted.score(x, y)

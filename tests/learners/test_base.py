import numpy as np
import pytest

import privmix
from builders import make_data, make_plan, make_schema
from privmix import InvalidInputError, NoiseAwareClassifier, Release, release
from privmix.clipping import clipped
from privmix.learners.base import Scored

LEARNERS = [
    getattr(privmix, name) for name in privmix.__all__ if name.endswith(("Classifier", "Regressor"))
]


@pytest.mark.parametrize("folder", [str, lambda path: path])
def test_a_release_may_be_given_by_its_folder(tmp_path, folder):
    plan = make_plan(make_schema(num_features=4), "stratified", 8.0, rows_per_class=20)
    release(*make_data(plan.data_schema, 60), plan, out=tmp_path / "r")
    given = NoiseAwareClassifier().fit(folder(tmp_path / "r"))
    due = NoiseAwareClassifier().fit(Release(tmp_path / "r"))
    assert np.array_equal(given.coef_, due.coef_)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("given", [np.zeros((3, 2)), None, 5])
def test_what_is_no_release_is_refused(learner, given):
    with pytest.raises(InvalidInputError, match=r"release: expected .*folder.*no records"):
        learner().fit(given)


def test_a_folder_that_is_no_release_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="a sealed release folder"):
        NoiseAwareClassifier().fit(tmp_path)


def test_test_records_are_clipped_to_the_norm_and_no_shorter(rng):
    rows = rng.standard_normal((60, 4)) * np.geomspace(1e-2, 1e2, 60)[:, None]
    rows[3] = 0.0
    lengths = np.linalg.norm(rows, axis=1)
    found = clipped(rows, 1.5)
    assert np.array_equal(found[lengths <= 1.5], rows[lengths <= 1.5])
    np.testing.assert_allclose(np.linalg.norm(found[lengths > 1.5], axis=1), 1.5, rtol=1e-12)
    np.testing.assert_allclose(
        found[lengths > 1.5] * lengths[lengths > 1.5, None] / 1.5, rows[lengths > 1.5]
    )
    np.testing.assert_allclose(clipped(np.array([[3e300, 4e300]]), 1.0), [[0.6, 0.8]])


def test_a_model_clips_test_records_as_the_release_clipped_its_own(tmp_path):
    plan = make_plan(make_schema(num_features=4), "stratified", 8.0, rows_per_class=20)
    x, y = make_data(plan.data_schema, 60)
    release(x, y, plan, out=tmp_path / "r")
    model = NoiseAwareClassifier().fit(tmp_path / "r")
    scores = model.decision_function(x)
    np.testing.assert_allclose(model.decision_function(100 * x), scores)
    assert not np.allclose(model.decision_function(x / 2), scores)


@pytest.mark.parametrize("missing", [np.nan, None])
def test_a_missing_label_is_named_before_anything_is_scored(tmp_path, missing):
    plan = make_plan(make_schema(num_features=4), "stratified", 8.0, rows_per_class=20)
    x, y = make_data(plan.data_schema, 60)
    release(x, y, plan, out=tmp_path / "r")
    model = NoiseAwareClassifier().fit(tmp_path / "r")
    right = model.predict(x) == y
    assert model.score(x, y) == right.mean()
    weights = np.arange(60)
    assert model.score(x, y, sample_weight=weights) == pytest.approx(
        np.average(right, weights=weights)
    )
    wrong = y.astype(object)
    wrong[7] = missing
    with pytest.raises(InvalidInputError, match=r"labels\[7\]: expected a label in every record"):
        model.score(x, wrong)


@pytest.mark.parametrize("learner", [*LEARNERS, privmix.dpsgd.DPMixClassifier])
def test_every_learner_scores_in_this_way(learner):
    assert learner.score is Scored.score

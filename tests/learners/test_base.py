import numpy as np
import pytest

import privmix
from builders import make_data, make_plan, make_schema
from privmix import InvalidInputError, NoiseAwareClassifier, Release, release

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
    with pytest.raises(InvalidInputError, match=r"release: allowed is .*folder.*no records"):
        learner().fit(given)


def test_a_folder_that_is_no_release_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="a sealed release folder"):
        NoiseAwareClassifier().fit(tmp_path)

import numpy as np
import pytest

from privmix import InvalidInputError
from privmix.learners import BiasCorrectedSGDClassifier, BiasCorrectedSGDRegressor


@pytest.mark.parametrize("name", ["poisson", "signed", "uniform", "transposed"])
def test_classifies(designs, make_blobs, name):
    x, y = make_blobs()
    if name == "signed":  # signs cancel the mean, and with it what tells blobs off the origin
        x = x - x.mean(0)
    release = designs[name](x, y, range(4), rows=3000, noise=0.5)
    model = BiasCorrectedSGDClassifier(ridge=0.02).fit(release)
    assert model.score(x, y) > 0.9
    np.testing.assert_allclose(model.predict_proba(x).sum(1), 1)


def test_the_seed_repeats(make_regression):
    release = make_regression().release("poisson", rows=600)
    fits = [BiasCorrectedSGDRegressor(seed=s).fit(release).coef_ for s in (0, 0, 1)]
    assert (fits[0] == fits[1]).all() and (fits[0] != fits[2]).any()


def test_a_ridge_shrinks(make_regression):
    release = make_regression().release("poisson", rows=3000)
    plain = BiasCorrectedSGDRegressor().fit(release).coef_
    shrunk = BiasCorrectedSGDRegressor(ridge=3.0).fit(release).coef_
    assert np.linalg.norm(shrunk) < 0.5 * np.linalg.norm(plain)


def test_divergence_is_reported(make_regression):
    release = make_regression().release("poisson", rows=40)
    release.feature_noise_stddev *= 1e3  # more noise than the rows vary
    with pytest.raises(InvalidInputError, match=r"ridge.*convex.*diverge"):
        BiasCorrectedSGDRegressor(epochs=300).fit(release)


@pytest.mark.parametrize(
    "options", [{"epochs": 0}, {"batch_size": 0}, {"ridge": float("nan")}, {"seed": -1}]
)
def test_bad_parameters(make_regression, options):
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        BiasCorrectedSGDRegressor(**options).fit(make_regression().release("poisson", rows=20))

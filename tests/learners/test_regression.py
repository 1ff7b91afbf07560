from functools import cache

import numpy as np
import pytest

from privmix import InvalidInputError
from privmix.learners import (
    BiasCorrectedSGDRegressor,
    NoiseAwareRegressor,
    load_model,
    save_model,
)
from privmix.learners.population import TargetMoments, target_moments
from privmix.learners.regression import shrunk_least_squares

DESIGNS = ("poisson", "signed", "uniform")


def make(make_regression, design, seed=0):
    return make_regression(seed, intercept=0.0 if design == "signed" else 0.1)


def uncorrected(release):
    """Least squares on the rows as they are, in the targets' units (half width 5)."""
    x = release.features - release.features.mean(0)
    y = release.label_values - release.label_values.mean(0)
    return 5 * np.linalg.lstsq(x, y, rcond=None)[0].T


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(
    "learner",
    [NoiseAwareRegressor, lambda: BiasCorrectedSGDRegressor(epochs=12, batch_size=64)],
    ids=["closed form", "gradients"],
)
def test_coefficients_become_consistent_where_least_squares_stays_biased(
    make_regression, design, learner
):
    """Root mean squared error over 3 data sets. The uncorrected slope tends to A (A + v)^-1 B:
    the check that the learner passes is the one that least squares must fail."""

    @cache
    def released(rows, seed):
        data = make(make_regression, design, seed)
        return data.release(design, rows=rows, seed=seed), data.coef

    @cache
    def error(fit, rows):
        made = [released(rows, seed) for seed in range(3)]
        errors = [fit(release) - coef for release, coef in made]
        return np.sqrt(np.mean(np.square(errors)))

    def corrected(release):
        return learner().fit(release).coef_

    limit = 0.3 * error(uncorrected, 16_000)
    assert error(corrected, 16_000) < limit
    assert error(corrected, 16_000) < 0.6 * error(corrected, 1_500)
    assert error(uncorrected, 16_000) > 0.8 * error(uncorrected, 1_500)
    assert error(uncorrected, 16_000) > limit


@pytest.mark.parametrize("design", DESIGNS)
def test_standard_errors_are_right(make_regression, design):
    """Squared z-scores of 30 fits of 10 coefficients; wrong by 1.5 would give 0.44 or 2.25.

    Coefficients of one fit are nearly independent: the mean square of 300 z-scores has standard
    deviation 0.08, so that 0.55 and 1.6 are more than 5.5 of them away.
    """
    scores = []
    for seed in range(30):
        data = make(make_regression, design, seed)
        model = NoiseAwareRegressor().fit(data.release(design, rows=8_000, seed=seed))
        scores.append((model.coef_ - data.coef) / model.coef_stderr_)
    assert 0.55 < np.mean(np.square(scores)) < 1.6


def test_standard_errors_far_from_the_origin(make_regression):
    """What all records have in common varies with a Poisson row's size: left out, errors would
    seem 3.5 times smaller than they are here."""
    scores = []
    for seed in range(30):
        data = make_regression(seed, intercept=0.3)
        model = NoiseAwareRegressor().fit(data.release("poisson", rows=8_000, noise=0.3, seed=seed))
        scores.append((model.coef_ - data.coef) / model.coef_stderr_)
    assert 0.55 < np.mean(np.square(scores)) < 1.6


@pytest.mark.parametrize("design", ["poisson", "uniform"])
def test_predictions_in_the_targets_units(make_regression, design):
    data = make_regression()
    release = data.release(design, rows=20_000)
    model = NoiseAwareRegressor().fit(release)
    assert model.score(data.x, data.z) > 0.7
    assert model.output_names_ == ("output 0", "output 1")
    assert model.n_features_in_ == 5
    wild = model.predict(np.array([[1e9, -1e9, 0, 0, 0]]))
    assert (wild >= 15).all() and (wild <= 25).all()


def test_one_output_is_a_vector(make_regression):
    data = make_regression()
    data.z, data.coef, data.bounds = data.z[:, :1], data.coef[:1], data.bounds[:1]
    model = NoiseAwareRegressor().fit(data.release("poisson", rows=2000))
    assert model.predict(data.x).shape == (400,)


@pytest.mark.parametrize("scale", [1e-3, 1e4])
def test_scale_equivariance(make_regression, scale):
    data = make_regression()
    release = data.release("poisson", rows=3000)
    model = NoiseAwareRegressor().fit(release)
    release.features = (scale * release.features.astype(float)).astype(np.float32)
    release.feature_noise_stddev *= scale
    release.feature_clip_norm = scale
    scaled = NoiseAwareRegressor().fit(release)
    np.testing.assert_allclose(scaled.predict(scale * data.x), model.predict(data.x), rtol=1e-4)
    np.testing.assert_allclose(scale * scaled.coef_stderr_, model.coef_stderr_, rtol=1e-3)


@pytest.mark.parametrize(("rows", "width"), [(1, 5), (2, 5), (30, 200)])
def test_few_rows_and_many_features(rows, width, make_regression):
    data = make_regression()
    data.x = np.hstack([data.x, np.zeros((400, width - 5))])
    model = NoiseAwareRegressor().fit(data.release("poisson", rows=rows))
    assert np.isfinite(model.coef_).all() and np.isfinite(model.coef_stderr_).all()


def test_all_zero_rows_predict_the_middle(make_regression):
    data = make_regression()
    release = data.release("poisson", rows=50)
    release.features[:], release.label_values[:] = 0, 0
    np.testing.assert_allclose(NoiseAwareRegressor().fit(release).predict(data.x), 20)


@pytest.mark.parametrize("learner", [NoiseAwareRegressor, BiasCorrectedSGDRegressor])
def test_what_cannot_be_learnt_is_refused(designs, make_blobs, make_regression, learner):
    with pytest.raises(InvalidInputError, match=r"release.target.*regression.*'class'"):
        learner().fit(designs["poisson"](*make_blobs(), range(4)))
    release = make_regression().release("poisson", rows=40)
    release.design = "hybrid"
    with pytest.raises(InvalidInputError, match=r"release.design.*poisson.*hybrid"):
        learner().fit(release)
    release.design, release.sampling_prob = "poisson", 1.0
    with pytest.raises(InvalidInputError, match="sampling_prob"):
        learner().fit(release)


@pytest.mark.parametrize("learner", [NoiseAwareRegressor, BiasCorrectedSGDRegressor])
def test_round_trip(make_regression, tmp_path, learner):
    data = make_regression()
    model = learner().fit(data.release("poisson", rows=500))
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert type(loaded) is learner
    assert (loaded.predict(data.x) == model.predict(data.x)).all()
    assert loaded.output_names_ == model.output_names_
    if learner is NoiseAwareRegressor:
        assert (loaded.coef_stderr_ == model.coef_stderr_).all()


@pytest.mark.parametrize("noise", [1e-60, 1.0, 1e40])
@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_rows_of_noise_alone_teach_nothing(noise, strength):
    """No variance of records is left over the noise, with and without correlation by chance."""
    moments = TargetMoments(
        features_mean=np.zeros(3),
        targets_mean=np.zeros(2),
        covariance=np.diag([0.2, 0.2, 0.2]) * noise,
        cross=np.full((2, 3), strength * np.sqrt(noise)),
        variance=np.ones(2),
        noise=noise,
        target_noise=1.0,
        num_rows=50,
        sizes_vary=True,
    )
    coef, variances = shrunk_least_squares(moments, 10.0, 0.1)
    assert (coef == 0).all()
    assert np.isfinite(variances).all() and (variances >= 0).all()


@pytest.mark.parametrize("design", DESIGNS)
def test_little_noise_costs_nothing(make_regression, design):
    """Where rows show more signal than noise, the errors are those of corrected least squares, and
    as large as stated: what the spectrum tells of other rows has no part in them."""
    ours, plain, scores = [], [], []
    for seed in range(20):
        data = make(make_regression, design, seed)
        data.z = data.x @ data.coef.T + 20  # nothing else in the targets that would hide it
        release = data.release(design, rows=2_000, noise=0.03, seed=seed)
        model = NoiseAwareRegressor().fit(release)
        moments = target_moments(release)
        exact = moments.covariance - moments.noise * np.eye(5)
        ours.append(model.coef_ - data.coef)
        plain.append(5 * np.linalg.solve(exact, moments.cross.T).T - data.coef)
        scores.append(ours[-1] / model.coef_stderr_)
    assert np.mean(np.square(ours)) < 1.1 * np.mean(np.square(plain))
    assert 0.5 < np.mean(np.square(scores)) < 1.7

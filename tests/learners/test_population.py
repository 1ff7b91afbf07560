import numpy as np
import pytest

from privmix.learners.population import hybrid_moments, mixed_moments

MIXED = ("hierarchical", "poisson", "signed", "transposed", "uniform")


def estimate(release):
    if release.design == "hybrid":
        return hybrid_moments(*release.tables)
    return mixed_moments(release)


@pytest.mark.parametrize("name", [*MIXED, "hybrid"])
def test_moments_are_unbiased_where_the_rows_covariance_is_not(designs, make_blobs, name):
    """Averaged over 40 releases, each entry within 5 standard errors of the truth.

    Unequal classes: the last is half as large as the others.
    """
    x, y = make_blobs(num_records=300, num_features=5, spread=0.5)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.where((y == 3) & (np.arange(300) % 2 == 0), 0, y)
    found, noise, offset_noise = [], [], []
    for seed in range(40):
        release = designs[name](x, y, range(4), rows=1500, noise=1.0, seed=seed)
        moments = estimate(release)
        signal = moments.covariance - moments.noise * np.eye(5)
        found.append(np.vstack([signal, moments.offsets, moments.mean]))
        noise.append(moments.noise)
        offset_noise.append(moments.offset_noise)
    mean, centred = x.mean(0), x - x.mean(0)
    offsets = 4 * np.eye(4)[y].T @ centred / len(x)
    truth = np.vstack([centred.T @ centred / len(x), offsets, mean])
    stderr = np.std(found, axis=0) / np.sqrt(len(found))
    error = np.abs(np.mean(found, axis=0) - truth)
    # Products of estimates (squared means, sizes from lengths) carry a bias of second order.
    slack = np.full_like(truth, 5e-3)
    if name == "hybrid":
        slack[5:9] = 0.1 * np.abs(offsets).max()
    assert (error < 5 * stderr + slack).all()
    assert min(noise) > 0.05  # by which the uncorrected diagonal is off
    spread = np.var(np.array(found)[:, 5:9], axis=0).mean()
    assert 0.5 < np.mean(offset_noise) / spread < 2


def test_eligibility_is_what_biases_the_plain_formula(designs, make_blobs):
    """Read as ``poisson``, the shared coins of a class look like variance of its mean."""
    x, y = make_blobs(num_records=400, num_features=6, spread=0.5)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    centred = x - x.mean(0)
    truth = np.trace(centred.T @ centred) / len(x)
    release = designs["hierarchical"](x, y, range(4), rows=4000, mix_size=40.0)
    sound = mixed_moments(release)
    release.design = "poisson"
    plain = mixed_moments(release)
    assert abs(np.trace(sound.covariance) - 6 * sound.noise - truth) < 0.1 * truth
    assert np.trace(plain.covariance) - 6 * plain.noise > 3 * truth


def test_classes_open_with_their_own_probabilities(designs, make_blobs):
    """The moments are those of records that enter with probability q / p_k where class k is open."""
    x, y = make_blobs(num_records=400, num_features=6, spread=0.5)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    centred = x - x.mean(0)
    truth = np.trace(centred.T @ centred) / len(x)
    release = designs["hierarchical"](x, y, range(4), rows=6000, mix_size=80.0, noise=1e-3)
    rng, probs = np.random.default_rng(5), np.array([0.25, 0.5, 0.8, 1.0])
    eligible = rng.random((6000, 4)) < probs
    chosen = (rng.random((6000, 400)) < (0.2 / probs)[y]) * eligible[:, y]
    release.features = chosen @ x / 80
    release.label_values = chosen @ np.eye(4)[y] / 80
    found = {}
    for name, given in (("own", tuple(probs)), ("rarest", 0.25)):
        release.config.class_prob = given
        moments = mixed_moments(release)
        found[name] = np.trace(moments.covariance) - 6 * moments.noise
    assert found["own"] == pytest.approx(truth, rel=0.1)
    assert found["rarest"] > 1.2 * truth


def test_random_weights_change_only_the_scale(designs, make_blobs):
    """Dirichlet(1) weights of m records add (alpha + 1) / (alpha m + 1) in squares, not 1/m."""
    x, y = make_blobs(num_records=300, num_features=5)
    release = designs["uniform"](x, y, range(4), rows=20_000, noise=1e-6)
    plain = mixed_moments(release)
    rng = np.random.default_rng(3)
    chosen = np.argsort(rng.random((20_000, 300)), axis=1)[:, :16]
    weights = rng.dirichlet(np.ones(16), size=20_000)
    norms = np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1)
    release.features = np.einsum("tm,tmd->td", weights, (x / norms)[chosen])
    release.label_values = np.einsum("tm,tmk->tk", weights, np.eye(4)[y][chosen])
    weighted = mixed_moments(release)
    ratio = np.trace(weighted.covariance) / np.trace(plain.covariance)
    assert ratio == pytest.approx(16 * 2 / 17, rel=0.05)
    np.testing.assert_allclose(weighted.mean, plain.mean, atol=0.01)

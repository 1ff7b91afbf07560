import numpy as np
import pytest
from scipy.special import logsumexp, softmax
from sklearn.datasets import load_digits

from privmix.learners import NoiseAwareClassifier
from privmix.learners.base import LinearRule
from privmix.learners.calibration import HeldOut, _best_scale, _log_sum_exp, calibrate
from privmix.learners.noise_aware import _thinned


def calibration_error(probabilities, labels, bins=15):
    confidence = probabilities.max(1)
    number = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(number, confidence - (probabilities.argmax(1) == labels), minlength=bins)
    return np.abs(gaps).sum() / len(labels)


def hard(seed, num_classes=6, width=20, count=3000):
    """Overlapping classes: accuracy around 0.8 with perfect knowledge."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % num_classes
    means = np.random.default_rng(99).standard_normal((num_classes, width))
    x = means[y] + 2 * rng.standard_t(3, (count, width)) / np.sqrt(3)
    return x / np.linalg.norm(x, axis=1, keepdims=True), y


@pytest.mark.parametrize("name", ["poisson", "signed", "hybrid"])
def test_probabilities_mean_what_they_say(designs, name):
    """Mean of 3 releases on fresh records; the uncorrected scale is far off where noise is large."""
    errors = []
    for seed in range(3):
        x, y = hard(seed)
        release = designs[name](x, y, range(6), seed=seed, rows=4000)
        fresh, truth = hard(seed + 50)
        model = NoiseAwareClassifier().fit(release)
        errors.append(calibration_error(model.predict_proba(fresh), truth))
    assert np.mean(errors) < 0.06


@pytest.mark.parametrize("noise", [1.0, 2.0])
def test_class_sums_of_digits(designs, noise):
    """Sums show no scatter: what is assumed of it fits real records, not isotropic ones."""
    x, y = load_digits(return_X_y=True)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    held = np.arange(len(x)) % 4 == 0
    release = designs["stratified"](x[~held], y[~held], range(10), rows=1, prob=1.0, noise=noise)
    model = NoiseAwareClassifier().fit(release)
    assert calibration_error(model.predict_proba(x[held]), y[held]) < 0.07


def test_a_release_of_noise_is_not_trusted(designs, make_blobs):
    """Of 12 releases nearly all noise, most give up; what a rule believes would be sure."""
    x, y = make_blobs()
    confidences = []
    for seed in range(12):
        release = designs["poisson"](x, y, range(4), noise=300.0, seed=seed)
        confidences.append(NoiseAwareClassifier().fit(release).predict_proba(x).max(1).mean())
    assert np.median(confidences) < 0.4


def test_best_scale_equals_a_search():
    means, covariance = 3 * np.eye(3), np.diag([1.0, 2.0, 3.0])
    found, _ = _best_scale(means, covariance)
    rng = np.random.default_rng(5)
    y = rng.integers(3, size=200_000)
    tails = np.sqrt(1 / rng.chisquare(3, len(y)))[:, None]
    scores = means[y] + tails * rng.standard_normal((len(y), 3)) * np.sqrt(np.diag(covariance))

    def loss(scale):
        return -np.log(softmax(scale * scores, axis=1)[np.arange(len(y)), y]).mean()

    assert loss(found) < min(loss(0.8 * found), loss(1.25 * found))


def test_nothing_held_out_or_no_margin_means_no_confidence():
    rule = LinearRule(np.eye(2), np.zeros(2), np.eye(2), np.eye(2), np.ones(2))
    assert calibrate(rule, []).scale == 0
    assert calibrate(rule, [HeldOut(rule, -0.5, 0.1)] * 2).scale == 0
    assert calibrate(rule, [HeldOut(rule, 0.5, 10.0)] * 2).scale == 0
    sure = calibrate(rule, [HeldOut(rule, 0.9, 0.01)] * 2).scale
    assert calibrate(rule, [HeldOut(rule, 0.3, 0.01)] * 2).scale < sure


def test_thinned_means_are_independent_with_the_stated_variances():
    """10,000 draws of N(0, 4): each fold N(0, 20) and its rest N(0, 5), uncorrelated.

    Bands are over 6 standard errors wide (relative 0.014, correlation 0.01).
    """
    means = 2 * np.random.default_rng(7).standard_normal((100, 100))
    for (rest, rest_noise), (held, held_noise) in _thinned(means, 4.0):
        assert (rest_noise, held_noise) == (5.0, 20.0)
        assert rest.var() == pytest.approx(5, rel=0.09)
        assert held.var() == pytest.approx(20, rel=0.09)
        assert abs(np.corrcoef(rest.ravel(), held.ravel())[0, 1]) < 0.06
    folds = [held for _, (held, _) in _thinned(means, 4.0)]
    np.testing.assert_allclose(np.mean(folds, axis=0), means, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_log_sum_exp_is_scipys(rng, scale):
    logits = np.round(scale * rng.standard_normal((200, 7)), 1)  # some are equal
    due = logsumexp(logits, axis=1)
    np.testing.assert_allclose(_log_sum_exp(logits), due, rtol=4e-16)


def test_a_rule_without_weights_claims_nothing():
    """All rows together can show nothing where those but a fold seemed to show something."""
    zeros = np.zeros((2, 2))
    rule = LinearRule(zeros, np.zeros(2), zeros, zeros, np.ones(2))
    some = LinearRule(np.eye(2), np.zeros(2), np.eye(2), np.eye(2), np.ones(2))
    parts = [HeldOut.of_offsets(some, np.eye(2), noise=1e-4)] * 5
    found = calibrate(rule, parts)
    assert (found.scale, found.attenuation, found.loss) == (0.0, 0.0, pytest.approx(np.log(2)))
    assert calibrate(some, parts).scale > 0

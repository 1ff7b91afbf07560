"""Intercepts of two classes, from a population that explains the rounds."""

from __future__ import annotations

import numpy as np
import pytest

import privmix
from builders import make_schema

pytestmark = pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")


def released(folder, seed, share, distance, count=6000, width=12, epsilon=1):
    """Release two Gaussian classes; return it, and records that it has not seen."""
    rng = np.random.default_rng(1000 + seed)
    y = (rng.random(2 * count) < share).astype(int)
    x = rng.normal(0, 0.2, (2 * count, width))
    x[:, :3] += distance * y[:, None]
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1)
    schema = make_schema(2, width, count)
    plan = privmix.plan_release(
        schema, target_epsilon=epsilon, target_delta=1e-5, design="adaptive"
    )
    out = folder / f"r{seed}"
    release = privmix.release(x[:count], y[:count], plan, out=out, test_seed=seed)
    return release, x[count:], y[count:]


def test_probabilities_of_a_rare_class_average_its_share(tmp_path):
    """With the agreed intercepts of ``round_balance`` they were 2.3 points high on average, and up to 2.6.

    Machines round otherwise, and draw other noise from one seed: of eight gaps, of a standard deviation of 1.1 points
    each, the mean is beyond 1.8 points four times in a million.
    """
    gaps = []
    for seed in range(8):
        release, x, y = released(tmp_path, seed, 0.08, 0.4)
        positive = privmix.AdaptiveClassifier().fit(release).predict_proba(x)[:, 1]
        gaps.append(positive.mean() - y.mean())
    assert np.abs(gaps).max() < 0.06
    assert abs(np.mean(gaps)) < 0.018


def test_a_uniform_prior_moves_the_intercept_by_the_shares_odds(tmp_path):
    from privmix.learners.adaptive import read_rounds, round_shares

    release, *_ = released(tmp_path, 0, 0.08, 0.2)
    own = privmix.AdaptiveClassifier().fit(release)
    even = privmix.AdaptiveClassifier(class_weight="balanced").fit(release)
    moved = (even.intercept_ - own.intercept_) * own.logit_scale_
    shares = round_shares(release, read_rounds(release))
    assert moved[1] - moved[0] == pytest.approx(np.log(shares[0] / shares[1]))


def test_a_fit_is_the_same_every_time(tmp_path):
    release, *_ = released(tmp_path, 0, 0.3, 0.2, count=1000)
    found = [privmix.AdaptiveClassifier().fit(release).intercept_ for _ in range(2)]
    np.testing.assert_array_equal(*found)


def test_records_without_any_scatter_are_no_error(tmp_path):
    """All records alike: there is nothing to draw from but the constant."""
    schema = make_schema(2, 3, 400)
    plan = privmix.plan_release(schema, target_epsilon=1, target_delta=1e-5, design="adaptive")
    x, y = np.zeros((400, 3)), np.arange(400) % 2
    release = privmix.release(x, y, plan, out=tmp_path / "r", test_seed=1)
    assert np.isfinite(privmix.AdaptiveClassifier().fit(release).predict_proba(x)).all()

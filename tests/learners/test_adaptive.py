"""A new prior where the first round hardly shows how large classes are."""

from types import SimpleNamespace

import numpy as np

from privmix.learners.adaptive import round_class_sizes


def test_a_share_lost_in_noise_is_not_taken_for_none():
    """Else a uniform prior would make the class that noise hides the only one predicted."""
    shares, noise = np.array([0.6, 0.35, 0.05]), 0.02
    factor, constant = 0.5 / np.sqrt(1 - 1 / 3), np.sqrt(1 / 64)
    drawn = shares + np.array([0.0, 0.03, -0.06])
    rows = np.zeros((3, 4), dtype=np.float32)
    rows[:, -1] = (drawn - 1 / 3) * factor * constant
    step = SimpleNamespace(step="intercept", share=1 / 64)
    residual = SimpleNamespace(residual_clip_norm=0.5)
    release = SimpleNamespace(
        preprocessor=SimpleNamespace(steps=(step,)),
        num_classes=3,
        certificate=SimpleNamespace(mechanism=SimpleNamespace(components=(None, residual))),
        feature_clip_norm=1.0,
        tables=(None, SimpleNamespace(feature_noise_stddev=noise * factor * constant)),
    )
    found = round_class_sizes(release, rows)
    assert 0.015 < found[2] < 0.1
    np.testing.assert_allclose(found[:2], shares[:2], atol=0.05)

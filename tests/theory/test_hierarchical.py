import math

import pytest

from privmix._validate import InvalidInputError
from privmix.accounting import (
    account,
)
from privmix.mechanism import MixtureConfig
from privmix.theory.hierarchical import hierarchical_cost

# Hierarchical sampling

HIERARCHICAL = {
    "num_records": 50000,
    "num_mixtures": 50000,
    "mix_size": 64.0,
    "noise_multiplier": 1.26,
    "delta": 1e-5,
}


def test_hierarchical_golden_values():
    cost = hierarchical_cost(**HIERARCHICAL, class_prob=0.03)
    assert cost.balanced == pytest.approx(7.604, rel=5e-3)
    assert cost.random == pytest.approx(7.617, rel=5e-3)
    assert cost.claimed == pytest.approx(1.011, rel=5e-3)
    assert cost.claimed_central_limit == pytest.approx(1.000, abs=1e-3)
    assert hierarchical_cost(**HIERARCHICAL, class_prob=0.3).balanced == pytest.approx(
        1.981, rel=5e-3
    )


def test_hierarchical_cost_is_that_of_the_mechanism():
    """Class counts that divide nothing as well."""
    for class_prob in (0.0313, 1.0):
        cost = hierarchical_cost(**HIERARCHICAL | {"num_mixtures": 1234}, class_prob=class_prob)
        for eligibility in ("balanced", "random"):
            s = 1.26
            config = MixtureConfig(
                design="hierarchical",
                num_records=50000,
                num_classes=10,
                num_features=3,
                num_mixtures=1234,
                sampling_prob=64 / 50000,
                mix_size=64.0,
                noise_multiplier=s,
                feature_noise_multiplier=s * math.sqrt(2),
                label_noise_multiplier=s * math.sqrt(2),
                class_prob=class_prob,
                eligibility=eligibility,
            )
            assert account(config.event, 1e-5).epsilon == getattr(cost, eligibility)
            assert account(config.claimed_event, 1e-5).epsilon == cost.claimed
    assert cost.balanced == pytest.approx(cost.claimed)  # p = 1: everybody is always eligible


def test_a_bad_probability_of_a_class():
    with pytest.raises(InvalidInputError, match="class_prob"):
        hierarchical_cost(**HIERARCHICAL, class_prob=1e-4)

"""Mechanisms of two tables: what they state of the division of the budget follows from the noise."""

from __future__ import annotations

import pytest

from privmix import InvalidInputError
from privmix.mechanism import AdaptiveConfig, HybridConfig
from privmix.planning.solve import configure

SIZES = {"num_records": 4000, "num_classes": 5, "num_features": 16}
KINDS = {"hybrid": HybridConfig, "adaptive": AdaptiveConfig}


@pytest.mark.parametrize("design", KINDS)
@pytest.mark.parametrize("budget", [1e-9, 0.05, 0.5, 1 - 1e-9])
@pytest.mark.parametrize("noise", [1e-2, 3.7, 1e6])
@pytest.mark.parametrize("rows", [{"num_mixtures": 7, "mix_size": 4000.0}, {"mix_size": 0.01}])
def test_the_share_of_the_signed_rows_follows_from_the_noise(design, budget, noise, rows):
    made = configure(SIZES, design, {"feature_budget": budget, **rows}, noise)
    assert made.feature_budget == budget
    stated = made.model_dump()
    for other in (budget * (1 - 1e-6), budget / 2):
        with pytest.raises(InvalidInputError, match="feature_budget: .* follows from the noise"):
            KINDS[design](**stated | {"feature_budget": other})


@pytest.mark.parametrize("noise", [1e-300, 1e300])
def test_noise_of_any_size_is_refused_in_words(noise):
    stated = configure(SIZES, "hybrid", {"feature_budget": 0.5}, 1.0).model_dump()
    for part in (0, 1):
        parts = [dict(one) for one in stated["components"]]
        parts[part] |= {"noise_multiplier": noise, "feature_noise_multiplier": noise}
        with pytest.raises(InvalidInputError):
            HybridConfig(**stated | {"components": parts})

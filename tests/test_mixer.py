"""One table's rows: what is added, with what noise, and by what they are divided."""

from __future__ import annotations

import numpy as np
import pytest

from builders import make_plan, make_schema
from privmix import bound_records, mixer
from privmix.mixer import Mixer
from privmix.noise import rounded_gaussian

SCHEMA = make_schema()


def empty_records(count: int):
    """Records that add nothing: their rows are the noise alone."""
    return bound_records(np.zeros((count, 5)), np.zeros(count, dtype=int), SCHEMA)


def poisson(**options):
    return make_plan(SCHEMA, "poisson", mix_size=6, num_mixtures=600, **options).mechanism


def test_blocks_have_noise_of_their_own(key):
    made = Mixer(poisson(), empty_records(60), key)
    blocks = made.config.blocks
    assert len(blocks) > 1
    first, second = (made.rows(block) for block in blocks[:2])
    alike = min(len(first.features), len(second.features))
    assert not (first.features[:alike] == second.features[:alike]).any()


def test_rows_are_divided_by_a_public_number(key):
    """With fewer records that add nothing, under the same key, every published number is the same."""
    many, few = (Mixer(poisson(), empty_records(count), key) for count in (60, 31))
    for block in many.config.blocks:
        assert np.array_equal(many.rows(block).features, few.rows(block).features)


@pytest.mark.parametrize("design", ["poisson", "stratified", "uniform"])
def test_noise_is_a_hair_larger_than_what_is_accounted_for(key, design, monkeypatch):
    options = {
        "poisson": {"mix_size": 6, "num_mixtures": 4},
        "stratified": {"sampling_prob": 0.5, "rows_per_class": 2},
        "uniform": {"mix_size": 6, "num_mixtures": 4, "weight_alpha": 1.0, "weight_clip": 0.5},
    }[design]
    config = make_plan(SCHEMA, design, 1.7, **options).mechanism
    records, drawn = empty_records(60), []

    def watched(stream, extra, stddev, size, **room):
        drawn.append(stddev)
        return rounded_gaussian(stream, extra, stddev, size, **room)

    monkeypatch.setattr(mixer, "rounded_gaussian", watched)
    made = Mixer(config, records, key)
    made.rows(config.blocks[0])
    # Random weights count in parts of one over WEIGHT_SCALE, and are at most a half.
    unit = mixer.WEIGHT_SCALE * 0.5 if design == "uniform" else 1.0
    due = [config.feature_noise_multiplier * records.feature_grid.sensitivity * unit]
    if config.label_noise_multiplier is not None:
        due.append(config.label_noise_multiplier * records.label_grid.sensitivity * unit)
    assert len(drawn) == len(due)
    for found, accounted in zip(drawn, due, strict=True):
        assert accounted * (1 + 5e-13) < found < accounted * (1 + 2e-12)

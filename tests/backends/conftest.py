"""A release of every kind, small, and in several shards."""

from __future__ import annotations

import pytest

from builders import make_data, make_plan, make_schema
from privmix import Schema, mechanism
from privmix.mechanism import mixtures
from privmix.planning.plan import PrivacyUnit
from privmix.records import binding
from privmix.records import bounded as records
from privmix.sampling import row_blocks

RELEASES = {
    "poisson": {"mix_size": 20, "num_mixtures": 60},
    "signed": {"mix_size": 20, "num_mixtures": 60},
    "stratified": {"sampling_prob": 0.5, "rows_per_class": 20},
    "hybrid": {"mix_size": 20, "num_mixtures": 60},
    "hierarchical": {"mix_size": 6, "num_mixtures": 61, "class_prob": 0.37},
    "uniform": {"mix_size": 6, "num_mixtures": 60, "weight_alpha": 0.7, "weight_clip": 0.3},
    "transposed": {"rows_per_record": 4, "num_mixtures": 40},
}


@pytest.fixture
def small_runs(monkeypatch) -> None:
    """Shards of 16 records and blocks of 16 rows, in this process."""
    for module in (records, binding):
        monkeypatch.setattr(module, "batch_records", lambda num_features: 8)
    monkeypatch.setattr(mixtures, "shard_records", lambda num_features: 16)
    monkeypatch.setattr(
        mechanism.MixtureConfig,
        "blocks",
        property(lambda config: row_blocks(config.num_mixtures, 16, config.rows_per_class)),
    )


@pytest.fixture(params=RELEASES)
def task(request, small_runs) -> tuple:
    """(features, labels, plan) of a release in several shards and blocks."""
    plan = make_plan(make_schema(), request.param, 5.0, **RELEASES[request.param])
    return (*make_data(plan.data_schema, 60), plan)


@pytest.fixture(params=["poisson", "signed", "transposed"])
def owned(request, small_runs) -> tuple:
    """(features, labels, units, plan) of a release of numbers that protects units."""
    schema = Schema(
        classes=["u", "v"],
        target="regression",
        target_bounds=[(-1, 1), (0, 3)],
        num_features=5,
        num_records=60,
        feature_clip_norm=1.0,
    )
    unit = PrivacyUnit("patient", 3)
    plan = make_plan(schema, request.param, 5.0, unit, **RELEASES[request.param])
    x, _ = make_data(make_schema(), 60)
    return x, x[:, :2] * 2, [i % 7 for i in range(60)], plan

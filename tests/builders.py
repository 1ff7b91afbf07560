"""Small schemas, data and plans for the tests."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from threading import Thread

import numpy as np

from privmix import Schema
from privmix.planning.plan import RECORD, PrivacyUnit, ReleasePlan, planned_sizes
from privmix.planning.solve import configure


def make_schema(num_classes: int = 3, num_features: int = 5, num_records: int = 60) -> Schema:
    return Schema(
        classes=list(range(num_classes)),
        num_features=num_features,
        num_records=num_records,
        feature_clip_norm=1.0,
    )


def make_data(schema: Schema, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(schema.num_classes, size=count)
    centres = rng.standard_normal((schema.num_classes, schema.num_features))
    x = centres[y] + 0.5 * rng.standard_normal((count, schema.num_features))
    return x / np.linalg.norm(x, axis=1, keepdims=True), np.array(schema.classes)[y]


def make_plan(
    schema: Schema,
    design: str,
    noise_multiplier: float = 1.0,
    unit: PrivacyUnit = RECORD,
    **options,
) -> ReleasePlan:
    """A plan with a given noise, for tests that are not about calibration."""
    config = configure(planned_sizes(schema), design, options, noise_multiplier)
    return ReleasePlan.for_config(config, 1e-5, schema, unit=unit)


def fed_pipe(path: Path) -> Path:
    """Make a named pipe whose reader gets a byte and its end, so that a test of one does not hang."""
    os.mkfifo(path)

    def feed() -> None:
        with suppress(OSError):  # opened and closed without a look
            path.write_bytes(b"x")

    Thread(target=feed, daemon=True).start()
    return path

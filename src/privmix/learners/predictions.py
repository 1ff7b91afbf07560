"""Predictions as a table: one row for each record, in their order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from privmix.learners.base import LinearRegressor


def num_features(model: Any) -> int:
    """Return the width of the vectors that a learner of releases, or a model of ``fit``, takes."""
    width = getattr(model, "n_features_in_", None)
    return int(math.prod(model.certificate.config.input_shape) if width is None else width)


def prediction_table(model: Any, features: Any) -> pa.Table:
    """Predict records.

    Args:
        model: A learner of releases, or a model of ``privmix fit``.
        features: As the model's ``predict`` takes them.

    Returns:
        Of numbers: a column for each output, by its name. Of several labels: one of 0 and 1 for each,
        then ``probability of LABEL`` for each (``the probability of LABEL`` where a label is called as
        such a column would be). Else ``label``, the likeliest class, its
        ``probability``, and ``probability of CLASS`` for each class.

    """
    if isinstance(model, LinearRegressor):
        found = model.predict(features).reshape(-1, len(model.output_names_))
        return pa.table({str(name): found[:, k] for k, name in enumerate(model.output_names_)})
    shares = np.asarray(model.predict_proba(features))
    names = model.classes_.tolist()
    chance, taken = "probability of", names if model.target_ == "multilabel" else []
    while any(f"{chance} {name}" in taken for name in names):
        chance = f"the {chance}"
    likely = {f"{chance} {name}": shares[:, k] for k, name in enumerate(names)}
    if model.target_ == "multilabel":
        labels = model.predict(features)
        return pa.table({str(name): labels[:, k] for k, name in enumerate(names)} | likely)
    best = shares.argmax(axis=1)
    columns: dict[str, Any] = {
        "label": pa.array([names[k] for k in best]),
        "probability": shares[np.arange(len(best)), best],
    }
    return pa.table(columns | likely)

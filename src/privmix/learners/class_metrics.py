"""How good predicted classes and their probabilities are, in every figure that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    f1_score,
    log_loss,
    recall_score,
    roc_auc_score,
)

# Whole confusion matrices up to this many classes; of more, the commonest confusions.
_SMALL = 10
_TOP = 10
_RESAMPLES = 200
_BINS = 15

Indices = NDArray[np.integer[Any]]
Shares = NDArray[np.floating[Any]]


def class_metrics(
    truth: Indices, shares: Shares, names: Sequence[Any], *, found: Indices, num_wrong: int = 0
) -> dict[str, Any]:
    """Measure predictions of classes against the truth.

    Args:
        truth: (count,) indices of the true classes, at least one.
        shares: (count, K) predicted probabilities.
        names: The K classes.
        found: (count,) indices of the predicted classes.
        num_wrong: Further records, which could not be used: they count against ``accuracy`` alone.

    Returns:
        ``accuracy`` and ``balanced_accuracy`` (mean recall of the classes that occur) with
        percentile bootstrap intervals of 95 % over the records, ``majority_accuracy`` (of always the
        commonest class of the test set), ``macro_f1``, ``auc`` (of two classes; else one class against
        the rest, averaged over those that occur; None where only one does), ``log_loss``,
        ``calibration_error`` (expected, 15 bins of the top probability), ``recall`` by class (None
        for one that does not occur), and ``confusion``: rows true, columns predicted, up to ten
        classes; of more, ``top_confusions``.

    """
    k, count = len(names), len(truth)
    told = [str(name) for name in names]
    present = np.unique(truth)
    recalls = recall_score(truth, found, labels=present, average=None, zero_division=0.0)
    recall = dict.fromkeys(told, None) | {
        told[c]: float(value) for c, value in zip(present, recalls, strict=True)
    }
    factor = count / (count + num_wrong)
    correct = (truth == found).astype(np.float64)
    spread, balanced_spread = _bootstrap(truth, correct, k)
    table = confusion_matrix(truth, found, labels=range(k))
    measured: dict[str, Any] = {
        "accuracy": float(accuracy_score(truth, found)) * factor,
        "accuracy_interval": [factor * end for end in spread],
        "majority_accuracy": float(np.bincount(truth).max()) / count,
        "balanced_accuracy": float(np.mean(recalls)),
        "balanced_accuracy_interval": balanced_spread,
        "macro_f1": float(f1_score(truth, found, labels=present, average="macro", zero_division=0)),
        "auc": _auc(truth, shares, present),
        "log_loss": float(log_loss(truth, _positive(shares), labels=range(k))),
        "calibration_error": _calibration_error(truth == found, shares.max(axis=1)),
        "recall": recall,
    }
    if k <= _SMALL:
        measured["confusion"] = {
            told[i]: dict(zip(told, map(int, row), strict=True)) for i, row in enumerate(table)
        }
    else:
        measured["top_confusions"] = _top(table, told)
    return measured


def _positive(shares: Shares) -> Shares:
    floor = np.finfo(np.float64).eps
    kept = np.clip(shares, floor, 1.0)
    return np.asarray(kept / kept.sum(axis=1, keepdims=True))


def _auc(truth: Indices, shares: Shares, present: Indices) -> float | None:
    if len(present) < 2:
        return None
    if shares.shape[1] == 2:
        return float(roc_auc_score(truth, shares[:, 1]))
    return float(np.mean([roc_auc_score(truth == c, shares[:, c]) for c in present]))


def _calibration_error(right: NDArray[np.bool_], confidence: Shares) -> float:
    """Mean gap between confidence and accuracy, over equal bins of confidence."""
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    gaps = np.bincount(bins, confidence - right, minlength=_BINS)
    return float(np.abs(gaps).sum()) / len(right)


def _bootstrap(
    truth: Indices, correct: NDArray[np.float64], num_classes: int
) -> tuple[list[float], list[float]]:
    """Return 95 % intervals of accuracy and balanced accuracy; the same for the same records."""
    rng = np.random.default_rng(0)
    plain, balanced = [], []
    for _ in range(_RESAMPLES):
        drawn = rng.integers(len(truth), size=len(truth))
        sizes = np.bincount(truth[drawn], minlength=num_classes)
        hits = np.bincount(truth[drawn], correct[drawn], minlength=num_classes)
        plain.append(hits.sum() / len(truth))
        balanced.append(float((hits[sizes > 0] / sizes[sizes > 0]).mean()))
    return _ends(plain), _ends(balanced)


def _ends(values: list[float]) -> list[float]:
    return [float(end) for end in np.quantile(values, [0.025, 0.975])]


def _top(table: NDArray[Any], names: Sequence[str]) -> list[dict[str, Any]]:
    wrong = table - np.diag(table.diagonal())
    order = np.argsort(-wrong, axis=None, kind="stable")[:_TOP]
    pairs = [divmod(int(place), len(names)) for place in order]
    return [
        {"class": names[i], "predicted": names[j], "count": int(wrong[i, j])}
        for i, j in pairs
        if wrong[i, j]
    ]

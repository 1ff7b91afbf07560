"""How good predictions are on labelled test data, by what labels are."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    coverage_error,
    f1_score,
    label_ranking_average_precision_score,
    label_ranking_loss,
    mean_absolute_error,
    r2_score,
    root_mean_squared_error,
)

from privmix import _validate
from privmix.inputs.labels import LABEL_RULES, match_labels
from privmix.learners.base import LinearRegressor
from privmix.learners.class_metrics import class_metrics
from privmix.learners.network import TorchNetworkClassifier
from privmix.schema import Target


class Model(Protocol):
    """A model of classes or of weights of classes: a learner of releases, or a model of ``fit``."""

    @property
    def target_(self) -> Target:
        """What labels are."""

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes."""

    def predict(self, features: ArrayLike, /) -> NDArray[Any]:
        """Return classes."""

    def predict_proba(self, features: ArrayLike, /) -> NDArray[np.float64]:
        """Return probabilities."""


def score(
    model: Model | LinearRegressor, features: ArrayLike, labels: ArrayLike, *, num_wrong: int = 0
) -> dict[str, Any]:
    """Score a fitted learner on test data; see ``Schema`` for the kinds of labels.

    Args:
        model: A learner of releases, or a model of ``privmix fit``.
        features: (count, d) records.
        labels: (count,) classes, or (count, K) numbers for other targets.
        num_wrong: ``class``: further records, which could not be used and count as wrong.

    Returns:
        ``class``: see ``privmix.learners.class_metrics``. ``soft``: the accuracy of the likeliest
        against the heaviest class, over records with any weight, and the cross-entropy: the log loss
        weighted by the test weights. ``multilabel``: average precisions of each label over the records and their mean,
        and over the labels of each record the label ranking average precision, the ranking loss and
        the coverage error; of learners that predict labels (all but networks) also the subset accuracy
        (of records whose labels are all right) and the micro F1. A label that no test record has, or a record without labels, has no average
        precision and is left out.
        ``regression``: R2, averaged over the outputs (None for fewer than two records, which have no
        variance), and of each the root of the mean squared error and the mean absolute error.

    Raises:
        InvalidInputError: Labels that are not of the model's kind.

    """
    if isinstance(model, LinearRegressor):
        truth = _label_matrix(labels, model.target_, len(model.output_names_))
        return _regression(truth, model.predict(features), model.output_names_)
    classes = model.classes_.tolist()
    if model.target_ == "class":
        found = match_labels(model.predict(features), classes)
        due, likely = match_labels(labels, classes), model.predict_proba(features)
        return class_metrics(due, likely, classes, found=found, num_wrong=num_wrong)
    truth = _label_matrix(labels, model.target_, len(classes))
    shares = model.predict_proba(features)
    if model.target_ == "soft":
        return _soft(truth, shares)
    measured = _multilabel(truth, shares, classes)
    if not isinstance(model, TorchNetworkClassifier):
        measured |= _indicators(truth, model.predict(features))
    return measured


def _label_matrix(labels: ArrayLike, target: Any, width: int) -> NDArray[np.float64]:
    matrix = np.asarray(labels, dtype=np.float64).reshape(len(np.asarray(labels)), -1)
    if matrix.shape[1] != width:
        _validate.fail("labels", f"shape (records, {width})", f"shape {matrix.shape}")
    rule = LABEL_RULES[target]
    wrong = np.argwhere(~rule.holds(matrix))
    if len(wrong):
        row, column = map(int, wrong[0])
        _validate.fail(f"labels[{row}, {column}]", rule.expected, matrix[row, column])
    return matrix


def _regression(truth: NDArray[np.float64], guess: Any, names: Any) -> dict[str, Any]:
    guess = guess.reshape(truth.shape)
    errors = root_mean_squared_error(truth, guess, multioutput="raw_values")
    return {
        "r2": float(r2_score(truth, guess)) if len(truth) > 1 else None,
        "rmse": dict(zip(map(str, names), map(float, errors), strict=True)),
        "mae": dict(
            zip(
                map(str, names),
                map(float, mean_absolute_error(truth, guess, multioutput="raw_values")),
                strict=True,
            )
        ),
    }


def _soft(truth: NDArray[np.float64], shares: NDArray[np.float64]) -> dict[str, Any]:
    known = truth.sum(axis=1) > 0
    if not known.any():
        _validate.fail("labels", "a record with a weight above 0", "none")
    floor = np.finfo(shares.dtype).eps  # as scikit-learn's log_loss has it
    losses = -xlogy(truth, np.clip(shares, floor, 1 - floor))
    return {
        "accuracy": float(
            accuracy_score(truth[known].argmax(axis=1), shares[known].argmax(axis=1))
        ),
        "cross_entropy": float(losses.sum() / truth.sum()),
    }


def _indicators(truth: NDArray[np.float64], found: NDArray[Any]) -> dict[str, Any]:
    return {
        "subset_accuracy": float(accuracy_score(truth, found)),
        "micro_f1": float(f1_score(truth, found, average="micro", zero_division=0.0)),
    }


def _multilabel(
    truth: NDArray[np.float64], shares: NDArray[np.float64], names: Any
) -> dict[str, Any]:
    held = truth.any(axis=0)
    if not held.any():
        _validate.fail("labels", "a record with a label", "none")
    found = average_precision_score(truth[:, held], shares[:, held], average=None)
    each = dict(
        zip(
            (str(names[k]) for k in np.flatnonzero(held)),
            map(float, np.atleast_1d(found)),
            strict=True,
        )
    )
    rows = truth.any(axis=1)
    return {
        "mean_average_precision": float(np.mean(list(each.values()))),
        "label_ranking_average_precision": float(
            label_ranking_average_precision_score(truth[rows], shares[rows])
        ),
        "ranking_loss": float(label_ranking_loss(truth[rows], shares[rows])),
        "coverage_error": float(coverage_error(truth[rows], shares[rows])),
        "average_precision": each,
    }

"""Scores on test data, against scikit-learn on the same predictions."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    log_loss,
    roc_auc_score,
)

from privmix import InvalidInputError
from privmix.learners import NoiseAwareClassifier, NoiseAwareRegressor, score
from privmix.learners.class_metrics import class_metrics

K, D = 3, 3


@pytest.fixture
def model():
    """Return a model whose logits are the features themselves, for a target."""

    def make(target: str) -> NoiseAwareClassifier:
        made = NoiseAwareClassifier()
        made.target_, made.classes_ = target, np.array(["a", "b", "c"])
        made.coef_, made.intercept_, made.logit_scale_ = np.eye(K, D), np.zeros(K), 1.0
        made.n_features_in_, made.feature_clip_norm_, made.preprocessor_ = D, 100.0, None
        return made

    return make


def features(count=40):
    return np.random.default_rng(0).normal(size=(count, D))


def test_classes(model):
    x = features(400)
    names = np.array(list("abc"))
    best = names[x.argmax(axis=1)]
    assert score(model("class"), x, best)["accuracy"] == 1.0
    truth = best.copy()
    truth[:100] = np.where(best[:100] == "a", "b", "a")
    made = model("class")
    found, shares = score(made, x, truth), made.predict_proba(x)
    assert found["accuracy"] == 0.75
    low, high = found["accuracy_interval"]
    # The binomial's own interval, 0.75 -+ 0.042; the bootstrap's ends vary by a tenth of that.
    assert (low, high) == pytest.approx((0.708, 0.792), abs=0.012)
    assert found["balanced_accuracy"] == balanced_accuracy_score(truth, best)
    assert found["macro_f1"] == pytest.approx(f1_score(truth, best, average="macro"))
    assert found["auc"] == pytest.approx(roc_auc_score(truth, shares, multi_class="ovr"))
    assert found["log_loss"] == pytest.approx(log_loss(truth, shares))
    assert found["majority_accuracy"] == max(np.mean(truth == name) for name in names)
    assert found["recall"]["c"] == np.mean(best[truth == "c"] == "c")
    assert found["confusion"]["a"]["b"] == np.sum((truth == "a") & (best == "b"))
    assert 0 < found["calibration_error"] < 1
    assert score(made, x, truth, num_wrong=400)["accuracy"] == 0.375


def test_a_class_that_is_never_predicted_shows():
    """One accuracy figure would hide it: balanced accuracy, recall and the majority's do not."""
    shares = np.tile([0.9, 0.1], (100, 1))
    truth = (np.arange(100) < 8).astype(int)
    found = class_metrics(truth, shares, ["no", "yes"], found=np.zeros(100, dtype=int))
    assert found["accuracy"] == found["majority_accuracy"] == 0.92
    assert found["recall"] == {"no": 1.0, "yes": 0.0}
    assert found["balanced_accuracy"] == found["auc"] == 0.5
    assert found["calibration_error"] == pytest.approx(0.02)


def test_one_class_and_many():
    shares = np.full((6, 12), 1 / 12)
    one = class_metrics(np.zeros(6, dtype=int), shares, range(12), found=np.full(6, 3))
    assert one["auc"] is None and one["recall"]["1"] is None and "confusion" not in one
    assert one["top_confusions"] == [{"class": "0", "predicted": "3", "count": 6}]


def test_soft(model):
    x = features()
    weights = np.random.default_rng(1).dirichlet(np.ones(K), size=len(x))
    weights[0] = 0  # of no class: it says nothing
    weights[1] /= 2
    shares = model("soft").predict_proba(x)
    due = log_loss(
        np.tile(range(K), len(x)), shares.repeat(K, axis=0), sample_weight=weights.ravel()
    )
    found = score(model("soft"), x, weights)
    assert found["cross_entropy"] == pytest.approx(due)
    assert found["accuracy"] == np.mean(x[1:].argmax(axis=1) == weights[1:].argmax(axis=1))


def test_multilabel(model):
    x = features()
    labels = (x + np.random.default_rng(1).normal(size=x.shape) > 0.5).astype(float)
    labels[:, 2] = 0  # a label that nobody has
    shares = model("multilabel").predict_proba(x)
    found = score(model("multilabel"), x, labels)
    due = [average_precision_score(labels[:, k], shares[:, k]) for k in range(2)]
    assert found["average_precision"] == pytest.approx(dict(zip("ab", due, strict=True)))
    assert found["mean_average_precision"] == pytest.approx(np.mean(due))
    assert 0 < found["label_ranking_average_precision"] < 1
    perfect = np.eye(K)[x.argmax(axis=1)]
    assert score(model("multilabel"), x, perfect)["label_ranking_average_precision"] == 1


def test_regression():
    made = NoiseAwareRegressor()
    made.target_, made.output_names_ = "regression", ("age", "dose")
    made.target_bounds_ = np.array([[-10.0, 10.0]] * 2)
    made.coef_, made.intercept_ = np.eye(2, D), np.zeros(2)
    made.n_features_in_, made.feature_clip_norm_, made.preprocessor_ = D, 100.0, None
    x = features()
    found = score(made, x, x[:, :2] + [0.0, 3.0])
    assert found["rmse"] == pytest.approx({"age": 0.0, "dose": 3.0})
    assert found["r2"] < 1
    one = score(made, x[:1], x[:1, :2])  # has no variance
    zeros = pytest.approx({"age": 0.0, "dose": 0.0})
    assert one == {"r2": None, "rmse": zeros, "mae": zeros}


@pytest.mark.parametrize(
    ("target", "labels", "words"),
    [
        ("soft", np.full((4, K), 0.5), r"labels\[0, 0\]: expected weights"),
        ("multilabel", np.full((4, K), 0.5), r"labels\[0, 0\]: expected 0 or 1"),
        ("multilabel", np.zeros((4, K)), "a record with a label"),
        ("soft", np.zeros((4, K)), "a weight above 0"),
        ("soft", np.zeros((4, 2)), r"shape \(records, 3\)"),
    ],
)
def test_other_labels_are_refused(model, target, labels, words):
    with pytest.raises(InvalidInputError, match=words):
        score(model(target), features(4), labels)

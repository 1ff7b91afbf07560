"""Intercepts that undo what clipping does to rare classes, and shares of classes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

import privmix
from builders import make_schema
from privmix.learners.adaptive import _combined_shares, read_rounds, round_shares
from privmix.learners.round_balance import balance_classes

pytestmark = pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")
CLIP = 0.5


def clipped_residuals(scores, labels):
    residuals = np.eye(scores.shape[1])[labels] - softmax(scores, axis=1)
    lengths = np.linalg.norm(residuals, axis=1, keepdims=True)
    return (residuals * np.minimum(1, CLIP / lengths)).mean(axis=0)


@pytest.mark.parametrize("middle", [(0.0, -2.5), (0.5, 0.0, -2.0)])
def test_intercepts_are_those_of_the_labels(middle):
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((20_000, len(middle)))
    true = np.array(middle) - np.mean(middle)
    chances = softmax(logits + true, axis=1).cumsum(axis=1)
    labels = (rng.random((len(logits), 1)) > chances[:, :-1]).sum(axis=1)
    rounds = [0.0 * logits, 0.5 * logits, logits]
    seen = np.mean([clipped_residuals(scores, labels) for scores in rounds], axis=0)
    found = balance_classes(rounds, logits, seen, 1e-4, CLIP)
    shares = np.bincount(labels) / len(labels)
    # Five standard errors of 20,000 labels.
    assert np.abs(found.shares - shares).max() < 5 * 0.5 / np.sqrt(len(labels))
    np.testing.assert_allclose(found.intercept - found.intercept.mean(), true, atol=0.15)


def test_what_noise_hides_moves_nothing():
    """A share lost in noise is not taken for none: a new prior would make that class the only one."""
    logits = np.random.default_rng(0).standard_normal((500, 3))
    seen = np.array([0.3, 0.1, -0.4])
    found = balance_classes([logits], logits, seen, 10.0, CLIP)
    assert np.abs(found.intercept).max() < 0.01
    assert found.shares.min() > 0.25


def test_a_rare_class_is_predicted_as_often_as_it_is(tmp_path):
    """Of 8 % positives: probabilities, the area under the ROC curve, and both kinds of accuracy."""
    rng = np.random.default_rng(3)
    count, width = 6000, 12
    y = (rng.random(2 * count) < 0.08).astype(int)
    x = rng.normal(0, 0.2, (2 * count, width))
    x[:, :3] += 0.2 * y[:, None]
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1)
    schema = make_schema(2, width, count)
    plan = privmix.plan_release(schema, target_epsilon=1, target_delta=1e-5, design="adaptive")
    release = privmix.release(x[:count], y[:count], plan, out=tmp_path / "r", test_seed=1)
    model = privmix.AdaptiveClassifier().fit(release)
    test, truth = x[count:], y[count:]
    positive = model.predict_proba(test)[:, 1]
    assert abs(positive.mean() - truth.mean()) < 0.02
    assert abs(round_shares(release, read_rounds(release))[1] - y[:count].mean()) < 0.03
    assert roc_auc_score(truth, positive) > 0.74
    balanced = privmix.AdaptiveClassifier(class_weight="balanced").fit(release)
    assert balanced_accuracy_score(truth, balanced.predict(test)) > 0.65
    weighted = privmix.AdaptiveClassifier(class_weight={1: 4}).fit(release).predict_proba(test)
    due = model.predict_proba(test) * [1, 4]
    np.testing.assert_allclose(weighted, due / due.sum(axis=1, keepdims=True), rtol=1e-6)
    with pytest.raises(privmix.InvalidInputError, match="^class_weight"):
        privmix.AdaptiveClassifier(class_weight={2: 4}).fit(release)
    assert model.score(test, truth) > 0.91


def test_shares_are_moved_by_what_early_rounds_are_off_beyond_chance():
    biased, right = np.array([0.8, 0.2]), np.array([0.88, 0.12])
    clear = _combined_shares([biased, right, right], [1e-8, 1e-7, 1e-6])
    np.testing.assert_allclose(clear, right, atol=1e-3)
    hidden = _combined_shares([biased, right, right], [1e-8, 1.0, 1.0])
    np.testing.assert_allclose(hidden, biased, atol=1e-3)
    assert _combined_shares([biased, right], [1.0, 1.0]).tolist() == [0.5, 0.5]
    even = np.full(3, 1 / 3)
    assert _combined_shares([even, even], [0.0, 0.0]).tolist() == even.tolist()


def test_uneven_shares_of_a_small_table_are_seen(tmp_path):
    """All rounds together know shares better than the first ones, whose noise would hide these."""
    rng = np.random.default_rng(0)
    true = np.array([0.02, 0.04, 0.4, 0.4, 0.11, 0.03])
    y = rng.choice(6, 900, p=true)
    x = 0.2 * rng.standard_normal((900, 11)) + 0.3 * np.eye(6, 11)[y]
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1)
    target = {"target_epsilon": 1, "target_delta": 1e-5, "design": "adaptive"}
    steps = privmix.plan_release(make_schema(6, 11, 900), **target).preprocessing
    assert steps[0].step == "class_counts"  # without them rounds must tell
    plan = privmix.plan_release(make_schema(6, 11, 900), preprocessing=steps[1:], **target)
    release = privmix.release(x, y, plan, out=tmp_path / "r", test_seed=1)
    error = np.abs(round_shares(release, read_rounds(release)) - np.bincount(y) / 900).sum()
    assert error < 0.5 * np.abs(1 / 6 - true).sum()
    drawn = np.bincount(privmix.synthesize(release, 1000).labels, minlength=6) / 1000
    np.testing.assert_allclose(drawn, round_shares(release, read_rounds(release)), atol=2e-3)


def test_public_shares_replace_what_rounds_show(tmp_path):
    rng = np.random.default_rng(0)
    shares = (0.5, 0.3, 0.2)
    y = rng.choice(3, 900, p=shares)
    x = 0.2 * rng.standard_normal((900, 6)) + 0.3 * np.eye(3, 6)[y]
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1)
    schema = make_schema(3, 6, 900).model_copy(update={"class_balance": shares})
    for design in ("adaptive", "signed"):
        plan = privmix.plan_release(schema, target_epsilon=1, target_delta=1e-5, design=design)
        release = privmix.release(x, y, plan, out=tmp_path / design, test_seed=1)
        made = privmix.synthesize(release, 1000)
        assert made.facts.class_prior == "public"
        assert np.bincount(made.labels).tolist() == pytest.approx([500, 300, 200], abs=2)
    learnt = privmix.AdaptiveClassifier(class_weight="balanced")
    learnt.fit(privmix.Release(tmp_path / "adaptive"))
    plain = privmix.AdaptiveClassifier().fit(privmix.Release(tmp_path / "adaptive"))
    moved = (plain.intercept_ - learnt.intercept_) * plain.logit_scale_
    np.testing.assert_allclose(moved, np.log(shares) - np.log(1 / 3), atol=1e-6)


def test_without_an_intercept_nothing_is_counted(tmp_path):
    schema = make_schema(3, 5, 600)
    plan = privmix.plan_release(
        schema, target_epsilon=8, target_delta=1e-5, design="adaptive", preprocessing=()
    )
    rng = np.random.default_rng(0)
    x, y = rng.normal(0, 0.1, (600, 5)), rng.integers(0, 3, 600)
    release = privmix.release(x, y, plan, out=tmp_path / "r", test_seed=1)
    model = privmix.AdaptiveClassifier().fit(release)
    assert not model.intercept_.any() and model.class_prior_ is None
    with pytest.raises(privmix.InvalidInputError, match="without an intercept"):
        privmix.AdaptiveClassifier(class_prior="uniform").fit(release)

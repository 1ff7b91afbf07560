"""Labels from the rounds' classifier: its probabilities, and as many of each class as there should be."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

import privmix
from privmix.features.tabular import TabularExtractor
from privmix.learners.round_labels import RoundLabels
from privmix.learners.synthesis import Synthesizer

# Releases of tests protect nobody, and say so.
pytestmark = pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")
WEIGHTS = np.array([[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]])


@dataclass
class Known:
    """A classifier whose probabilities are known."""

    weights: np.ndarray

    def predict_proba(self, features: np.ndarray) -> np.ndarray:
        return softmax(features @ self.weights.T, axis=1)


def drawn(features, shares, rng, weights=WEIGHTS):
    found = RoundLabels.fit(Known(weights), features, np.array(shares))
    assert np.isfinite(found.balance).all()
    return found.draw(features, rng)


@pytest.mark.parametrize("shares", [[0.6, 0.3, 0.1], [0.98, 0.01, 0.01], [0.5, 0.5, 0.0]])
def test_classes_have_their_shares(rng, shares):
    labels = drawn(rng.standard_normal((20_000, 2)), shares, rng)
    found = np.bincount(labels, minlength=3) / len(labels)
    # Five standard errors of a share of a half.
    np.testing.assert_allclose(found, shares, atol=0.018)
    assert (found > 0).tolist() == [share > 0 for share in shares]


def test_labels_follow_the_classifiers_odds(rng):
    features = rng.standard_normal((40_000, 2))
    labels = drawn(features, Known(WEIGHTS).predict_proba(features).mean(axis=0), rng)
    found = LogisticRegression(C=1e6).fit(features, labels)
    due = WEIGHTS - WEIGHTS.mean(axis=0)
    np.testing.assert_allclose(found.coef_ - found.coef_.mean(axis=0), due, atol=0.1)


def test_a_class_that_the_classifier_never_gives_has_its_share(rng):
    never = np.array([[0.0, 0.0], [0.0, 0.0], [-2000.0, 0.0]])
    labels = drawn(np.ones((1000, 2)), [0.4, 0.4, 0.2], rng, never)
    np.testing.assert_allclose(np.bincount(labels) / 1000, [0.4, 0.4, 0.2], atol=0.08)


TABLE = """{"classes": ["no", "yes"], "num_records": 4000, "table": {"columns": [
  {"name": "size", "type": "numeric", "lower": -4, "upper": 4},
  {"name": "kind", "type": "categorical", "categories": ["a", "b", "c"], "nullable": false}%s]}}"""
HASHED = ', {"name": "town", "type": "categorical", "num_buckets": 4}'


@pytest.fixture(scope="module", params=["", HASHED], ids=["rows", "vectors"])
def table(request, tmp_path_factory):
    """A release of a table whose rows come back, or of one whose columns cannot be undone."""
    rng = np.random.default_rng(0)
    schema = privmix.Schema.from_json(TABLE % request.param)
    rows = pd.DataFrame({"size": rng.uniform(-3, 3, 4000), "kind": rng.choice(list("abc"), 4000)})
    odds = 1.5 * rows["size"] + 1.5 * (rows["kind"] == "c") - 1
    labels = np.where(rng.random(4000) < 1 / (1 + np.exp(-odds)), "yes", "no")
    rows["town"] = "Ulm"
    rows = rows[[column.name for column in schema.table.columns]]
    plan = privmix.plan_release(schema, target_epsilon=8, target_delta=1e-5, design="adaptive")
    options = {"test_seed": 1, "extractor": TabularExtractor(schema.table)}
    out = tmp_path_factory.mktemp("labels") / "release"
    return privmix.release(rows, labels, plan, out=out, **options)


def test_rows_of_a_table_get_their_labels_from_the_classifier(table):
    own = privmix.AdaptiveClassifier().fit(table)
    x, y = privmix.synthesize(table, 20_000, seed=1)
    # As sure as the classifier, up to a shift of all for the shares' sake.
    odds = (own.logit_scale_ * own.decision_function(x))[:, None]
    assert LogisticRegression(C=1e6).fit(odds, y).coef_[0, 0] == pytest.approx(1.0, abs=0.08)


def test_a_prior_that_is_asked_for_changes_no_class(table):
    """There are other numbers of rows of a class, and they look the same."""
    x, y = privmix.synthesize(table, 20_000, seed=1)
    some, classes = privmix.synthesize(table, 20_000, seed=2, class_prior=[0.1, 0.9])
    assert (classes == "no").sum() == pytest.approx(2000, abs=5)  # one in each stretch
    for name in ("no", "yes"):
        means = x[y == name].mean(axis=0), some[classes == name].mean(axis=0)
        np.testing.assert_allclose(*means, atol=0.05)


def test_rows_of_a_class_that_the_classifier_hardly_gives_are_drawn_all_the_same(table):
    source = Synthesizer(table, class_prior=[0.5, 0.5])
    source._round_labels = replace(source._round_labels, balance=np.array([1.0, 0.0]))
    drawn = next(source.chunks(100))
    assert sorted(drawn.labels) == ["no"] * 50 + ["yes"] * 50
    assert len(source.features_of(drawn)) == 100


def test_a_stretch_is_the_same_whatever_follows(table):
    first = next(Synthesizer(table, seed=2).chunks(10_000))
    whole = privmix.synthesize(table, 10_000, seed=2)
    assert np.array_equal(first.labels, whole.labels[:4096])

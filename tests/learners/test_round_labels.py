"""Labels from the rounds' classifier: its probabilities, and as many of each class as there should be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

import privmix
from privmix.features.tabular import TabularExtractor
from privmix.learners.round_labels import RoundLabels

WEIGHTS = np.array([[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]])


@dataclass
class Known:
    """A classifier whose probabilities are known."""

    weights: np.ndarray

    def predict_proba(self, features: np.ndarray) -> np.ndarray:
        return softmax(features @ self.weights.T, axis=1)


def drawn(features, prior, rng, weights=WEIGHTS, share=1.0):
    each = np.full(len(features), 1 / len(features))
    found = RoundLabels.fit(Known(weights), features, each, np.array(prior), share)
    assert np.isfinite(found.balance).all()
    return found.put(np.full(len(features), 2), features, rng)


@pytest.mark.parametrize("prior", [[0.6, 0.3, 0.1], [0.98, 0.01, 0.01], [0.5, 0.5, 0.0]])
def test_classes_have_their_shares(rng, prior):
    features = rng.standard_normal((20_000, 2))
    labels = drawn(features, prior, rng)
    shares = np.bincount(labels, minlength=3) / len(labels)
    # Five standard errors of a share of a half.
    np.testing.assert_allclose(shares, prior, atol=0.018)
    assert (shares > 0).tolist() == [share > 0 for share in prior]


def test_what_a_vector_counts_is_heeded():
    features = np.array([[9.0, 0.0], [0.0, 9.0]])
    weights = np.array([0.9, 0.1])
    found = RoundLabels.fit(Known(WEIGHTS), features, weights, np.array([0.9, 0.1, 0.0]))
    np.testing.assert_allclose(found.balance[:2] / found.balance[0], 1.0, atol=0.05)


def test_labels_follow_the_classifiers_odds(rng):
    features = rng.standard_normal((40_000, 2))
    given = Known(WEIGHTS).predict_proba(features)
    labels = drawn(features, given.mean(axis=0), rng)
    found = LogisticRegression(C=1e6).fit(features, labels)
    due = WEIGHTS - WEIGHTS.mean(axis=0)
    np.testing.assert_allclose(found.coef_ - found.coef_.mean(axis=0), due, atol=0.1)


def test_a_class_that_the_classifier_never_gives_is_drawn_all_the_same(rng):
    features = np.ones((1000, 2))
    never = np.array([[0.0, 0.0], [0.0, 0.0], [-2000.0, 0.0]])
    counts = np.bincount(drawn(features, [0.4, 0.4, 0.2], rng, never), minlength=3)
    assert counts.sum() == 1000 and counts[:2].min() > 300


def test_others_keep_their_labels(rng):
    features = np.tile([9.0, 0.0], (10_000, 1))
    labels = drawn(features, [1.0, 0.0, 0.0], rng, share=0.3)
    # Five standard errors.
    assert (labels == 0).mean() == pytest.approx(0.3, abs=0.023)
    assert (drawn(features, [1.0, 0.0, 0.0], rng, share=0.0) == 2).all()


TABLE = """{"classes": ["no", "yes"], "num_records": 4000, "table": {"columns": [
  {"name": "size", "type": "numeric", "lower": -4, "upper": 4},
  {"name": "kind", "type": "categorical", "categories": ["a", "b", "c"], "nullable": false}%s]}}"""


@pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")
@pytest.mark.parametrize(
    "more", ["", ', {"name": "town", "type": "categorical", "num_buckets": 4}']
)
def test_rows_of_a_table_get_their_labels_from_the_classifier(tmp_path, rng, more):
    schema = privmix.Schema.from_json(TABLE % more)
    rows = pd.DataFrame({"size": rng.uniform(-3, 3, 4000), "kind": rng.choice(list("abc"), 4000)})
    rows["town"] = "Ulm"
    odds = 1.5 * rows["size"] + 1.5 * (rows["kind"] == "c") - 1
    labels = np.where(rng.random(4000) < 1 / (1 + np.exp(-odds)), "yes", "no")
    plan = privmix.plan_release(schema, target_epsilon=3, target_delta=1e-5, design="adaptive")
    release = privmix.release(
        rows[[column.name for column in schema.table.columns]],
        labels,
        plan,
        out=tmp_path / "release",
        test_seed=1,
        extractor=TabularExtractor(schema.table),
    )
    own = privmix.AdaptiveClassifier().fit(release)
    x, y = privmix.synthesize(release, 20_000, seed=1)
    # As sure as the classifier, up to a shift of all for the shares' sake.
    odds = (own.logit_scale_ * own.decision_function(x))[:, None]
    assert LogisticRegression(C=1e6).fit(odds, y).coef_[0, 0] == pytest.approx(1.0, abs=0.08)
    rare = privmix.synthesize(release, 20_000, seed=1, class_prior=[0.9, 0.1]).labels
    assert (rare == "yes").mean() == pytest.approx(0.1, abs=0.02)

"""Labels from the rounds' classifier: its probabilities, and as many of each class as there should be."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax
from sklearn.linear_model import LinearRegression, LogisticRegression

import privmix
from privmix.features.tabular import TabularExtractor
from privmix.preprocess import RandomProjection, UnitNorm
from privmix.synthesis.labels import OwnLabels, draw_several
from privmix.synthesis.synthesizer import Synthesizer

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
    found = OwnLabels.fit(Known(weights), features, np.array(shares))
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


def released(folder, more="", shift=1.0, design="adaptive", epsilon=8.0):
    """Return a release of rows whose odds of "yes" are linear."""
    rng = np.random.default_rng(0)
    schema = privmix.Schema.from_json(TABLE % more)
    rows = pd.DataFrame({"size": rng.uniform(-3, 3, 4000), "kind": rng.choice(list("abc"), 4000)})
    odds = 1.5 * rows["size"] + 1.5 * (rows["kind"] == "c") - shift
    labels = np.where(rng.random(4000) < 1 / (1 + np.exp(-odds)), "yes", "no")
    rows["town"] = "Ulm"
    rows = rows[[column.name for column in schema.table.columns]]
    plan = privmix.plan_release(schema, target_epsilon=epsilon, target_delta=1e-5, design=design)
    options = {"test_seed": 1, "extractor": TabularExtractor(schema.table)}
    return privmix.release(rows, labels, plan, out=folder / "release", **options)


@pytest.fixture(scope="module", params=["", HASHED], ids=["rows", "vectors"])
def table(request, tmp_path_factory):
    """A release of a table whose rows come back, or of one whose columns cannot be undone."""
    return released(tmp_path_factory.mktemp("labels"), request.param)


def test_rows_of_a_table_get_their_labels_from_the_classifier(table):
    own = privmix.AdaptiveClassifier().fit(table)
    x, y = privmix.synthesize(table, 20_000, seed=1)
    # As sure as the classifier, up to a shift of all for the shares' sake.
    odds = (own.logit_scale_ * own.decision_function(x))[:, None]
    assert LogisticRegression(C=1e6).fit(odds, y).coef_[0, 0] == pytest.approx(1.0, abs=0.08)


@pytest.mark.parametrize("design", ["hybrid", "poisson", "signed"])
def test_so_do_rows_of_other_designs(tmp_path, design):
    release = released(tmp_path, design=design)
    own = privmix.NoiseAwareClassifier().fit(release)
    x, y = privmix.synthesize(release, 20_000, seed=1)
    odds = (own.logit_scale_ * own.decision_function(x))[:, None]
    assert LogisticRegression(C=1e6).fit(odds, y).coef_[0, 0] == pytest.approx(1.0, abs=0.08)


def test_labels_are_those_drawn_from_where_the_classifier_knows_no_better(tmp_path, monkeypatch):
    """Class sums show no scatter; and a release of noise may have taught the classifier nothing."""
    for name in ("sums", "mixed"):
        (tmp_path / name).mkdir()
    assert Synthesizer(released(tmp_path / "sums", design="stratified"))._own_labels is None
    release = released(tmp_path / "mixed", design="hybrid")
    assert Synthesizer(release)._own_labels is not None
    fit = privmix.NoiseAwareClassifier.fit

    def nothing(self, release):
        self = fit(self, release)
        self.coef_[:] = 0.0
        return self

    monkeypatch.setattr(privmix.NoiseAwareClassifier, "fit", nothing)
    source = Synthesizer(release)
    assert source._own_labels is None
    assert set(next(source.chunks(100)).labels) == {"no", "yes"}


def test_a_prior_that_is_asked_for_changes_no_class(table):
    """There are other numbers of rows of a class, and they look the same."""
    x, y = privmix.synthesize(table, 20_000, seed=1)
    some, classes = privmix.synthesize(table, 20_000, seed=2, class_prior=[0.1, 0.9])
    assert (classes == "no").sum() == pytest.approx(2000, abs=5)  # one in each stretch
    for name in ("no", "yes"):
        means = x[y == name].mean(axis=0), some[classes == name].mean(axis=0)
        np.testing.assert_allclose(*means, atol=0.05)


def test_a_prior_that_is_asked_for_changes_no_rare_class(tmp_path):
    release = released(tmp_path, shift=6.5)
    own = privmix.AdaptiveClassifier().fit(release)
    x, y = privmix.synthesize(release, 6000, seed=1, class_prior="uniform")
    assert (privmix.synthesize(release, 6000).labels == "yes").mean() < 0.03
    odds = (own.logit_scale_ * own.decision_function(x))[:, None]
    assert LogisticRegression(C=1e6).fit(odds, y).coef_[0, 0] == pytest.approx(1.0, abs=0.1)
    # In any order: those of a rare class come late in the draw.
    assert np.flatnonzero(y == "yes").mean() == pytest.approx(3000, abs=200)


def test_rows_of_a_class_that_hardly_any_record_has_are_drawn_all_the_same(table):
    source = Synthesizer(table, class_prior=[0.5, 0.5])
    source._model = replace(source._model, prior=np.array([1.0, 0.0]))
    drawn = next(source.chunks(100))
    assert sorted(drawn.labels) == ["no"] * 50 + ["yes"] * 50
    assert len(source.features_of(drawn)) == 100


def test_a_stretch_is_the_same_whatever_follows(table):
    first = next(Synthesizer(table, seed=2).chunks(10_000))
    whole = privmix.synthesize(table, 10_000, seed=2)
    assert np.array_equal(first.labels, whole.labels[:4096])


def test_several_labels_have_their_own_probabilities(rng):
    given = np.tile([0.9, 0.5, 0.1], (20_000, 1))
    # Five standard errors.
    np.testing.assert_allclose(draw_several(given, 3, rng).mean(axis=0), given[0], atol=0.018)
    few = draw_several(given, 1, rng)
    assert few.sum(axis=1).max() == 1
    np.testing.assert_allclose(few.mean(axis=0), [0.9, 0.05, 0.005], atol=0.011)


def linear(rng, count=6000):
    x = rng.standard_normal((count, 6)) + 0.5
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x, 3 * x @ rng.standard_normal((6, 3))


@pytest.mark.parametrize("target", ["multilabel", "soft"])
def test_several_labels_and_weights_come_from_the_classifier(tmp_path, rng, target):
    x, scores = linear(rng)
    labels = softmax(scores, axis=1)
    facts = {"max_labels": 2} if target == "multilabel" else {}
    if target == "multilabel":
        labels = draw_several(expit(scores), 2, rng)
    facts |= {"classes": ["a", "b", "c"], "num_features": 6, "feature_clip_norm": 1.0}
    schema = privmix.Schema(target=target, num_records=6000, **facts)
    plan = privmix.plan_release(schema, target_epsilon=8, target_delta=1e-5)
    assert plan.design == "adaptive"
    release = privmix.release(x, labels, plan, out=tmp_path / "release", test_seed=1)
    made = privmix.synthesize(release, 5000, seed=1)
    assert not made.facts.notes and list(made.to_pandas())[-3:] == ["a", "b", "c"]
    drawn, given = made
    best, found = (LinearRegression().fit(*some).score(x, labels) for some in ((x, labels), made))
    assert found > best - 0.05
    np.testing.assert_allclose(given.mean(axis=0), labels.mean(axis=0), atol=0.08)
    np.testing.assert_allclose(drawn.mean(axis=0), x.mean(axis=0), atol=0.08)
    if target == "multilabel":
        assert set(np.unique(given)) == {0, 1} and given.sum(axis=1).max() == 2
    else:
        np.testing.assert_allclose(given.sum(axis=1), 1.0)
    with pytest.raises(privmix.InvalidInputError, match="class_prior"):
        privmix.synthesize(release, 10, class_prior="uniform")


def test_rows_of_a_table_get_several_labels(tmp_path, rng):
    facts = json.loads(TABLE % "") | {"target": "multilabel", "max_labels": 2}
    schema = privmix.Schema.from_json(json.dumps(facts))
    rows = pd.DataFrame({"size": rng.uniform(-3, 3, 4000), "kind": rng.choice(list("abc"), 4000)})
    labels = np.column_stack([rows["size"] > 0, rows["kind"] == "a"]).astype(int)
    plan = privmix.plan_release(schema, target_epsilon=8, target_delta=1e-5)
    options = {"test_seed": 1, "extractor": TabularExtractor(schema.table)}
    release = privmix.release(rows, labels, plan, out=tmp_path / "release", **options)
    frame = privmix.synthesize(release, 4000, seed=1).to_pandas()
    assert list(frame) == ["size", "kind", "no", "yes"]
    assert frame["size"][frame["no"] == 1].mean() > 0.5 > frame["size"][frame["no"] == 0].mean()
    assert (frame["kind"] == "a")[frame["yes"] == 1].mean() > 0.6


def test_labels_for_records_that_stay_as_mixed_are_refused(tmp_path, rng):
    x, scores = linear(rng, 600)
    facts = {"classes": ["a", "b", "c"], "num_features": 6, "feature_clip_norm": 1.0}
    schema = privmix.Schema(target="soft", num_records=600, **facts)
    options = {
        "design": "adaptive",
        "preprocessing": (RandomProjection(num_directions=3), UnitNorm()),
    }
    plan = privmix.plan_release(schema, target_epsilon=8, target_delta=1e-5, **options)
    labels = softmax(scores, axis=1)
    release = privmix.release(x, labels, plan, out=tmp_path / "release", test_seed=1)
    with pytest.raises(privmix.InvalidInputError, match="can be undone"):
        privmix.synthesize(release, 10)

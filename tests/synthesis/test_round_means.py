"""Class means that explain the rows of all rounds."""

from __future__ import annotations

import numpy as np
import pytest

import privmix
from builders import make_schema
from privmix.synthesis.round_means import Spread, _between, _centred_draws, matched_offsets

pytestmark = pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """A release of three classes, how its records vary, and the classes' offsets."""
    rng = np.random.default_rng(0)
    count, width, prior = 4000, 8, np.array([0.4, 0.35, 0.25])
    means = 0.6 * np.linalg.qr(rng.normal(size=(width, width)))[0][:3]
    y = rng.choice(3, count, p=prior)
    x = means[y] + rng.normal(0, 0.1, (count, width))
    plan = privmix.plan_release(
        make_schema(3, width, count), target_epsilon=20, target_delta=1e-5, design="adaptive"
    )
    out = tmp_path_factory.mktemp("rounds") / "release"
    release = privmix.release(x, y, plan, out=out, test_seed=1)
    seen = release.preprocessor.transform(x)[:, :width]
    true = np.array([seen[y == k].mean(axis=0) for k in range(3)]) - seen.mean(axis=0)
    variances, basis = np.linalg.eigh(np.cov(seen.T))
    prior = np.bincount(y) / count
    between = float(prior @ (true**2).sum(axis=1))
    return release, prior, Spread(seen.mean(axis=0), variances, basis, between), true


def test_means_are_those_of_the_records(known):
    release, prior, spread, true = known
    found = matched_offsets(release, prior, spread)
    np.testing.assert_allclose(prior @ found, 0, atol=1e-12)
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(true, axis=1)
    assert ((found * true).sum(axis=1) / lengths).min() > 0.97


def test_the_same_release_gives_the_same_bits(known):
    release, prior, spread, _ = known
    assert (
        matched_offsets(release, prior, spread) == matched_offsets(release, prior, spread)
    ).all()


@pytest.mark.parametrize("between", [0.0, 1.0])
def test_records_that_do_not_vary_in_and_between_classes_show_no_means(known, between):
    release, prior, spread, _ = known
    spread = spread._replace(between=between * spread.trace)
    assert not matched_offsets(release, prior, spread).any()


@pytest.fixture(scope="module")
def in_a_plane(tmp_path_factory):
    """A release of 24 classes whose means lie in a plane, a spread that does not say so, and the means."""
    rng = np.random.default_rng(1)
    count, width, classes = 2400, 48, 24
    plane = np.linalg.qr(rng.normal(size=(width, 2)))[0]
    angles = 2 * np.pi * np.arange(classes) / classes
    means = 0.6 * np.column_stack([np.cos(angles), np.sin(angles)]) @ plane.T
    y = np.arange(count) % classes
    x = means[y] + rng.normal(0, 0.1, (count, width))
    plan = privmix.plan_release(
        make_schema(classes, width, count), target_epsilon=0.5, target_delta=1e-5, design="adaptive"
    )
    out = tmp_path_factory.mktemp("plane") / "release"
    release = privmix.release(x, y, plan, out=out, test_seed=1)
    seen = release.preprocessor.transform(x)[:, :width]
    true = np.array([seen[y == k].mean(axis=0) for k in range(classes)]) - seen.mean(axis=0)
    between = float((true**2).sum() / classes)
    trace = float(seen.var(axis=0).sum())
    spread = Spread(seen.mean(axis=0), np.full(width, trace / width), np.eye(width), between)
    return release, np.full(classes, 1 / classes), spread, true


def cosine(one, other):
    return float((one * other).sum() / np.linalg.norm(one) / np.linalg.norm(other))


def test_many_classes_show_where_classes_lie(in_a_plane, monkeypatch):
    release, prior, spread, true = in_a_plane
    found = cosine(matched_offsets(release, prior, spread), true)
    monkeypatch.setattr("privmix.synthesis.round_means._LEAST_CLASSES", np.inf)
    held = cosine(matched_offsets(release, prior, spread), true)
    assert found > held + 0.05, (found, held)


def test_the_draw_itself_has_no_class_means(known):
    _, prior, spread, _ = known
    labels, records = _centred_draws(prior, spread)
    assert np.bincount(labels).min() > 32
    for label in range(3):
        np.testing.assert_allclose(records[labels == label].mean(axis=0), spread.mean, atol=1e-12)
    due = (1 - spread.between / spread.trace) * spread.variances
    np.testing.assert_allclose(((records - spread.mean) @ spread.basis).var(axis=0), due, rtol=0.2)


def test_where_classes_lie_is_known_by_a_posterior_of_them_and_by_the_records():
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    spread = Spread(np.zeros(3), np.array([1.0, 2.0, 3.0]), basis, 1.5)
    # A prior of 3 classes' worth, of trace 1.5 each; two classes seen, and what is unknown of them.
    offsets = np.array([[2.0, 0.0, 0.0], [-1.0, 1.0, 0.0]])
    unknown = np.diag([0.1, 0.2, 0.3])
    prior = np.array([0.25, 0.75])
    seen = 0.5 * np.outer(offsets[0], offsets[0]) + 1.5 * np.outer(offsets[1], offsets[1])
    due = 3 * 0.25 * (basis * [1, 2, 3]) @ basis.T + seen + unknown
    variances, axes = _between(spread, prior, offsets, (np.eye(3), np.diag(unknown)))
    np.testing.assert_allclose((axes * variances) @ axes.T, 1.5 / np.trace(due) * due)

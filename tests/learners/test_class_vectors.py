"""Public vectors of the classes: a prior that serves where noise hides the classes."""

from __future__ import annotations

import numpy as np
import pytest

import privmix
from privmix import InvalidInputError, NoiseAwareClassifier, Schema
from privmix.learners.class_vectors import no_pull, pull_towards, sized
from privmix.preprocess import Center, UnitNorm

pytestmark = pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")
CLASSES, WIDTH, COUNT = 20, 40, 2000
KEYS = (3, 4, 5)  # of tests; figures differ in the last digits of noise from machine to machine


def records(seed: int = 0):
    rng = np.random.default_rng(seed)
    means = rng.standard_normal((CLASSES, WIDTH)) / np.sqrt(WIDTH)
    y = rng.integers(CLASSES, size=2 * COUNT)
    x = means[y] + 1.5 / np.sqrt(WIDTH) * rng.standard_normal((2 * COUNT, WIDTH))
    names = means + 0.7 / np.sqrt(WIDTH) * rng.standard_normal(means.shape)
    return x[:COUNT], y[:COUNT], x[COUNT:], y[COUNT:], names


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("class-vectors")
    x, y, *_ = records()
    schema = Schema(
        classes=range(CLASSES), num_features=WIDTH, num_records=COUNT, feature_clip_norm=1.0
    )
    made = {}
    for design in ("adaptive", "hybrid", "stratified", "signed"):
        plan = privmix.plan_release(schema, target_epsilon=0.2, target_delta=1e-5, design=design)
        made[design] = [
            privmix.release(x, y, plan, out=folder / f"{design}-{key}", test_seed=key)
            for key in KEYS
        ]
    return made


@pytest.mark.parametrize("design", ["adaptive", "hybrid", "stratified", "signed"])
def test_vectors_near_the_class_means_help_and_others_do_no_harm(releases, design):
    """On average: with so little budget one release in some may show no class at all."""
    *_, x, y, names = records()
    wrong = names[np.random.default_rng(1).permutation(CLASSES)]
    plain, helped, misled = (
        np.mean(
            [
                NoiseAwareClassifier(class_vectors=vectors).fit(release).score(x, y)
                for release in releases[design]
            ]
        )
        for vectors in (None, names, wrong)
    )
    assert helped > plain + 0.03, (plain, helped)
    assert misled > plain - 0.02, (plain, misled)


def test_the_pull_is_what_the_formula_says(releases):
    release = releases["stratified"][0]
    rng = np.random.default_rng(2)
    vectors, known = rng.standard_normal((2, CLASSES, WIDTH))
    seen = known if release.preprocessor is None else release.preprocessor.transform(known)
    directions = seen - seen.mean(axis=0)
    vectors = vectors + directions
    scale = (vectors * directions).sum() / (directions**2).sum()
    energy = (directions**2).sum() / CLASSES
    due = vectors + 0.6 * scale * 0.3 / energy * directions
    np.testing.assert_allclose(pull_towards(release, known)(vectors, 0.3), due)
    np.testing.assert_allclose(pull_towards(release, known)(-vectors, 0.3), -vectors)


def test_sums_are_pulled_by_their_classes_sizes(releases):
    pull = pull_towards(releases["stratified"][0], records()[-1])
    shares = np.arange(1, CLASSES + 1) / (CLASSES * (CLASSES + 1) / 2)
    sums = np.random.default_rng(0).standard_normal((CLASSES, WIDTH)) + records()[-1]
    moved = pull(sums, 0.1) - sums
    found = sized(pull, shares)(sums, 0.1) - sums
    np.testing.assert_allclose(found, moved * (CLASSES * shares)[:, None])
    assert sized(no_pull, shares) is no_pull


def test_without_vectors_nothing_is_pulled(releases):
    assert pull_towards(releases["signed"][0], None) is no_pull


def test_vectors_pass_the_preprocessing(tmp_path):
    x, y, *_, names = records()
    schema = Schema(
        classes=range(CLASSES), num_features=WIDTH, num_records=COUNT, feature_clip_norm=1.0
    )
    plan = privmix.plan_release(
        schema,
        target_epsilon=2.0,
        target_delta=1e-5,
        design="stratified",
        preprocessing=(Center(budget_share=0.02), UnitNorm()),
    )
    release = privmix.release(x, y, plan, out=tmp_path / "release", test_seed=0)
    due = release.preprocessor.transform(names)
    due = due - due.mean(axis=0)
    moved = pull_towards(release, names)(due, 1.0) - due
    np.testing.assert_allclose(moved / due, moved.flat[0] / due.flat[0])


@pytest.mark.parametrize(
    ("vectors", "received"),
    [
        (np.zeros((CLASSES, WIDTH + 1)), r"\(20, 41\)"),
        (np.zeros((CLASSES + 1, WIDTH)), r"\(21, 40\)"),
        (np.full((CLASSES, WIDTH), np.nan), "NaN"),
        (np.full((CLASSES, WIDTH), "a"), "<U1"),
    ],
)
def test_bad_vectors_are_refused(releases, vectors, received):
    with pytest.raises(InvalidInputError, match=f"class_vectors: .*{received}"):
        NoiseAwareClassifier(class_vectors=vectors).fit(releases["hybrid"][0])

"""The attack on published rows: exact where it can be, successful without noise, blind without cause."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from builders import make_plan, make_schema
from privmix import InvalidInputError, Schema, plan_release, release
from privmix.attacks import Background, MembershipScores, row_scores

DESIGNS = {
    "poisson": {"mix_size": 20.0, "num_mixtures": 300},
    "signed": {"mix_size": 20.0, "num_mixtures": 300},
    "stratified": {"sampling_prob": 0.5, "rows_per_class": 30},
    "hierarchical": {"mix_size": 20.0, "num_mixtures": 300, "class_prob": 0.5},
    "uniform": {"mix_size": 20, "num_mixtures": 300},
    "transposed": {"num_mixtures": 100, "rows_per_record": 20},
    "hybrid": {"mix_size": 20.0, "num_mixtures": 300},
    "adaptive": {"mix_size": 20.0, "num_mixtures": 300, "num_rounds": 4},
}
COUNT = 120


def draw(schema: Schema, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors without class structure: records differ as much as they can."""
    x = rng.standard_normal((count, schema.num_features))
    return x / np.linalg.norm(x, axis=1, keepdims=True), rng.integers(
        schema.num_classes, size=count
    )


def attack(design, noise, tmp_path, rng, *, known=False, there=True, features=150):
    """Attack a release of COUNT records; known are all but the last ten, or others like them."""
    schema = make_schema(num_classes=3, num_features=features, num_records=COUNT)
    plan = make_plan(schema, design, noise, **DESIGNS[design])
    x, y = draw(schema, COUNT, rng)
    made = release(x, y, plan, out=tmp_path / "release", test_seed=int(rng.integers(1 << 30)))
    first = COUNT - 10 if known else 0
    if known:
        background = Background(x[:first], y[:first])
    else:
        background = Background(*draw(schema, 4 * COUNT, rng), num_records=COUNT)
    inside = (x[first:], y[first:]) if there else draw(schema, COUNT, rng)
    outside = draw(schema, COUNT, rng)
    return MembershipScores(*(row_scores(made, *some, background) for some in (inside, outside)))


@pytest.mark.parametrize("design", DESIGNS)
def test_it_finds_members_behind_little_noise(design, tmp_path, rng):
    """Chance has an AUC of 0.5 with a standard deviation of 0.037; 0.66 is more than 4 of them."""
    assert attack(design, 0.3, tmp_path, rng).auc > 0.66


@pytest.mark.parametrize("design", DESIGNS)
def test_who_knows_the_others_finds_more(design, tmp_path, rng):
    """Ten members: chance exceeds an AUC of 0.85 once in 10,000."""
    assert attack(design, 0.3, tmp_path, rng, known=True).auc > 0.85


@pytest.mark.parametrize("design", DESIGNS)
def test_it_finds_nothing_in_records_that_are_not_there(design, tmp_path, rng):
    """Non-members on both sides. Scores of a release depend on each other through its noise, the
    ranks of two like groups do not: an alarm in 20, and the AUC beyond 5 standard deviations in a million.
    """
    scores = attack(design, 0.5, tmp_path, rng, there=False)
    assert abs(scores.auc - 0.5) < 5 * np.sqrt(241 / (12 * 120 * 120))


def canaries(design, noise, tmp_path, **options):
    """Attack a release of the first half of an orthonormal basis. A canary's score depends on no other
    canary, and the labels' noise drowns what they share.
    """
    schema = make_schema(num_classes=2, num_features=1000, num_records=500)
    plan = make_plan(schema, design, noise, **options)
    x, y = np.eye(1000), np.zeros(1000, dtype=int)
    made = release(x[:500], y[:500], plan, out=tmp_path / "release", test_seed=7)
    scores = row_scores(made, x, y, Background(x[:0], y[:0]))
    return MembershipScores(scores[:500], scores[500:]), made.certificate


CANARIES = {
    "poisson": {"mix_size": 85.0, "num_mixtures": 60, "label_balance": 1e3},
    "signed": {"mix_size": 200.0, "num_mixtures": 60, "label_balance": 1e3},
    "stratified": {"sampling_prob": 1.0, "rows_per_class": 1},
}


@pytest.mark.parametrize("design", CANARIES)
def test_scores_are_likelihood_ratios(design, tmp_path):
    """Under non-members a likelihood ratio has the mean 1, and its inverse under members: within
    5 standard errors, estimated. Half of the score, or twice, would fail.
    """
    scores, certificate = canaries(design, 1.5, tmp_path, **CANARIES[design])
    for log_ratios in (scores.non_members, -scores.members):
        ratios = np.exp(log_ratios)
        assert abs(ratios.mean() - 1) < 5 * ratios.std() / np.sqrt(len(ratios))
        for wrong in (0.5, 2.0):
            ratios = np.exp(wrong * log_ratios)
            assert abs(ratios.mean() - 1) > 2 * ratios.std() / np.sqrt(len(ratios))
    curve = certificate.tradeoff_curve
    for rate in (0.01, 0.1, 0.5):
        found = scores.detection(rate, confidence=1 - 1e-6)
        most = curve.true_positive_rate(found.false_positive_rate.high)
        assert found.true_positive_rate.low <= most


def test_it_is_optimal_where_the_truth_is_known(tmp_path):
    """One Gaussian row a class: the AUC is that of N(0, 1) against N(1, 1), within 5 errors."""
    scores, _ = canaries("stratified", 1.0, tmp_path, **CANARIES["stratified"])
    low, high = scores.auc_interval(confidence=1 - 6e-7)[1:]
    assert low <= norm.cdf(1 / np.sqrt(2)) <= high


def test_preprocessing_is_followed(tmp_path, rng):
    """Records are centred by the release: candidates are as well (5 standard deviations of chance)."""
    schema = make_schema(num_classes=3, num_features=150, num_records=COUNT)
    plan = plan_release(schema, target_epsilon=500.0, target_delta=1e-5, design="hybrid")
    assert plan.preprocessing
    x, y = draw(schema, COUNT, rng)
    made = release(x + 0.1, y, plan, out=tmp_path / "release", test_seed=1)
    x_out, y_out = draw(schema, COUNT, rng)
    others, labels = draw(schema, 4 * COUNT, rng)
    background = Background(others + 0.1, labels, num_records=COUNT)
    scores = MembershipScores(
        row_scores(made, x + 0.1, y, background), row_scores(made, x_out + 0.1, y_out, background)
    )
    assert scores.auc > 0.5 + 5 * 0.037


@pytest.mark.parametrize("design", DESIGNS)
def test_a_record_that_adds_nothing_cannot_be_told(design, tmp_path, rng):
    """A zero vector leaves features as they are; where labels are mixed it may be told by its label."""
    schema = make_schema(num_classes=3, num_features=5, num_records=COUNT)
    x, y = draw(schema, COUNT, rng)
    plan = make_plan(schema, design, **DESIGNS[design])
    made = release(x, y, plan, out=tmp_path / "release", test_seed=1)
    scores = row_scores(made, np.zeros((3, 5)), range(3), Background(x, y, num_records=COUNT))
    assert np.isfinite(scores).all()
    if design in ("stratified", "hybrid", "adaptive"):
        assert (scores == 0).all()


def test_what_is_refused(tmp_path, rng):
    schema = make_schema()
    x, y = draw(schema, 60, rng)
    made = release(
        x, y, make_plan(schema, "poisson", mix_size=6), out=tmp_path / "release", test_seed=1
    )
    background = Background(x, y)
    with pytest.raises(InvalidInputError, match=r"features: expected shape \(records, 5\)"):
        row_scores(made, x[:, :4], y, background)
    with pytest.raises(InvalidInputError, match="labels"):
        row_scores(made, x, y + 7, background)
    soft = Schema(
        classes=[0, 1], num_features=3, num_records=60, feature_clip_norm=1.0, target="soft"
    )
    other = release(
        x[:, :3],
        np.full((60, 2), 0.5),
        make_plan(soft, "poisson", mix_size=6),
        out=tmp_path / "soft",
        test_seed=1,
    )
    with pytest.raises(InvalidInputError, match="release.target: expected class"):
        row_scores(other, x[:, :3], y, background)

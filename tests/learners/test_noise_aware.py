from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import balanced_accuracy_score

from privmix import InvalidInputError
from privmix.learners import NoiseAwareClassifier


def test_learns_separable_classes(design, make_blobs):
    x, y = make_blobs()
    model = NoiseAwareClassifier().fit(design(x, y, range(4)))
    assert model.score(x, y) > 0.9
    proba = model.predict_proba(x)
    np.testing.assert_allclose(proba.sum(1), 1)
    assert (proba.argmax(1) == model.predict(x)).all()
    assert proba.max(1).mean() > 0.4


def test_string_classes_keep_their_order(design, make_blobs):
    x, y = make_blobs()
    names = np.array(["pay", "a b", "é", "card"])
    by_name = NoiseAwareClassifier().fit(design(x, y, names.tolist()))
    by_index = NoiseAwareClassifier().fit(design(x, y, range(4)))
    assert (by_name.classes_ == names).all()
    assert (by_name.predict(x) == names[by_index.predict(x)]).all()
    assert by_name.score(x, names[y]) == by_index.score(x, y)


@pytest.mark.parametrize("scale", [1e-3, 1e4])
def test_scale_equivariance(design, make_blobs, scale):
    x, y = make_blobs()
    model = NoiseAwareClassifier().fit(design(x, y, range(4), clip_norm=1.0))
    scaled = NoiseAwareClassifier().fit(design(scale * x, y, range(4), clip_norm=scale))
    # Rows are rounded to float32, so scores agree to single precision.
    np.testing.assert_allclose(
        scaled.predict_proba(scale * x), model.predict_proba(x), rtol=1e-2, atol=1e-4
    )


def test_predictions_do_not_depend_on_the_blocks(design, make_blobs):
    x, y = make_blobs()
    release = design(x, y, range(4))
    first = NoiseAwareClassifier().fit(release).decision_function(x)
    for table in (release, *release.tables):
        table.block_rows = 3
    second = NoiseAwareClassifier().fit(release).decision_function(x)
    np.testing.assert_allclose(first, second, atol=1e-9)


def test_records_are_clipped_before_scoring(design, make_blobs):
    x, y = make_blobs()
    model = NoiseAwareClassifier().fit(design(x, y, range(4)))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    np.testing.assert_allclose(model.decision_function(50 * unit), model.decision_function(unit))
    np.testing.assert_allclose(
        model.decision_function(unit * 1e200), model.decision_function(unit), rtol=1e-9
    )


@pytest.mark.parametrize("name", ["poisson", "signed", "uniform"])
def test_weights_become_consistent_where_the_uncorrected_ones_stay_biased(
    designs, make_blobs, name
):
    """Mean angle to the population's discriminant; features of very unequal variance."""
    x, _ = make_blobs(num_features=6, num_records=600, spread=0.5)
    x *= np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.5])
    y = np.arange(600) % 3
    x += 0.3 * np.eye(3, 6, 1)[y]
    x /= np.linalg.norm(x, axis=1).max()
    means = np.array([x[y == k].mean(0) for k in range(3)])
    within = (x - means[y]).T @ (x - means[y]) / len(x)
    offsets = means - x.mean(0)

    def discriminant(noise):
        return np.linalg.solve(within + noise * np.eye(6), offsets.T).T

    def angle(weights):
        truth = discriminant(0)
        cosines = (weights * truth).sum(1)
        cosines /= np.linalg.norm(weights, axis=1) * np.linalg.norm(truth, axis=1)
        return np.arccos(np.minimum(cosines, 1)).mean()

    def error(rows):
        release = designs[name](x, y, range(3), rows=rows, mix_size=10.0, noise=1.0)
        return angle(NoiseAwareClassifier().fit(release).coef_)

    few, many = error(1_000), error(50_000)
    assert many < 0.6 * few
    assert many < 0.6 * angle(discriminant(1.0 / 10.0))


def test_class_means_become_consistent(designs, make_blobs):
    x, y = make_blobs(num_records=800)
    x /= 2 * np.linalg.norm(x, axis=1).max()
    model = NoiseAwareClassifier().fit(designs["stratified"](x, y, range(4), rows=300, noise=0.01))
    means = np.array([x[y == k].mean(0) for k in range(4)])
    sizes = np.bincount(y) / len(y) * 4
    lengths = sizes * np.linalg.norm(means, axis=1)
    center = (sizes[:, None] * means).mean(0)
    offsets = sizes[:, None] * means - np.outer(lengths / lengths.mean(), center)
    truth = offsets / np.linalg.norm(offsets, axis=1, keepdims=True)
    found = model.coef_ / np.linalg.norm(model.coef_, axis=1, keepdims=True)
    assert (found * truth).sum(1).min() > 0.999


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ({"num_classes": 2}, {}),
        ({"num_features": 300, "num_records": 100}, {"rows": 60}),
        ({"num_classes": 2, "num_features": 1}, {}),
        ({"num_classes": 40}, {}),
        ({}, {"rows": 1}),
        ({}, {"rows": 2}),
        ({}, {"rows": 6}),
        ({}, {"noise": 1e-6}),
        ({}, {"noise": 1e6}),
    ],
)
def test_degenerate_releases(design, make_blobs, shape, options):
    x, y = make_blobs(**shape)
    classes = range(shape.get("num_classes", 4))
    release = design(x, y, classes, **options)
    if release.design == "transposed" and options.get("rows") == 1:  # every record is in it
        with pytest.raises(InvalidInputError, match="sampling_prob"):
            NoiseAwareClassifier().fit(release)
        return
    model = NoiseAwareClassifier().fit(release)
    assert np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()
    assert np.isfinite(model.predict_proba(x)).all()
    assert set(model.predict(x)) <= set(classes)


def test_two_classes_score_as_in_scikit_learn(design, make_blobs):
    x, y = make_blobs(num_classes=2)
    model = NoiseAwareClassifier().fit(design(x, y, (0, 1)))
    scores = model.decision_function(x)
    assert scores.shape == (len(x),)
    assert ((scores > 0) == (model.predict(x) == 1)).all()
    assert model.score(x, y) > 0.9


def test_opposite_classes_of_unequal_size(design):
    """The overall mean then points along the only useful direction."""
    rng = np.random.default_rng(0)
    y = (rng.random(1000) < 0.7).astype(int)
    x = np.outer(2 * y - 1, [0.8, 0, 0, 0]) + 0.1 * rng.standard_normal((1000, 4))
    model = NoiseAwareClassifier().fit(design(x, y, (0, 1)))
    assert model.score(x, y) > 0.99


def test_a_missing_class_rarely_wins(design, make_blobs):
    x, y = make_blobs(num_features=60)
    model = NoiseAwareClassifier().fit(design(x, y, range(5)))
    assert (model.predict(x) == 4).mean() < 0.1
    assert model.score(x, y) > 0.8


def test_rows_of_zeros(design, make_blobs):
    x, y = make_blobs()
    release = design(x, y, range(4))
    for table in (release, *release.tables):
        table.features[:] = 0
        table.label_values = np.where(table.label_values.ndim == 2, 0, table.label_values)
    model = NoiseAwareClassifier().fit(release)
    assert (model.predict(x) == 0).all()
    np.testing.assert_allclose(model.predict_proba(x), 0.25)


def test_class_sums(designs, make_blobs):
    x, y = make_blobs()
    model = NoiseAwareClassifier().fit(designs["stratified"](x, y, range(4), rows=1, prob=1.0))
    assert model.score(x, y) > 0.9


def test_what_cannot_be_learnt_is_refused(designs, make_blobs):
    x, y = make_blobs(num_records=50)
    whole = designs["poisson"](x, y, range(4), mix_size=50.0)
    with pytest.raises(InvalidInputError, match=r"sampling_prob.*below 1"):
        NoiseAwareClassifier().fit(whole)
    whole.design = "unknown"
    with pytest.raises(InvalidInputError, match=r"design.*poisson, signed, stratified.*unknown"):
        NoiseAwareClassifier().fit(whole)


def test_signs_make_rows_of_all_records_useful(designs, make_blobs):
    x, y = make_blobs(num_records=300)
    release = designs["signed"](x, y, range(4), mix_size=300.0, rows=4000)
    assert NoiseAwareClassifier().fit(release).score(x, y) > 0.9


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x: np.where(np.arange(12) == 3, np.nan, x), r"features\[0, 3\].*finite.*nan"),
        (lambda x: np.vstack([x[:7], np.full(12, np.inf)]), r"features\[7, 0\].*finite.*inf"),
        (lambda x: x[:, :5], r"shape \(records, 12\).*\(1200, 5\)"),
        (lambda x: x[0], r"shape \(records, 12\).*\(12,\)"),
        (lambda x: x.astype(str), "real numbers"),
        (lambda x: x.astype(complex), "real numbers"),
        (lambda x: [[1.0], [1.0, 2.0]], "several lengths"),
    ],
)
def test_bad_features_are_named(designs, make_blobs, spoil, message):
    x, y = make_blobs()
    model = NoiseAwareClassifier().fit(designs["stratified"](x, y, range(4)))
    with pytest.raises(InvalidInputError, match=message):
        model.predict(spoil(x))


def test_is_a_scikit_learn_estimator(make_blobs):
    model = clone(NoiseAwareClassifier())
    with pytest.raises(Exception, match="not fitted"):
        model.predict(make_blobs()[0])


def test_a_class_prior_moves_the_decision_and_becomes_logits(design, make_blobs):
    x, y = make_blobs(spread=0.9)
    release = design(x, y, range(4))
    plain = NoiseAwareClassifier(class_prior="uniform").fit(release)
    counts = [70, 10, 10, 10]
    model = clone(NoiseAwareClassifier(class_prior=counts)).fit(release)
    np.testing.assert_allclose(model.class_prior_, np.array(counts) / 100)
    assert model.logit_scale_ == 1
    logits = plain.decision_function(x) - np.log(1 / 4) + np.log(model.class_prior_)
    np.testing.assert_allclose(model.decision_function(x), logits)
    assert (model.predict(x) == 0).mean() >= (plain.predict(x) == 0).mean()
    never = NoiseAwareClassifier(class_prior=[1, 1, 0, 1]).fit(release)
    assert (never.predict(x) != 2).all() and np.isfinite(never.intercept_).all()


def test_balanced_weights_are_a_uniform_prior(design, make_blobs):
    x, y = make_blobs(spread=0.9)
    release = design(x, y, range(4))
    balanced = clone(NoiseAwareClassifier(class_weight="balanced")).fit(release)
    uniform = NoiseAwareClassifier(class_prior="uniform").fit(release)
    np.testing.assert_array_equal(balanced.predict_proba(x), uniform.predict_proba(x))
    both = NoiseAwareClassifier(class_prior="uniform", class_weight="balanced")
    with pytest.raises(InvalidInputError, match=r"class_weight.*class_prior"):
        both.fit(release)
    with pytest.raises(InvalidInputError, match=r"class_weight.*balanced"):
        NoiseAwareClassifier(class_weight="heavy").fit(release)


def test_weights_of_classes_multiply_their_prior(design, make_blobs):
    x, y = make_blobs(spread=0.9)
    names = np.array(["a", "b", "c", "d"])
    release = design(x, y, names.tolist())
    plain = NoiseAwareClassifier().fit(release).predict_proba(x)
    learner = clone(NoiseAwareClassifier(class_weight={"a": 3.0, "d": 0.5}))
    due = plain * [3.0, 1.0, 1.0, 0.5]
    due /= due.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(learner.fit(release).predict_proba(x), due, rtol=1e-6)
    learner.set_params(class_prior=[3, 1, 2, 4], class_weight={"a": 2})
    np.testing.assert_allclose(learner.fit(release).class_prior_, np.array([6, 1, 2, 4]) / 13)
    for wrong in ({"e": 1.0}, {0: 1.0}, {"a": 0.0}, {"a": np.nan}, {"a": "2"}, [1, 1, 1, 1]):
        with pytest.raises(InvalidInputError, match="^class_weight"):
            NoiseAwareClassifier(class_weight=wrong).fit(release)


def counted(release, y, num_classes, error=5.0):
    """The release with counts that preprocessing has paid for."""
    counts = np.bincount(y, minlength=num_classes) / release.num_records
    release.preprocessor = SimpleNamespace(
        counted=(counts, error / release.num_records),
        num_inputs=12,
        steps=(),
        transform=lambda x: x,
    )
    return release


@pytest.mark.parametrize("name", ["signed", "hybrid", "stratified", "poisson"])
@pytest.mark.parametrize("share", [0.05, 0.01, 0.5])
def test_two_separable_classes_of_any_share_are_told_apart(designs, name, share):
    """A cut at the mean record would go through the larger class."""
    rng = np.random.default_rng(0)
    y = (np.arange(4000) < 4000 * share).astype(int)
    x = np.array([[0.7, 0.1], [0.1, 0.6]])[y] @ np.eye(2, 12)
    x += 0.08 * rng.standard_normal(x.shape)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    options = {"rows": 1, "prob": 1.0} if name == "stratified" else {"rows": 20_000, "noise": 0.3}
    release = counted(designs[name](x, y, range(2), **options), y, 2)
    model = NoiseAwareClassifier().fit(release)
    assert model.score(x, y) > 0.99
    assert abs(model.predict_proba(x)[:, 1].mean() - share) < 0.02


@pytest.mark.parametrize("name", ["signed", "hybrid"])
def test_probabilities_of_a_rare_class_mean_what_they_say(designs, name):
    """8 % positives that overlap the others; without sizes the mean probability is near a half."""
    rng = np.random.default_rng(1)
    y = (np.arange(6000) % 25 < 2).astype(int)
    x = 0.5 * rng.standard_normal((6000, 12)) / np.sqrt(12)
    x[:, 0] += 0.4 * y
    options = {"rows": 20_000, "noise": 0.3, "mix_size": 200.0}
    release = counted(designs[name](x, y, range(2), **options), y, 2)
    model = NoiseAwareClassifier().fit(release)
    assert abs(model.predict_proba(x)[:, 1].mean() - 0.08) < 0.02
    assert model.score(x, y) > 0.93
    balanced = NoiseAwareClassifier(class_weight="balanced").fit(release)
    assert balanced_accuracy_score(y, balanced.predict(x)) > 0.85


def test_more_records_than_planned_change_no_decision(designs):
    """Sums of 3,000 records, planned as 1,500: counts tell."""
    rng = np.random.default_rng(1)
    y = (np.arange(3000) % 10 < 1).astype(int)
    x = 0.5 * rng.standard_normal((3000, 12)) / np.sqrt(12)
    x[:, 0] += 0.4 * y
    found = []
    for factor in (1, 2):
        release = designs["hybrid"](x, y, range(2), rows=20_000, noise=0.01, mix_size=200.0)
        for table in release.tables:  # the same sums over a smaller planned size
            table.features = factor * table.features
            table.feature_noise_stddev *= factor
            table.mix_size /= factor
        counted(release, y, 2)
        counts, error = release.preprocessor.counted
        release.preprocessor.counted = (factor * counts, factor * error)
        found.append(NoiseAwareClassifier().fit(release).decision_function(x))
    np.testing.assert_allclose(found[0], found[1], atol=0.02 * np.abs(found[0]).max())


def test_stated_shares_do_without_counts(designs, make_blobs):
    x, y = make_blobs(num_classes=2)
    release = designs["hybrid"](x, y, range(2))
    release.class_balance = (0.9, 0.1)
    model = NoiseAwareClassifier().fit(release)
    np.testing.assert_allclose(model.class_prior_, [0.9, 0.1])


def test_charged_counts_are_a_prior(designs, make_blobs):
    release = designs["stratified"](*make_blobs(), range(4))
    with pytest.raises(InvalidInputError, match=r"class_prior.*preprocessing.*none"):
        NoiseAwareClassifier(class_prior="counts").fit(release)
    steps = (SimpleNamespace(step="class_counts"),)
    release.preprocessor = SimpleNamespace(
        counted=(np.array([300.0, 500.0, 250.0, -5.0]), 1.0), num_inputs=12, steps=steps
    )
    model = NoiseAwareClassifier(class_prior="counts").fit(release)
    np.testing.assert_allclose(model.class_prior_, np.array([300, 500, 250, 1]) / 1051, rtol=0.02)


@pytest.mark.parametrize(
    "prior", [[1, 1, 1], [1, 1, 1, -1], [0, 0, 0, 0], [1, 1, 1, np.nan], "equal", ["a"] * 4]
)
def test_bad_priors(designs, make_blobs, prior):
    release = designs["stratified"](*make_blobs(), range(4))
    with pytest.raises(InvalidInputError, match="class_prior"):
        NoiseAwareClassifier(class_prior=prior).fit(release)


def test_a_rare_class_is_found(designs):
    """1 % of the records; without a prior its recall is nearly that of the others."""
    rng = np.random.default_rng(0)
    y = np.where(np.arange(4000) % 100 == 0, 3, np.arange(4000) % 3)
    means = 2 * np.eye(4, 8)
    x = means[y] + 0.3 * rng.standard_normal((4000, 8))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    for name in ("signed", "hybrid"):
        release = designs[name](x, y, range(4), rows=6000, mix_size=400.0)
        assert (NoiseAwareClassifier().fit(release).predict(x)[y == 3] == 3).mean() > 0.9


@pytest.mark.parametrize("num_classes", [2, 1000])
def test_few_and_many_classes(designs, num_classes):
    rng = np.random.default_rng(0)
    means = rng.standard_normal((num_classes, 60))
    y = np.arange(4000) % num_classes
    x = means[y] + 0.3 * rng.standard_normal((4000, 60))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    release = designs["hybrid"](x, y, range(num_classes), rows=3000)
    model = NoiseAwareClassifier().fit(release)
    assert model.score(x, y) > 0.9
    assert np.isfinite(model.predict_proba(x[:50])).all()

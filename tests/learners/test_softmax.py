import numpy as np
import pytest
from scipy.special import log_softmax

from privmix import InvalidInputError
from privmix.learners import KLSoftmaxClassifier
from privmix.learners.softmax import Adam, kl_gradient, training_rows


def test_gradient_equals_finite_differences():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((6, 3)), rng.standard_normal((4, 4))
    p = np.maximum(rng.standard_normal((6, 4)), 0)

    def loss(weights):
        log_q = log_softmax(x @ weights[:, :-1].T + weights[:, -1], axis=1)
        terms = np.where(p > 0, p * (np.log(np.where(p > 0, p, 1)) - log_q), 0)
        return (terms - p + np.exp(log_q)).sum(1).mean()

    value, gradient = kl_gradient(w, x, p)
    assert value == pytest.approx(loss(w))
    for index in np.ndindex(w.shape):
        step = np.zeros_like(w)
        step[index] = 1e-6
        assert gradient[index] == pytest.approx((loss(w + step) - loss(w - step)) / 2e-6, abs=1e-6)


def test_adam_moves_by_the_learning_rate_at_first():
    model = Adam(np.zeros(3, dtype=np.float32))
    model.update(np.array([5.0, -0.01, 0.0], dtype=np.float32), 0.1)
    np.testing.assert_allclose(model.weights, [-0.1, 0.1, 0], rtol=1e-4)


def test_targets_are_clipped_or_one_hot(designs, make_blobs):
    release = designs["poisson"](*make_blobs(), range(4))
    features, targets = training_rows(release)
    assert (features == release.features).all()
    assert (targets == np.maximum(release.label_values, 0)).all() and (targets == 0).any()
    release = designs["stratified"](*make_blobs(), range(4))
    assert (training_rows(release)[1].argmax(1) == release.label_values).all()


@pytest.mark.parametrize("name", ["poisson", "stratified", "uniform", "transposed"])
def test_learns_and_repeats(designs, make_blobs, name):
    x, y = make_blobs()
    release = designs[name](x, y, range(4), noise=0.05)
    seen = []
    options = {"epochs": 30, "batch_size": 16, "learning_rate": 0.05}
    model = KLSoftmaxClassifier(**options, progress=lambda *a: seen.append(a)).fit(release)
    assert model.score(x, y) > 0.8
    assert [s[:2] for s in seen] == [(i + 1, 30) for i in range(30)]
    assert seen[-1][2] < seen[0][2]
    again = KLSoftmaxClassifier(**options).fit(release)
    assert (again.coef_ == model.coef_).all()
    other = KLSoftmaxClassifier(**options, seed=1).fit(release)
    assert (other.coef_ != model.coef_).any()


def test_defaults_are_the_papers_schedule():
    assert KLSoftmaxClassifier().get_params() == {
        "epochs": 200,
        "batch_size": 256,
        "learning_rate": 1e-3,
        "decay_epochs": (80, 120, 160),
        "seed": 0,
        "progress": None,
    }


@pytest.mark.parametrize(
    "options", [{"epochs": 0}, {"batch_size": 0}, {"learning_rate": float("nan")}, {"seed": -1}]
)
def test_bad_parameters(designs, make_blobs, options):
    release = designs["poisson"](*make_blobs(), range(4))
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        KLSoftmaxClassifier(**options).fit(release)


@pytest.mark.parametrize("name", ["signed", "hybrid"])
def test_rows_that_are_no_distributions_are_refused(designs, make_blobs, name):
    release = designs[name](*make_blobs(), range(4))
    with pytest.raises(InvalidInputError, match=rf"release.design.*poisson.*'{name}'"):
        KLSoftmaxClassifier().fit(release)

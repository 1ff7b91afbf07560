import itertools
import sys

import numpy as np
import pytest

from privmix import InvalidInputError
from privmix.learners import TorchNetworkClassifier, dpmix_network, load_model, save_model
from privmix.learners.network import _correlation, _cross_entropy, _kl_loss, denoised
from privmix.learners.softmax import kl_gradient, training_rows

torch = pytest.importorskip("torch")

SHAPE = (2, 4, 6)  # 48 pixels


@pytest.fixture
def pixels():
    """Blobs of smooth images."""
    rng = np.random.default_rng(0)
    means = np.kron(rng.standard_normal((4, 2, 2, 3)), np.ones((1, 1, 2, 2))).reshape(4, 48)
    y = rng.integers(4, size=800)
    x = means[y] + 0.3 * rng.standard_normal((800, 48))
    return x / np.linalg.norm(x, axis=1).max(), y


def test_the_papers_count_is_that_of_one_channel():
    def size(channels):
        return sum(p.numel() for p in dpmix_network((channels, 32, 32), 10).parameters())

    assert size(1) == 357_690  # DPFMix, appendix E.2
    assert size(3) == 359_290


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors are slower on several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", ["poisson", "stratified"])
def test_learns_and_repeats(designs, pixels, name):
    x, y = pixels
    mixed = {"rows": 400, "mix_size": 2.0, "noise": 0.05}
    kept = mixed if name == "poisson" else {"rows": 30, "noise": 0.5}
    release = designs[name](x, y, range(4), **kept)
    options = {"image_shape": SHAPE, "epochs": 12, "batch_size": 16, "learning_rate": 2e-3}
    seen = []
    state = torch.random.get_rng_state()
    model = TorchNetworkClassifier(**options, progress=lambda *a: seen.append(a)).fit(release)
    assert (torch.random.get_rng_state() == state).all()
    assert model.score(x, y) > 0.8
    assert len(seen) == 12 and seen[-1][2] < seen[0][2]
    np.testing.assert_allclose(model.predict_proba(x).sum(1), 1, rtol=1e-6)
    again = TorchNetworkClassifier(**options).fit(release)
    assert (again.decision_function(x) == model.decision_function(x)).all()
    other = TorchNetworkClassifier(**options, seed=1).fit(release)
    assert (other.decision_function(x) != model.decision_function(x)).any()


def test_any_module_is_taken_and_copied(designs, pixels):
    x, y = pixels
    release = designs["stratified"](x, y, ["a", "b", "c", "d"], rows=20)
    module = torch.nn.Linear(48, 4)
    before = module.weight.detach().clone()
    model = TorchNetworkClassifier(module, epochs=3).fit(release)
    assert (module.weight == before).all() and (model.module_.weight != before).any()
    assert set(model.predict(x)) <= set("abcd")
    for wrong in (torch.nn.Linear(47, 4), torch.nn.Linear(48, 5)):
        with pytest.raises(InvalidInputError, match="module: expected one that"):
            TorchNetworkClassifier(wrong, epochs=1).fit(release)


@pytest.mark.parametrize("loss", ["kl", "cross-entropy"])
def test_rows_far_from_zero_are_learnt_once_standardized(designs, pixels, loss):
    x, y = pixels
    x = 0.05 * x + 0.1  # what tells records apart is small beside their mean
    release = designs["uniform"](x, y, range(4), rows=400, mix_size=2.0, noise=0.005)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 4))
    options = {"epochs": 8, "batch_size": 16, "learning_rate": 2e-3, "loss": loss}
    plain = TorchNetworkClassifier(module, **options).fit(release)
    found = TorchNetworkClassifier(module, **options, standardize=True).fit(release)
    assert found.score(x, y) > max(0.7, plain.score(x, y) + 0.2)
    seen = (release.features - found.center_) * found.scale_
    assert seen.mean() == pytest.approx(0, abs=1e-5) and seen.std() == pytest.approx(1, rel=1e-5)
    assert not plain.center_.any() and plain.scale_ == 1


def test_cross_entropy_takes_labels_as_they_are_and_the_divergence_clips_them(designs, pixels):
    release = designs["poisson"](*pixels, range(4), rows=50, mix_size=2.0, noise=0.5)
    labels = np.concatenate([found for _, found in release.iter_blocks()])
    assert (labels < 0).any()
    assert (training_rows(release)[1] == np.maximum(labels, 0)).all()
    assert (training_rows(release, clip=False)[1] == labels).all()
    logits = torch.tensor([[0.3, -0.2, 0.0, 0.1]], requires_grad=True)
    target = torch.tensor([[0.7, -0.4, 0.2, 0.5]])
    _cross_entropy(torch, logits, target).backward()
    expected = target.sum() * torch.softmax(logits.detach(), 1) - target
    np.testing.assert_allclose(logits.grad, expected, atol=1e-6)


def test_the_step_size_falls_as_told(designs, pixels):
    release = designs["poisson"](*pixels, range(4), rows=40)
    module = torch.nn.Linear(48, 4)

    def distances(**options):
        ends = []
        for epochs in (1, 2, 3):
            model = TorchNetworkClassifier(module, epochs=epochs, batch_size=40, **options)
            ends.append(model.fit(release).module_.weight.detach().clone())
        return [float((b - a).norm()) for a, b in itertools.pairwise(ends)]

    # The gradient hardly changes over three small steps, and Adam's steps are of the step size.
    constant = distances(learning_rate=1e-4, decay_epochs=())
    halved = distances(learning_rate=1e-4, decay_epochs=(1, 2), decay_factor=0.5)
    assert constant[1] / constant[0] == pytest.approx(1, rel=0.05)
    assert halved[1] / halved[0] == pytest.approx(0.5, rel=0.05)
    assert halved[0] / constant[0] == pytest.approx(0.5, rel=0.05)


def test_the_epoch_that_does_best_on_rows_set_aside_is_kept(designs, pixels):
    x, y = pixels
    release = designs["poisson"](x, y, range(4), rows=60, mix_size=2.0, noise=0.3)
    options = {"batch_size": 8, "learning_rate": 0.03, "validation_share": 0.25}
    module = torch.nn.Linear(48, 4)
    model = TorchNetworkClassifier(module, epochs=12, **options).fit(release)
    scores = model.validation_scores_
    best = int(np.argmax(scores))
    assert len(scores) == 12 and best < 11  # so noisy, so few rows: later epochs overfit
    stopped = TorchNetworkClassifier(module, epochs=best + 1, **options).fit(release)
    assert (stopped.module_.weight == model.module_.weight).all()
    without = TorchNetworkClassifier(module, epochs=2).fit(release)
    assert without.validation_scores_ == []


def test_the_epoch_of_best_accuracy_on_public_records_is_kept(designs, pixels):
    x, y = pixels
    names = np.array(["a", "b", "c", "d"])
    release = designs["poisson"](x, y, names, rows=60, mix_size=2.0, noise=0.3)
    torch.manual_seed(0)
    module = torch.nn.Linear(48, 4)
    for standardize in (False, True):
        model = TorchNetworkClassifier(
            module, epochs=12, batch_size=8, learning_rate=0.03, standardize=standardize
        )
        model.fit(release, public_validation=(x[:200], names[y[:200]]))
        assert model.score(x[:200], names[y[:200]]) == max(model.validation_scores_)
        assert min(model.validation_scores_) < max(model.validation_scores_)
    records, classes = x[:5], names[y[:5]]
    for wrong, words in (
        ((records, classes[:4]), "one for each record"),
        ((records, y[:5]), "classes of the release"),
        (records, "a pair of features and classes"),
        ((records, classes, classes), "a pair of features and classes"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            model.fit(release, public_validation=wrong)
    with pytest.raises(InvalidInputError, match="0 beside public_validation"):
        model.set_params(validation_share=0.5).fit(release, public_validation=(records, classes))
    with pytest.raises(InvalidInputError, match="at least one of 60 rows"):
        model.set_params(validation_share=0.001).fit(release)


def test_correlation_is_blind_to_scale_and_to_what_all_classes_share():
    rng = np.random.default_rng(0)
    targets = rng.standard_normal((50, 4)).astype(np.float32)
    shifted = 3 * targets + rng.standard_normal((50, 1)) + rng.standard_normal(4)
    assert _correlation(shifted.astype(np.float32), targets) == pytest.approx(1, abs=1e-5)
    other = rng.standard_normal((50, 4)).astype(np.float32)
    assert abs(_correlation(other, targets)) < 0.4
    assert _correlation(np.ones((50, 4), np.float32), targets) == 0


def test_loss_is_the_softmax_learners():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 3)).astype(np.float32)
    w = rng.standard_normal((4, 4)).astype(np.float32)
    p = np.maximum(rng.standard_normal((6, 4)), 0).astype(np.float32)
    logits = torch.from_numpy(x @ w[:, :-1].T + w[:, -1]).requires_grad_()
    loss = _kl_loss(torch, logits, torch.from_numpy(p))
    loss.backward()
    value, gradient = kl_gradient(w, x, p)
    assert float(loss.detach()) == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(logits.grad.numpy().T @ x, gradient[:, :-1], atol=1e-6)


def test_posterior_means_come_closer_to_the_noiseless_rows(designs, pixels):
    x, y = pixels
    release = designs["poisson"](x, y, range(4), rows=2000, mix_size=4.0, noise=0.5)
    silent = designs["poisson"](x, y, range(4), rows=2000, mix_size=4.0, noise=1e-9)

    def error(rows):
        return np.mean((rows - silent.features) ** 2)

    plain = error(denoised(release.features, release, "none", SHAPE))
    assert plain == pytest.approx(release.feature_noise_stddev**2, rel=0.05)
    assert error(denoised(release.features, release, "posterior", SHAPE)) < 0.5 * plain
    assert error(denoised(release.features, release, "gaussian", SHAPE)) < plain


def test_round_trip(designs, pixels, tmp_path):
    x, y = pixels
    release = designs["stratified"](x, y, range(4), rows=5)
    for standardize in (False, True):
        options = {"image_shape": SHAPE, "epochs": 1, "standardize": standardize}
        model = TorchNetworkClassifier(**options).fit(release)
        save_model(model, tmp_path / "model")
        loaded = load_model(tmp_path / "model")
        assert (loaded.decision_function(x) == model.decision_function(x)).all()
    center, scale = model.center_, model.scale_
    for wrong in (
        {"center_": np.full(48, np.nan, np.float32)},
        {"center_": center.astype(np.float64)},
        {"scale_": np.float32(0.0)},
        {"scale_": np.float32(-1.0)},
    ):
        vars(model).update({"center_": center, "scale_": scale, **wrong})
        save_model(model, tmp_path / "model")
        with pytest.raises(InvalidInputError, match="center of 48 finite float32 numbers"):
            load_model(tmp_path / "model")
    with pytest.raises(InvalidInputError, match="learning_rate"):
        TorchNetworkClassifier(image_shape=SHAPE, epochs=1, learning_rate=1e30).fit(release)
    own = TorchNetworkClassifier(torch.nn.Linear(48, 4), epochs=1).fit(release)
    with pytest.raises(InvalidInputError, match="default module"):
        save_model(own, tmp_path / "own")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_without_torch_the_error_names_the_extra(designs, pixels, monkeypatch):
    release = designs["stratified"](*pixels, range(4))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InvalidInputError, match=r"pip install 'privmix\[torch\]'"):
        TorchNetworkClassifier(image_shape=SHAPE).fit(release)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_shape": None}, "image_shape.*without a module"),
        ({"image_shape": (3, 4, 5)}, "image_shape.*48"),
        ({"image_shape": (48, 1, 1)}, "image_shape.*at least 4"),
        ({"epochs": 0}, "epochs"),
        ({"denoise": "magic"}, "denoise.*posterior"),
        ({"loss": "squared"}, "loss.*cross-entropy"),
        ({"decay_factor": 0.0}, "decay_factor"),
        ({"validation_share": 1.0}, "validation_share"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"decay_epochs": "ab"}, "decay_epochs: expected a sequence"),
        ({"decay_epochs": 80}, "decay_epochs: expected a sequence"),
        ({"decay_epochs": (80, 1.5)}, "decay_epochs: expected an integer"),
        ({"device": "gpu"}, "device: expected a device"),
        ({"device": "meta"}, "device: expected a device"),
        ({"device": 0}, "device: expected a device"),
        ({"module": "dpmix"}, "module: expected a torch.nn.Module"),
        ({"standardize": "no"}, "standardize: expected True or False"),
        ({"progress": 1}, "progress: expected a function"),
    ],
)
def test_bad_parameters(designs, pixels, options, message, monkeypatch):
    monkeypatch.setattr(TorchNetworkClassifier, "_train", None)  # nothing gets so far
    release = designs["stratified"](*pixels, range(4))
    with pytest.raises(InvalidInputError, match=message):
        TorchNetworkClassifier(**{"image_shape": SHAPE} | options).fit(release)


@pytest.mark.parametrize("name", ["signed", "hybrid"])
def test_rows_that_are_no_distributions_are_refused(designs, pixels, name):
    with pytest.raises(InvalidInputError, match="release.design"):
        TorchNetworkClassifier(image_shape=SHAPE).fit(designs[name](*pixels, range(4)))

import sys

import numpy as np
import pytest

from privmix import InvalidInputError
from privmix.learners import TorchNetworkClassifier, dpmix_network, load_model, save_model
from privmix.learners.network import _kl_loss, denoised
from privmix.learners.softmax import kl_gradient

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
    model = TorchNetworkClassifier(image_shape=SHAPE, epochs=1).fit(release)
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert (loaded.decision_function(x) == model.decision_function(x)).all()
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
        ({"learning_rate": float("nan")}, "learning_rate"),
    ],
)
def test_bad_parameters(designs, pixels, options, message):
    release = designs["stratified"](*pixels, range(4))
    with pytest.raises(InvalidInputError, match=message):
        TorchNetworkClassifier(**{"image_shape": SHAPE} | options).fit(release)


@pytest.mark.parametrize("name", ["signed", "hybrid"])
def test_rows_that_are_no_distributions_are_refused(designs, pixels, name):
    with pytest.raises(InvalidInputError, match="release.design"):
        TorchNetworkClassifier(image_shape=SHAPE).fit(designs[name](*pixels, range(4)))

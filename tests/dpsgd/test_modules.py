"""Modules that would carry records into one another, or out, are refused before anything is spent."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from safetensors.numpy import save

from privmix import InvalidInputError
from privmix.dpsgd import AugmentationPlan, LinearHead, Network, fit, trainer, verify_model
from privmix.dpsgd.private_views import PrivateViews
from privmix.dpsgd.training_records import check_records
from privmix.rng import MasterKey
from privmix.running.ledger import Ledger
from training_cases import Pooled, make_images, make_network, make_plan

IMAGES, LABELS = make_images(60)
SIZE = 3 * 8 * 8


class Running(torch.nn.Module):
    """Keeps a running mean of what it sees, in evaluation mode too, as a head or as a backbone."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(SIZE))
        self.linear = torch.nn.Linear(SIZE, width)

    def forward(self, inputs):
        inputs = inputs.flatten(1)
        self.mean.mul_(0.9).add_(0.1 * inputs.detach().mean(0))
        return self.linear(inputs - self.mean)


class Remembering(Running):
    """Lets the last input shine through, without a buffer."""

    last = 0.0

    def forward(self, inputs):
        inputs = inputs.flatten(1)
        scores = self.linear(inputs + self.last)
        self.last = inputs.detach().mean()
        return scores


class Dropping(Running):
    """Draws at random in evaluation mode."""

    def forward(self, inputs):
        return self.linear(torch.nn.functional.dropout(inputs.flatten(1), 0.5, training=True))


class Placed(Running):
    """Treats the inputs of a batch by their place in it."""

    def forward(self, inputs):
        places = torch.arange(len(inputs), device=inputs.device)
        return self.linear(inputs.flatten(1)) * (1 + places)[:, None]


class Partial(Running):
    """Does not use all of its parameters."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.idle = torch.nn.Parameter(torch.ones(()))

    def forward(self, inputs):
        return self.linear(inputs.flatten(1))


class Detached(Running):
    """Has scores without gradients."""

    def forward(self, inputs):
        return self.linear(inputs.flatten(1)).detach()


class Largest(Running):
    """Divides by the largest entry seen, which is 1 for whatever lies between 0 and 1."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.register_buffer("top", torch.ones(()))

    def forward(self, inputs):
        self.top.copy_(torch.maximum(self.top, inputs.detach().abs().max()))
        return self.linear(inputs.flatten(1) / self.top)


class LargestUnseen(Largest):
    """The same, kept where no buffer shows it."""

    largest = 1.0

    def forward(self, inputs):
        self.largest = max(self.largest, float(inputs.detach().abs().max()))
        return self.linear(inputs.flatten(1) / self.largest)


class Tripped(Running):
    """Keeps something of a white image alone, which no trial shows it: in a buffer, or a new one."""

    def forward(self, inputs):
        inputs = inputs.flatten(1)
        scores = self.linear(inputs + self.mean)
        if bool((inputs == 1).all(dim=1).any()):
            self.mean.add_(3.0)
            self.mean = self.mean + 1.0
        return scores


class Halved(Partial):
    """Computes in half precision what is given in single precision."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.half()

    def forward(self, inputs):
        return super().forward(inputs.half())


class Reusing(Remembering):
    """Gives its results in one and the same tensor, which each call overwrites."""

    results = None

    def forward(self, inputs):
        scores = super().forward(inputs)
        if self.results is None or self.results.shape != scores.shape:
            self.results = torch.empty_like(scores)
        return self.results.copy_(scores)


class Scaled(Running):
    """Divides a batch by its largest entry, or by 1."""

    def forward(self, inputs):
        inputs = inputs.flatten(1)
        return self.linear(inputs / inputs.detach().abs().max().clamp(min=1.0))


class Raising(Running):
    """Is for records of another shape."""

    def forward(self, inputs):
        raise TypeError("wrong number of wheels")


def tracking() -> torch.nn.Module:
    """Gathers statistics in training mode, which per-sample gradients ask for."""
    return torch.nn.Sequential(
        torch.nn.InstanceNorm2d(3, track_running_stats=True),
        torch.nn.Flatten(),
        torch.nn.Linear(SIZE, 3),
    )


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "ledger.db"
    Ledger(path).open_dataset("people", epsilon_limit=1000.0, delta=1e-5)
    return path


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize(
    "make, place",
    [
        (lambda: Network(Running(3)), "module.*buffers change"),
        (lambda: LinearHead(Running(5)), "backbone.*buffers change"),
        (lambda: Network(tracking(), records_per_call=2), "module.*buffers change"),
        (lambda: Network(Largest(3)), "module.*buffers change"),
        (lambda: LinearHead(Largest(5)), "backbone.*buffers change"),
        (lambda: Network(LargestUnseen(3)), "module.*the same for the same input"),
        (lambda: LinearHead(LargestUnseen(5)), "backbone.*the same for the same input"),
        (lambda: Network(Partial(3).bfloat16()), "module: expected"),
        (lambda: Network(Halved(3)), "module.*single or double precision"),
        (lambda: Network(Raising(3)), "module.*for records of shape.*wrong number of wheels"),
        (lambda: LinearHead(Raising(5)), "backbone.*for records of shape.*wrong number of wheels"),
        (lambda: LinearHead(torch.nn.LazyLinear(5)), "backbone: expected"),
        (lambda: LinearHead(torch.nn.LSTM(8, 5)), "backbone: expected"),
        (lambda: LinearHead("resnet"), "backbone: expected a torch.nn.Module, got str"),
        (lambda: Network(lambda inputs: inputs), "module: expected a torch.nn.Module"),
        (lambda: Network(Remembering(3)), "module.*the same for the same input"),
        (lambda: LinearHead(Remembering(5)), "backbone.*the same for the same input"),
        (lambda: Network(Dropping(3)), "module.*the same for the same input"),
        (lambda: LinearHead(Reusing(5)), "backbone.*the same for the same input"),
        (lambda: LinearHead(Dropping(5)), "backbone.*the same for the same input"),
        (lambda: Network(Placed(3), records_per_call=2), "records_per_call"),
        (lambda: Network(Scaled(3), records_per_call=2), "records_per_call"),
        (lambda: Network(Detached(3)), "module.*gradients can be taken"),
    ],
)
def test_they_are_refused_and_nothing_is_spent(make, place, tmp_path, ledger):
    with pytest.raises(InvalidInputError, match=place):
        fit(
            IMAGES, LABELS, make_plan(), model=make(), out=tmp_path / "m",
            ledger=ledger, dataset_id="people",
        )  # fmt: skip
    assert Ledger(ledger).balance("people").charges == ()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ledger.db"]


@pytest.mark.parametrize("model", [Network(Tripped(3)), LinearHead(Tripped(5))])
def test_what_a_trial_did_not_find_is_put_back(model, tmp_path):
    """Each record meets the module that the first one met, and so does whoever gets the model."""
    plan = make_plan(augmentation=AugmentationPlan.plain())
    images = IMAGES.copy()
    images[7] = 255
    config = plan.config
    model.check(config)
    parameters = model.initial_parameters(config)
    records = check_records(images, LABELS, config)
    views = PrivateViews(records, config, MasterKey.for_test(0, b""), None, "cpu")
    source = model.bind(views, len(parameters))
    sums = [source.mean_gradients(np.arange(60), 0, parameters) for _ in range(2)]
    for one, other in zip(*sums, strict=True):
        assert torch.equal(one, other)
    after = source.mean_gradients(np.array([7, 8]), 0, parameters)
    next(after)
    (alone,) = source.mean_gradients(np.array([8]), 0, parameters)
    assert torch.equal(next(after), alone)
    trained = fit(images, LABELS, plan, model=model, out=tmp_path / "m")
    module = model.module if isinstance(model, Network) else model.backbone
    assert not module.mean.any()
    assert not trained.state.get("mean", np.zeros(1)).any()
    assert verify_model(tmp_path / "m").reasons == ()


@pytest.mark.parametrize("device", ["mps", "meta"])
def test_a_device_without_doubles_is_refused(device, tmp_path, ledger):
    plan = make_plan(input_shape=(SIZE,), augmentation=AugmentationPlan.plain())
    with pytest.raises(InvalidInputError, match="device: expected an available device"):
        fit(
            IMAGES.reshape(60, -1), LABELS, plan, model=LinearHead(device=device),
            out=tmp_path / "m", ledger=ledger, dataset_id="people",
        )  # fmt: skip
    assert Ledger(ledger).balance("people").charges == ()


def test_a_transform_that_fails_is_found_before_anything_is_spent(tmp_path, ledger):
    plan = make_plan(
        input_shape=(3, 1, 1), augmentation=AugmentationPlan.self_aug(2, transforms=("blur",))
    )
    with pytest.raises(InvalidInputError, match="transforms: expected some that apply"):
        fit(
            IMAGES[:, :, :1, :1], LABELS, plan, model=LinearHead(torch.nn.Flatten()),
            out=tmp_path / "m", ledger=ledger, dataset_id="people",
        )  # fmt: skip
    assert Ledger(ledger).balance("people").charges == ()


def test_an_idle_scalar_parameter_is_trained_by_noise_alone(tmp_path):
    trained = fit(IMAGES, LABELS, make_plan(), model=Network(Partial(3)), out=tmp_path / "m")
    assert trained.state["idle"].shape == ()
    assert verify_model(tmp_path / "m").reasons == ()


@pytest.mark.parametrize("kind", ["head", "network"])
def test_training_mode_is_switched_off_again(kind, tmp_path):
    if kind == "head":
        module = torch.nn.Sequential(Pooled(), torch.nn.Dropout(0.5))
        model = LinearHead(module)
    else:
        module = torch.nn.Sequential(make_network(), torch.nn.Dropout(0.5))
        model = Network(module)
    states = []
    for name in ("calm", "trained"):
        states.append(
            fit(IMAGES, LABELS, make_plan(), model=model, out=tmp_path / name, test_seed=1).state
        )
        module.train()
    for name, value in states[0].items():
        assert np.array_equal(states[1][name], value)


def test_a_second_training_starts_from_public_weights_again(tmp_path):
    network = Network(make_network())
    first = fit(IMAGES, LABELS, make_plan(), model=network, out=tmp_path / "a", test_seed=1)
    again = fit(IMAGES, LABELS, make_plan(), model=network, out=tmp_path / "b", test_seed=1)
    assert first.certificate.model.public_digest == again.certificate.model.public_digest
    for name, value in first.state.items():
        assert np.array_equal(again.state[name], value)


def test_a_pickled_head_holds_no_private_features(tmp_path):
    head = LinearHead(Pooled(), feature_cache="views")
    trained = fit(IMAGES, LABELS, make_plan(), model=head, out=tmp_path / "m")
    assert head.cache
    assert not pickle.loads(pickle.dumps(trained)).model.cache


def test_kept_features_serve_the_same_classes_and_backbone_only(tmp_path):
    head = LinearHead(Pooled(), feature_cache="views")

    def train(name, source=head, **changes):
        plan = make_plan(augmentation=AugmentationPlan.self_aug(2, crop_padding=2), **changes)
        return fit(IMAGES, LABELS, plan, model=source, out=tmp_path / name, test_seed=1).state

    train("a")
    assert train("b", classes=(0, 1, 2, 3))["coef"].shape[0] == 4
    with torch.no_grad():
        head.backbone.convolution.weight.mul_(2.0)
    fresh = LinearHead(head.backbone, feature_cache="views")
    assert np.array_equal(train("c")["coef"], train("d", fresh)["coef"])


def test_a_stale_checkpoint_is_not_taken_for_this_trainings(tmp_path):
    plan, head = make_plan(), LinearHead(Pooled())
    due = fit(IMAGES, LABELS, plan, model=head, out=tmp_path / "a", test_seed=1).state
    hidden = tmp_path / ".b.run"
    hidden.mkdir(mode=0o700)
    strange = head.initial_parameters(plan.config) + 7.0
    tensors = {"parameters": strange, "velocity": strange, "step": np.array([4])}
    (hidden / trainer._STATE_NAME).write_bytes(save(tensors))
    found = fit(IMAGES, LABELS, plan, model=head, out=tmp_path / "b", test_seed=1).state
    assert np.array_equal(found["coef"], due["coef"])


class CutOff(Exception):
    pass


def test_a_ledger_is_charged_once_whenever_it_is_named(tmp_path, ledger, monkeypatch):
    def run(**options):
        return fit(
            IMAGES, LABELS, make_plan(), model=LinearHead(Pooled()), out=tmp_path / "m", **options
        )

    def cut_off(*_, **__):
        raise CutOff

    book = {"ledger": ledger, "dataset_id": "people"}
    with pytest.raises(CutOff):
        run(progress=cut_off)
    assert not Ledger(ledger).balance("people").charges
    for _ in range(2):  # begun without a ledger: naming one later charges it, once
        with pytest.raises(CutOff):
            run(progress=cut_off, resume=True, **book)
        assert len(Ledger(ledger).balance("people").charges) == 1
    with pytest.raises(InvalidInputError, match="the ledger it was begun with"):
        run(resume=True)  # the ledger would not know what came of it
    run(resume=True, **book)
    # Cut off between the journal and the charge: not without the ledger.
    with monkeypatch.context() as patch, pytest.raises(CutOff):
        patch.setattr(Ledger, "charge", cut_off)
        (tmp_path / "m").rename(tmp_path / "first")
        run(**book)
    with pytest.raises(InvalidInputError, match="the ledger it was begun with"):
        run(resume=True)
    run(resume=True, **book)
    assert len(Ledger(ledger).balance("people").charges) == 2
    assert verify_model(tmp_path / "m").valid

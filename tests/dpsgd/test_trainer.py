"""Training from plan to verified model: budget, resume, ledger, bad input, tampering."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from privmix import InvalidInputError
from privmix.accounting.stated import stated_epsilon
from privmix.dpsgd import (
    AugmentationPlan,
    LinearHead,
    Network,
    TrainedModel,
    fit,
    plan_training,
    trainer,
    verify_model,
)
from privmix.running.ledger import Ledger
from training_cases import Pooled, make_images, make_network, make_plan

IMAGES, LABELS = make_images(60)
SETTINGS = {
    "classes": (0, 1, 2),
    "input_shape": (3, 8, 8),
    "num_records": 60,
    "batch_size": 15,
    "augmentation": AugmentationPlan.dp_mix_self(3, 2, crop_padding=2),
}


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "ledger.db"
    Ledger(path).open_dataset("people", epsilon_limit=1000.0, delta=1e-5)
    return path


def with_nan(images):
    images = images.astype(np.float32) / 255
    images[7, 0, 0, 0] = np.nan
    return images


@pytest.mark.parametrize(
    "changes, place",
    [
        ({"inputs": with_nan(IMAGES)}, r"inputs\[7\]"),
        ({"inputs": IMAGES[:, :2]}, "inputs"),
        ({"inputs": IMAGES[:0], "labels": LABELS[:0]}, "inputs"),
        ({"labels": np.where(np.arange(60) == 5, 3, LABELS)}, r"labels\[5\]"),
        ({"labels": LABELS[:-1]}, "labels"),
        ({"synthetic": (IMAGES, LABELS)}, "synthetic"),
        ({"plan": make_plan(augmentation=AugmentationPlan.dp_mix_diff())}, "synthetic"),
        ({"plan": make_plan(microbatch_size=2)}, "microbatch_size"),
        ({"plan": make_plan().model_copy(update={"epsilon": 0.1})}, "epsilon"),
        # Stated otherwise than its parameters give: verify would reject what it spends.
        ({"plan": make_plan().model_copy(update={"epsilon": 50.0})}, "epsilon.*costs at delta"),
        ({"plan": make_plan().model_copy(update={"delta": 1e-3})}, "epsilon.*costs at delta"),
        ({"model": LinearHead()}, "backbone"),
        ({"model": LinearHead(Pooled(), initial=(np.ones((3, 9)), np.ones(3)))}, "initial"),
        (
            {"model": Network(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4)))},
            "module",
        ),
    ],
)
def test_bad_input_spends_nothing(changes, place, tmp_path, ledger):
    given = {"inputs": IMAGES, "labels": LABELS, "plan": make_plan(), "model": LinearHead(Pooled())}
    given |= changes
    inputs, labels, plan = (given.pop(name) for name in ("inputs", "labels", "plan"))
    with pytest.raises(InvalidInputError, match=place):
        fit(inputs, labels, plan, out=tmp_path / "m", ledger=ledger, dataset_id="people", **given)
    assert Ledger(ledger).balance("people").charges == ()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ledger.db"]


def test_batch_normalisation_is_refused():
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    with pytest.raises(InvalidInputError, match=r"module\.1: expected no batch normalisation"):
        Network(module)


def test_a_budget_that_does_not_suffice_is_refused(tmp_path):
    path = tmp_path / "ledger.db"
    Ledger(path).open_dataset("people", epsilon_limit=0.5, delta=1e-5)
    with pytest.raises(InvalidInputError, match="data set 'people'"):
        fit(
            IMAGES, LABELS, make_plan(), model=LinearHead(Pooled()), out=tmp_path / "m",
            ledger=path, dataset_id="people",
        )  # fmt: skip
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("kind", ["head", "network"])
def test_it_learns(kind, tmp_path):
    images, labels = make_images(300)
    model, rate = (LinearHead(Pooled()), 2.0) if kind == "head" else (Network(make_network()), 0.5)
    plan = plan_training(
        target_epsilon=8.0, target_delta=1e-5, epochs=12,
        **SETTINGS | {"num_records": 300, "batch_size": 50, "learning_rate": rate},
    )  # fmt: skip
    trained = fit(images, labels, plan, model=model, out=tmp_path / "m", test_seed=1)
    assert np.mean(trained.predict(images) == labels) > 0.6  # chance is a third
    assert trained.score(images, labels) == np.mean(trained.predict(images) == labels)
    with pytest.raises(InvalidInputError, match=r"labels\[1\]: expected a label"):
        trained.score(images[:2], [0, np.nan])


@pytest.mark.parametrize("kind", ["head", "network"])
def test_a_model_verifies_and_is_charged(kind, tmp_path, ledger):
    model = LinearHead(Pooled()) if kind == "head" else Network(make_network())
    plan, out = make_plan(), tmp_path / "m"
    trained = fit(IMAGES, LABELS, plan, model=model, out=out, ledger=ledger, dataset_id="people")
    outcome = verify_model(out, expect_digest=trained.certificate.digest())
    assert outcome.valid, outcome.reasons
    assert outcome.epsilon == stated_epsilon(plan.epsilon)
    (charge,) = Ledger(ledger).balance("people").charges
    assert charge.event == plan.config.event
    again = TrainedModel(out, model)
    assert np.array_equal(again.scores(IMAGES), trained.scores(IMAGES))
    assert not list(tmp_path.glob(".m.run"))
    if kind == "head":
        other = Pooled()
        torch.nn.init.ones_(other.convolution.bias)
        with pytest.raises(InvalidInputError, match="other weights"):
            TrainedModel(out, LinearHead(other))


class CutOff(Exception):
    pass


@pytest.mark.parametrize("kind", ["head", "network"])
def test_a_resumed_training_is_bit_identical(kind, tmp_path, monkeypatch):
    model = LinearHead(Pooled()) if kind == "head" else None
    plan = make_plan(momentum=0.5)
    monkeypatch.setattr(trainer, "_CHECKPOINT_SECONDS", 0.0)

    def run(out, **options):
        source = model or Network(make_network())
        return fit(IMAGES, LABELS, plan, model=source, out=out, test_seed=7, **options)

    whole = run(tmp_path / "whole")

    def cut_off(done, total):
        if done == 3:
            raise CutOff

    with pytest.raises(CutOff):
        run(tmp_path / "parts", progress=cut_off)
    assert not (tmp_path / "parts").exists()
    hidden = tmp_path / ".parts.run"
    assert (hidden.stat().st_mode & 0o777) == 0o700
    with pytest.raises(InvalidInputError, match="resume"):
        run(tmp_path / "parts")
    with pytest.raises(InvalidInputError, match="the plan and the records"):
        fit(
            IMAGES[:-1], LABELS[:-1], plan, model=model or Network(make_network()),
            out=tmp_path / "parts", test_seed=7, resume=True,
        )  # fmt: skip
    resumed = run(tmp_path / "parts", resume=True)
    assert resumed.state.keys() == whole.state.keys()
    for name, value in whole.state.items():
        assert np.array_equal(resumed.state[name], value)
    assert not hidden.exists()
    assert verify_model(tmp_path / "parts").reasons == (
        "certificate: private is false: NOT PRIVATE: trained with a test seed or for research; it "
        "protects nobody",
    )


def test_a_head_starts_from_public_weights(tmp_path):
    initial = (np.arange(48.0).reshape(3, 16), np.array([1.0, 2.0, 3.0]))
    plan = make_plan(learning_rate=1e-9)
    head = LinearHead(Pooled(), initial=initial)
    state = fit(IMAGES, LABELS, plan, model=head, out=tmp_path / "a", test_seed=1).state
    assert np.allclose(state["coef"], initial[0], atol=1e-6)
    assert np.allclose(state["intercept"], initial[1], atol=1e-6)
    TrainedModel(tmp_path / "a", LinearHead(Pooled()))  # the weights are in the folder

    def cut_off(done, total):
        raise CutOff

    with pytest.raises(CutOff):
        fit(IMAGES, LABELS, plan, model=head, out=tmp_path / "b", progress=cut_off, test_seed=1)
    other = LinearHead(Pooled(), initial=(initial[0] + 1, initial[1]))
    with pytest.raises(InvalidInputError, match="the plan and the records"):
        fit(IMAGES, LABELS, plan, model=other, out=tmp_path / "b", resume=True, test_seed=1)


@pytest.mark.parametrize(
    "initial",
    [(np.ones(3), np.ones(3)), (np.ones((3, 2)), np.ones(2)), ([["a"]], [0]), ([[np.nan]], [0])],
)
def test_public_weights_are_finite_numbers_of_one_size(initial):
    with pytest.raises(InvalidInputError, match="initial"):
        LinearHead(Pooled(), initial=initial)


def test_two_trainings_differ(tmp_path):
    states = [
        fit(IMAGES, LABELS, make_plan(), model=LinearHead(Pooled()), out=tmp_path / name).state
        for name in ("a", "b")
    ]
    assert not np.array_equal(states[0]["coef"], states[1]["coef"])


@pytest.mark.parametrize("make", [AugmentationPlan.plain, AugmentationPlan.mixup_of_pairs])
def test_microbatches_train_for_research(make, tmp_path):
    plan = make_plan(microbatch_size=2, augmentation=make())
    trained = fit(
        IMAGES[:-1], LABELS[:-1], plan, model=Network(make_network()), out=tmp_path / "m",
        research=True,
    )  # fmt: skip
    facts = trained.certificate
    assert facts.gradient_noise_stddev == pytest.approx(2 * plan.config.noise_multiplier)

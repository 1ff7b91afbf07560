"""Training from plan to verified model: budget, resume, ledger, bad input, tampering."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import save
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from privmix import InvalidInputError
from privmix.accounting import ComposedEvent, account, format_epsilon
from privmix.accounting.stated import stated_epsilon
from privmix.dpsgd import (
    AugmentationPlan,
    DPMixClassifier,
    LinearHead,
    Network,
    TrainedModel,
    TrainingPlan,
    fit,
    frechet_distance,
    make_model,
    plan_training,
    trainer,
    verify_model,
)
from privmix.dpsgd.model_certificate import ModelCertificate, ModelFacts, read_state
from privmix.running.ledger import Ledger
from privmix.running.unrecorded import UnrecordedSpendingWarning
from training_cases import Pooled, make_config, make_images, make_network, make_plan

IMAGES, LABELS = make_images(60)
SETTINGS = {
    "classes": (0, 1, 2),
    "input_shape": (3, 8, 8),
    "num_records": 60,
    "batch_size": 15,
    "augmentation": AugmentationPlan.dp_mix_self(3, 2, crop_padding=2),
}


@pytest.mark.parametrize("target", [0.5, 1.0, 8.0])
def test_noise_is_solved_for(target):
    plan = plan_training(target_epsilon=target, target_delta=1e-5, epochs=10, **SETTINGS)
    assert plan.config.num_steps == 40
    assert 0.99 * target <= plan.epsilon <= target
    assert plan.epsilon == account(plan.config.event, 1e-5).epsilon
    assert plan.config.event.sampling_prob == 15 / 60
    assert TrainingPlan.from_json(plan.to_json()) == plan


def test_steps_are_solved_for():
    plan = plan_training(target_epsilon=2.0, target_delta=1e-5, noise_multiplier=1.5, **SETTINGS)
    more = plan.config.event_after(plan.config.num_steps + 1)
    assert plan.epsilon <= 2.0 < account(more, 1e-5).epsilon


@pytest.mark.parametrize(
    "changes, place",
    [
        ({"batch_size": 61}, "batch_size"),
        ({"batch_size": 0}, "batch_size"),
        ({"clip_norm": float("nan")}, "clip_norm"),
        ({"classes": (0,)}, "classes"),
        ({"classes": (0, "a")}, "classes"),
        ({"input_shape": (8, 8)}, "input_shape"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"noise_multiplier": 1e4}, "noise_multiplier"),
        ({"num_steps": 0}, "num_steps"),
    ],
)
def test_bad_settings_are_refused(changes, place):
    with pytest.raises(InvalidInputError, match=place):
        make_config(**changes)


def test_a_plan_needs_one_unknown():
    for extra in ({}, {"epochs": 1.0, "noise_multiplier": 1.0}):
        with pytest.raises(InvalidInputError, match="epochs and noise_multiplier"):
            plan_training(target_epsilon=1.0, target_delta=1e-5, **extra, **SETTINGS)


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


def test_two_trainings_differ(tmp_path):
    states = [
        fit(IMAGES, LABELS, make_plan(), model=LinearHead(Pooled()), out=tmp_path / name).state
        for name in ("a", "b")
    ]
    assert not np.array_equal(states[0]["coef"], states[1]["coef"])


def test_no_step_beyond_the_budget():
    config = make_config()
    steps = trainer.Steps.__new__(trainer.Steps)
    steps.config = config
    with pytest.raises(RuntimeError, match="budget is spent"):
        steps.gradient(config.num_steps, np.zeros(3))


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sealed") / "m"
    fit(IMAGES, LABELS, make_plan(), model=LinearHead(Pooled()), out=folder)
    return folder


def test_the_certificate_tells_no_private_fact(sealed):
    text = (sealed / "certificate.json").read_text()
    # Another number of records, other classes present: nothing but digests differs.
    other = sealed.parent / "other"
    fit(IMAGES[:40], np.zeros(40, dtype=int), make_plan(), model=LinearHead(Pooled()), out=other)
    first, second = json.loads(text), json.loads((other / "certificate.json").read_text())
    first.pop("files"), second.pop("files")
    assert first == second
    sizes = {(path.name, path.stat().st_size) for path in sealed.iterdir()}
    assert sizes == {(path.name, path.stat().st_size) for path in other.iterdir()}
    assert {path.stat().st_mtime for path in sealed.iterdir()} == {946684800.0}
    shutil.rmtree(other)


@pytest.mark.parametrize(
    "field, value",
    [
        (("epsilon",), 0.1),
        (("config", "noise_multiplier"), 2.0),
        (("config", "num_steps"), 3),
        (("config", "augmentation", "num_base"), 4),
        (("event", "count"), 1),
        (("gradient_noise_stddev",), 5.0),
        (("gradient_sensitivity",), 0.5),
        (("epsilon_by_delta", "1e-05"), 0.1),
        (("model", "num_parameters"), 3),
        (("model", "shapes", "coef"), [3, 15]),
        (("config", "augmentation", "transforms"), [[]]),
        (("private",), False),
        (("kind",), "release"),
        (("sampler_error",), 1),
    ],
)
def test_an_edited_certificate_is_rejected(sealed, tmp_path, field, value):
    copy = tmp_path / "m"
    shutil.copytree(sealed, copy)
    path = copy / "certificate.json"
    data = json.loads(path.read_text())
    place = data
    for name in field[:-1]:
        place = place[name]
    assert place[field[-1]] != value
    place[field[-1]] = value
    path.write_text(json.dumps(data, indent=2) + "\n")
    assert not verify_model(copy).valid


def test_a_consistent_forgery_of_another_size_is_rejected(sealed, tmp_path):
    copy = tmp_path / "m"
    shutil.copytree(sealed, copy)
    certificate, state = TrainedModel(copy, LinearHead(Pooled())).certificate, read_state(copy)
    forged = ModelCertificate.for_plan(
        certificate.to_plan(),
        certificate.model.model_copy(update={"num_parameters": 3}),
        private=True,
        files=certificate.files,
    )
    (copy / "certificate.json").write_bytes(forged.to_bytes())
    (reason,) = verify_model(copy).reasons
    assert "shapes and num_parameters" in reason
    # A type of number that NumPy does not have is a reason, too, not a crash.
    short = {name: torch.tensor(value).bfloat16() for name, value in state.items()}
    content = save(short, {"privmix_trained_model": "{}"})
    (copy / "model.safetensors").write_bytes(content)
    files = {"model.safetensors": hashlib.sha256(content).hexdigest()}
    forged = certificate.model_copy(update={"files": files})
    (copy / "certificate.json").write_bytes(forged.to_bytes())
    assert "BF16" in verify_model(copy).reasons[0]


@pytest.mark.parametrize(
    ("place", "name", "text"),
    [
        ("library_versions", "numpy", "2.0, audited by nobody"),
        ("model", "architecture", "Pooled, epsilon 0"),
        ("model", "architecture", "A" * 300),
        ("model", "public_digest", "this model is harmless"),
    ],
)
def test_a_consistent_forgery_with_free_text_is_rejected(sealed, tmp_path, place, name, text):
    copy = tmp_path / "m"
    shutil.copytree(sealed, copy)
    path = copy / "certificate.json"
    found = json.loads(path.read_text())[place][name]
    path.write_text(path.read_text().replace(f'"{name}": "{found}"', f'"{name}": "{text}"'))
    (reason,) = verify_model(copy).reasons
    assert place in reason


@pytest.mark.parametrize(
    "change",
    [
        {"public_digest": "A" * 64},
        {"shapes": {"a tensor of ours": (2,)}},
        {"shapes": {"a\x1b[2J": (2,)}},
    ],
)
def test_facts_of_a_model_hold_no_free_text(change):
    facts = {"kind": "network", "architecture": "Net", "public_digest": "0" * 64}
    facts |= {"num_parameters": 2, "shapes": {"0.weight": (2,)}}
    ModelFacts(**facts)
    with pytest.raises(InvalidInputError, match=next(iter(change))):
        ModelFacts(**facts | change)


def test_edited_files_are_rejected(sealed, tmp_path):
    copy = tmp_path / "m"
    shutil.copytree(sealed, copy)
    assert verify_model(copy).valid
    path = copy / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert "changed since" in verify_model(copy).reasons[0]
    path.write_bytes(content)
    (copy / "note.txt").write_text("hello")
    assert "note.txt: not part" in verify_model(copy).reasons[0]
    (copy / "note.txt").unlink()
    path.unlink()
    assert "missing" in verify_model(copy).reasons[0]
    assert not verify_model(sealed, expect_digest="0" * 64).valid


def test_research_stamps_the_model(tmp_path):
    plan = make_plan(num_steps=8)
    for number, model in enumerate((LinearHead(Pooled()), Network(make_network()))):
        out = tmp_path / str(number)
        trained = fit(IMAGES, LABELS, plan, model=model, out=out, research=True)
        assert not trained.certificate.private
        assert not verify_model(out).valid
        found = json.loads((out / "research.json").read_text())
        assert len(found["epochs"]) == 2  # of four expected steps each
        due = trained.certificate.model.num_parameters
        assert all(sum(epoch["counts"]) == due for epoch in found["epochs"])


def test_microbatches_train_for_research(tmp_path):
    plan = make_plan(microbatch_size=2, augmentation=AugmentationPlan.plain())
    trained = fit(
        IMAGES[:-1], LABELS[:-1], plan, model=Network(make_network()), out=tmp_path / "m",
        research=True,
    )  # fmt: skip
    facts = trained.certificate
    assert facts.gradient_noise_stddev == pytest.approx(2 * plan.config.noise_multiplier)


def test_frechet_distance_meets_the_closed_form():
    generator = np.random.default_rng(0)
    first = generator.standard_normal((400, 3))
    assert frechet_distance(first, first) == pytest.approx(0, abs=1e-9)
    assert frechet_distance(first, first + np.array([3.0, 0, 4.0])) == pytest.approx(25)
    covariance = np.cov(first.T)
    # S and 4 S commute: tr(S + 4 S - 2 * 2 S) = tr S; the means differ by the mean.
    due = np.trace(covariance) + np.square(first.mean(axis=0)).sum()
    assert frechet_distance(first, 2 * first) == pytest.approx(due)
    with pytest.raises(InvalidInputError, match="second"):
        frechet_distance(first, first[:, :2])


def test_classifier_follows_scikit_learn(tmp_path, ledger):
    images, labels = make_images(200)
    model = DPMixClassifier(
        Pooled(), 8.0, classes=[0, 1, 2], num_records=200, batch_size=40, epochs=10,
        augmentation=SETTINGS["augmentation"], learning_rate=2.0, out=tmp_path / "m",
    )  # fmt: skip
    assert model.get_params()["target_epsilon"] == 8.0
    model.fit(images, labels)
    assert model.score(images, labels) > 0.55
    assert np.allclose(model.predict_proba(images).sum(axis=1), 1)
    assert verify_model(tmp_path / "m").valid
    flat = images.reshape(200, -1)[:, :12] / 255
    plain = DPMixClassifier(
        None, 8.0, classes=[0, 1, 2], num_records=200, batch_size=40,
        ledger=ledger, dataset_id="people",
    )  # fmt: skip
    assert plain.fit(flat, labels).certificate_.config.augmentation == AugmentationPlan.plain()
    for classes in (np.arange(3), [np.int64(k) for k in range(3)]):
        plain.set_params(classes=classes).fit(flat, labels)
        assert plain.certificate_.config.classes == (0, 1, 2)
    for classes in ({0, 1, 2}, "012"):
        with pytest.raises(InvalidInputError, match="classes: expected a sequence of"):
            plain.set_params(classes=classes).fit(flat, labels)
    with pytest.raises(InvalidInputError, match="num_records"):
        DPMixClassifier(None, 8.0, classes=[0, 1, 2]).fit(flat, labels)


def small_classifier(**options):
    return DPMixClassifier(
        None, 2.0, classes=[0, 1, 2], num_records=200, batch_size=40, epochs=1, **options
    )


def small_records():
    images, labels = make_images(200)
    return images.reshape(200, -1)[:, :12] / 255, labels


def test_each_fit_of_a_grid_search_is_charged(ledger):
    """Five fits of parts and one of the whole, each a clone: six charges."""
    search = GridSearchCV(
        small_classifier(ledger=ledger, dataset_id="people"), {"learning_rate": [0.5]}, cv=5
    )
    search.fit(*small_records())
    balance = Ledger(ledger).balance("people")
    assert len(balance.charges) == 6
    assert balance.epsilon_spent > search.best_estimator_.certificate_.epsilon
    assert balance.charges[-1].digest == search.best_estimator_.certificate_.digest()
    assert {charge.kind for charge in balance.charges} == {"model"}


def test_a_fit_past_the_limit_is_refused(tmp_path):
    book = Ledger(tmp_path / "l.db").open_dataset("people", epsilon_limit=2.5, delta=1e-5)
    model = small_classifier(ledger=book.path, dataset_id="people")
    model.fit(*small_records())
    with pytest.raises(InvalidInputError, match="is spent"):
        clone(model).fit(*small_records())
    assert len(book.balance("people").charges) == 1
    with pytest.raises(InvalidInputError, match="both, or neither"):
        small_classifier(dataset_id="people").fit(*small_records())


def test_a_second_fit_without_a_ledger_warns_with_what_both_cost():
    model = small_classifier()
    inputs, labels = small_records()
    with pytest.raises(InvalidInputError, match="labels"):
        model.fit(inputs, labels[1:])  # spends nothing, and is not counted
    event = model.fit(inputs, labels).certificate_.event
    both = format_epsilon(account(ComposedEvent(events=(event, event)), 1e-5).epsilon)
    with pytest.warns(UnrecordedSpendingWarning, match=f"all 2 times cost epsilon {both} at"):
        clone(model).fit(inputs, labels)
    with (
        warnings.catch_warnings(action="error"),
        pytest.raises(UnrecordedSpendingWarning, match="all 3 times"),
    ):
        model.fit(inputs, labels)


@pytest.mark.parametrize(
    "name, channels, side, due",
    [
        ("wrn-16-4", 3, 32, 2_748_890),
        ("dpmix-cnn", 1, 32, 357_690),
        ("cnn-26k", 1, 28, 26_010),
        ("cnn-52k", 1, 28, 52_040),
    ],
)
def test_networks_have_their_sizes(name, channels, side, due):
    module = make_model(name, channels, 10)
    assert sum(p.numel() for p in module.parameters()) == due
    with torch.no_grad():
        assert module(torch.zeros((2, channels, side, side))).shape == (2, 10)
    Network(module).check(make_config(classes=range(10), input_shape=(channels, side, side)))
    first, again = make_model(name, channels, 10), make_model(name, channels, 10)
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True)
    )


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for make in (lambda: LinearHead(), lambda: make_model("cnn-26k", 1, 10)):
        with pytest.raises(InvalidInputError, match=r"library torch.*privmix\[dpsgd\]"):
            make()

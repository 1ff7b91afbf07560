"""Whatever reads a release of a test seed, or a model of one, says that it protects nobody."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

from builders import make_data, make_plan, make_schema
from privmix import NoiseAwareClassifier, Release, load_model, release, save_model, verify
from privmix.accounting.guarantee import NOT_PRIVATE, NotPrivateWarning
from privmix.cli import app
from signing_keys import KEY, OTHER, public_line, write_key

DP = "differentially private"


@pytest.fixture(scope="module")
def plan():
    return make_plan(make_schema(), "poisson", 2.0, mix_size=6, num_mixtures=60)


@pytest.fixture(scope="module")
def data(plan):
    return make_data(plan.data_schema, 60)


@pytest.fixture(scope="module")
def stamped(plan, data, tmp_path_factory):
    return release(*data, plan, out=tmp_path_factory.mktemp("stamped") / "r", test_seed=0)


@pytest.fixture(scope="module")
def private(plan, data, tmp_path_factory):
    return release(*data, plan, out=tmp_path_factory.mktemp("private") / "r")


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_card_certificate_and_repr(stamped, private):
    card = (stamped.folder / "README.md").read_text()
    certificate = (stamped.folder / "certificate.json").read_text()
    for text in (card, json.loads(certificate)["statement"], repr(stamped)):
        assert NOT_PRIVATE in text
        assert DP not in text
    assert "- differential-privacy\n" not in card
    assert "epsilon" not in repr(stamped)
    for told in (private.folder / "README.md", private.folder / "certificate.json"):
        assert private.certificate.statement in told.read_text()
    assert NOT_PRIVATE not in repr(private)


def test_the_card_says_who_is_protected_and_against_whom(private):
    card = (private.folder / "README.md").read_text()
    for line in private.certificate.guarantee.lines():
        assert f"- {line}\n" in card
    assert "members in 100 (guessing: 1)" in card


def test_a_stamp_that_was_taken_off_is_found(stamped, private, tmp_path):
    """Also from the card alone."""
    import shutil

    for name, change in (
        ("card", lambda folder: (folder / "README.md").write_text(
            (private.folder / "README.md").read_text())),
        ("certificate", lambda folder: (folder / "certificate.json").write_text(
            (folder / "certificate.json").read_text().replace('"private": false', '"private": true'))),
    ):  # fmt: skip
        folder = tmp_path / name
        shutil.copytree(stamped.folder, folder)
        change(folder)
        assert not verify(folder).valid


def test_learners_warn_and_are_stamped(stamped, private, tmp_path):
    with pytest.warns(NotPrivateWarning, match=NOT_PRIVATE):
        model = NoiseAwareClassifier().fit(stamped)
    assert model.private_ is False
    assert NOT_PRIVATE in repr(model)
    save_model(model, tmp_path / "m.safetensors")
    again = load_model(tmp_path / "m.safetensors")
    assert again.private_ is False
    assert NOT_PRIVATE in repr(again)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotPrivateWarning)
        good = NoiseAwareClassifier().fit(private.folder)
    assert good.private_ is True
    assert repr(good) == "NoiseAwareClassifier()"


def test_every_learner_of_the_library_warns(stamped):
    """They all open releases by one function."""
    from privmix.learners import LEARNERS

    learners = {name: made() for name, made in LEARNERS.items() if "regression" not in name}
    learners.pop("network")  # the same function; its module would have to be made first
    for name, learner in learners.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                learner.fit(stamped)
            except ValueError as error:
                # They want a selection of features, and rounds.
                assert name in ("fisher", "adaptive"), error
        assert any(issubclass(one.category, NotPrivateWarning) for one in caught), name


def test_train_and_evaluate_say_it(stamped, data, tmp_path):
    model = tmp_path / "m.safetensors"
    trained = run("train", stamped.folder, "--out", model, "--json")
    assert trained.exit_code == 0, trained.output
    assert json.loads(trained.stdout)["private"] is False
    assert trained.stderr.count(NOT_PRIVATE) == 1
    np.savez(tmp_path / "t.npz", x=data[0], y=data[1])
    keys = ("--features-key", "x", "--label-key", "y")
    scored = run("evaluate", model, tmp_path / "t.npz", *keys, "--json")
    assert json.loads(scored.stdout)["private"] is False
    assert NOT_PRIVATE in scored.stderr


def test_verify_refuses_it_by_name(stamped, private):
    refused = run("verify", stamped.folder)
    assert refused.exit_code == 1
    assert NOT_PRIVATE in refused.stdout
    assert DP not in refused.stdout
    assert verify(stamped.folder).guarantee is None
    told = run("verify", private.folder)
    assert f"valid: {private.certificate.statement}" in told.stdout
    for word in ("protects: any one record", "attacker: ", "origin: nothing vouches for it"):
        assert word in told.stdout


def test_release_says_it(plan, data, tmp_path):
    np.savez(tmp_path / "t.npz", x=data[0], y=data[1])
    (tmp_path / "plan.json").write_text(plan.to_json())
    common = ("--features-key", "x", "--label-key", "y", "--plan", tmp_path / "plan.json")
    made = run("release", tmp_path / "t.npz", *common, "--out", tmp_path / "r", "--test-seed", 1)
    assert made.exit_code == 0, made.output
    assert NOT_PRIVATE in made.stdout
    assert NOT_PRIVATE in made.stderr


def test_models_of_fit_are_stamped(data, tmp_path):
    pytest.importorskip("torch")
    from privmix.dpsgd import AugmentationPlan, LinearHead, TrainedModel, fit, plan_training

    training = plan_training(
        target_epsilon=20.0,
        target_delta=1e-3,
        epochs=1.0,
        classes=(0, 1, 2),
        input_shape=(5,),
        num_records=60,
        batch_size=20,
        augmentation=AugmentationPlan.plain(),
    )
    model = fit(
        *data, training, model=LinearHead(None), out=tmp_path / "model", test_seed=0
    )  # fmt: skip
    assert NOT_PRIVATE in repr(model)
    assert NOT_PRIVATE in model.certificate.statement
    np.savez(tmp_path / "t.npz", x=data[0], y=data[1])
    keys = ("--features-key", "x", "--label-key", "y")
    scored = run("evaluate", tmp_path / "model", tmp_path / "t.npz", *keys, "--json")
    assert json.loads(scored.stdout)["private"] is False, scored.output
    assert NOT_PRIVATE in scored.stderr
    assert run("verify", tmp_path / "model").exit_code == 1
    good = fit(*data, training, model=LinearHead(None), out=tmp_path / "good")
    assert DP in repr(TrainedModel(good.folder, LinearHead(None)))
    told = run("verify", tmp_path / "good")
    assert told.exit_code == 0, told.output
    assert "weak: epsilon" in told.stdout
    assert "weak: delta" in told.stdout
    key = write_key(tmp_path / "key")
    assert run("sign", tmp_path / "good", "--key", key).exit_code == 0
    (tmp_path / "signers").write_text(f"alice {public_line(KEY)}\n")
    signed = run("verify", tmp_path / "good", "--signer", tmp_path / "signers")
    assert "origin: signed by alice" in signed.stdout
    (tmp_path / "signers").write_text(f"alice {public_line(OTHER)}\n")
    assert run("verify", tmp_path / "good", "--signer", tmp_path / "signers").exit_code == 1
    assert run("sign", tmp_path / "model", "--key", key).exit_code == 1


@pytest.mark.parametrize("command", ["plan", "release", "verify", "card"])
def test_a_weak_guarantee_is_called_weak_everywhere(command, tmp_path):
    schema = make_schema()
    plan = make_plan(schema, "poisson", 0.5, mix_size=6, num_mixtures=300)
    assert plan.guarantee.is_weak
    (line,) = [w for w in plan.guarantee.weaknesses if "epsilon" in w]
    if command == "plan":
        (tmp_path / "schema.json").write_text(schema.to_json())
        arguments = ("--schema", tmp_path / "schema.json", "--epsilon", 20, "--delta", "1e-3")
        made = run("plan", *arguments, "--design", "poisson", "--center", 0)
        assert made.exit_code == 0, made.output
        assert "weak: epsilon" in made.stderr
        assert "weak: delta 0.001 is above 0.0001" in made.stderr
        told = json.loads(run("plan", *arguments, "--json").stdout)
        assert told["guarantee"]["weaknesses"]
        return
    x, y = make_data(schema, 60)
    np.savez(tmp_path / "t.npz", x=x, y=y)
    (tmp_path / "plan.json").write_text(plan.to_json())
    common = ("--features-key", "x", "--label-key", "y", "--plan", tmp_path / "plan.json")
    made = run("release", tmp_path / "t.npz", *common, "--out", tmp_path / "r")
    told = {
        "release": made.stderr,
        "verify": run("verify", tmp_path / "r").stdout,
        "card": (tmp_path / "r" / "README.md").read_text(),
    }[command]
    assert line in told
    assert line in Release(tmp_path / "r").certificate.guarantee.weaknesses

"""privmix fit and privmix verify on a model folder."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from privmix import InvalidInputError
from privmix.cli import app
from privmix.ledger import Ledger
from training_cases import Pooled, make_images


def make_backbone():
    return Pooled()


@pytest.fixture
def images(tmp_path):
    inputs, labels = make_images(80)
    np.savez(tmp_path / "images.npz", x=inputs, y=labels)
    np.savez(tmp_path / "flat.npz", x=inputs.reshape(80, -1)[:, :20] / 255, y=labels)
    return tmp_path


def run(folder, name, *options):
    common = ("--features-key", "x", "--label-key", "y", "--classes", "0,1,2")
    budget = ("--num-records", "80", "--batch-size", "20", "--epochs", "2")
    spent = ("--epsilon", "2", "--delta", "1e-5", "--out", str(folder / "model"))
    arguments = ["fit", str(folder / name), *common, *budget, *spent, *options]
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_images_on_a_backbone(images):
    Ledger(images / "l.db").open_dataset("people", epsilon_limit=3.0, delta=1e-5)
    charged = ("--ledger", str(images / "l.db"), "--dataset-id", "people")
    counts = ("--num-base", "3", "--num-mixed", "2", "--transforms", "flip")
    backbone = ("--backbone", "test_fit_command:make_backbone")
    result = run(images, "images.npz", *counts, *backbone, *charged, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["private"] is True
    assert told["num_augmentations"] == 5
    assert told["epsilon"] <= 2
    assert Ledger(images / "l.db").balance("people").epsilon_spent == pytest.approx(told["epsilon"])
    outcome = CliRunner().invoke(
        app, ["verify", str(images / "model"), "--expect-digest", told["digest"], "--json"]
    )
    assert outcome.exit_code == 0
    assert json.loads(outcome.stdout)["valid"] is True
    with (images / "model" / "model.safetensors").open("ab") as file:
        file.write(b"x")
    assert CliRunner().invoke(app, ["verify", str(images / "model")]).exit_code == 1


def test_features_need_no_backbone(images):
    result = run(images, "flat.npz")
    assert result.exit_code == 0, result.output
    assert "num_augmentations: 1" in result.output
    assert "privmix verify" in result.output


@pytest.mark.parametrize(
    "name, options, place",
    [
        ("flat.npz", ("--method", "best"), "--method"),
        ("flat.npz", ("--model", "wrn-16-4"), "--model"),
        ("flat.npz", ("--num-mixed", "2"), "--num-mixed"),
        ("images.npz", ("--method", "dp-mix-diff"), "backbone|synthetic"),
        ("images.npz", ("--backbone", "nowhere:make"), "--backbone"),
        ("images.npz", ("--batch-size", "81"), "batch_size"),
        ("images.npz", ("--num-base", "0", "--num-mixed", "0"), "num_base"),
        (
            "images.npz",
            ("--backbone", "test_fit_command:make_backbone", "--classes", "0,1"),
            "labels",
        ),
    ],
)
def test_bad_options_write_nothing(images, name, options, place):
    with pytest.raises(InvalidInputError, match=place):
        run(images, name, *options)
    assert not (images / "model").exists()
    assert not list(images.glob(".model*"))

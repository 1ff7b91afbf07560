"""What a certificate of a model says, and whatever does not fit is rejected."""

from __future__ import annotations

import hashlib
import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save

from privmix import InvalidInputError
from privmix.dpsgd import (
    LinearHead,
    TrainedModel,
    fit,
    verify_model,
)
from privmix.dpsgd.model_certificate import ModelCertificate, ModelFacts, read_state
from training_cases import Pooled, make_images, make_plan

IMAGES, LABELS = make_images(60)


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

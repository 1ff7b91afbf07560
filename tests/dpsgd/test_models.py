"""Small networks, and the libraries that they need."""

from __future__ import annotations

import pytest
import torch

from privmix import InvalidInputError
from privmix.dpsgd import (
    LinearHead,
    Network,
    make_model,
)
from training_cases import make_config


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

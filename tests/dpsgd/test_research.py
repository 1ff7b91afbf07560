"""What research may do at the price of a stamp."""

from __future__ import annotations

import json

import numpy as np
import pytest

from privmix import InvalidInputError
from privmix.dpsgd import (
    LinearHead,
    Network,
    fit,
    frechet_distance,
    verify_model,
)
from training_cases import Pooled, make_images, make_network, make_plan

IMAGES, LABELS = make_images(60)


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

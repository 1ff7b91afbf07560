"""Records of adaptive releases: how far apart their classes are."""

from __future__ import annotations

import numpy as np
import pytest

import privmix
from builders import make_schema
from privmix.learners.adaptive import read_rounds
from privmix.synthesis.round_model import round_model

pytestmark = pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")


@pytest.mark.parametrize("distance", [0.2, 0.6])
def test_classes_are_as_far_apart_as_the_first_rounds_say(tmp_path, distance):
    rng = np.random.default_rng(0)
    count, width, classes = 4000, 8, 4
    means = distance * np.linalg.qr(rng.normal(size=(width, width)))[0][:classes]
    y = rng.integers(0, classes, count)
    x = means[y] + rng.normal(0, 0.1, (count, width))
    schema = make_schema(classes, width, count)
    plan = privmix.plan_release(schema, target_epsilon=30, target_delta=1e-5, design="adaptive")
    release = privmix.release(x, y, plan, out=tmp_path / "release", test_seed=1)
    model = round_model(release, np.bincount(y) / count, read_rounds(release))
    seen = release.preprocessor.transform(x)[:, :width]
    true = np.array([seen[y == k].mean(axis=0) for k in range(classes)])
    scatter = ((true - seen.mean(axis=0)) ** 2).sum(axis=1).mean()
    found = ((model.means - model.prior @ model.means) ** 2).sum(axis=1).mean()
    # There are 32 coordinates of means: the noise at epsilon 30 moves their square by a few per cent.
    assert abs(found / scatter - 1) < 0.1
    offsets = model.means - model.means.mean(axis=0)
    due = true - true.mean(axis=0)
    cosines = (offsets * due).sum(axis=1)
    cosines /= np.linalg.norm(offsets, axis=1) * np.linalg.norm(due, axis=1)
    assert cosines.min() > 0.97

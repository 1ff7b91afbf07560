"""Class weights of private training: they change what a record's loss counts, never its bound."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from privmix import InvalidInputError
from privmix.cli import app

torch = pytest.importorskip("torch")

from privmix.dpsgd import (  # noqa: E402
    AugmentationPlan,
    DPMixClassifier,
    LinearHead,
    Network,
    check_training,
    make_model,
    plan_training,
)
from privmix.dpsgd.grid import HeadGrid  # noqa: E402
from privmix.dpsgd.linear_head import clipped_head_sum  # noqa: E402
from privmix.dpsgd.training_plan import class_weights  # noqa: E402

WEIGHTS = (0.2, 1.0, 5.0)


def gradient(features, targets, weights, clip_norm, class_weight=None):
    grid = HeadGrid(clip_norm, features.shape[1], weights.size)
    total = clipped_head_sum(features, targets, weights, grid, class_weight=class_weight)
    return np.asarray(total.shifted(0)) / (math.ldexp(1.0, grid.exponent) * features.shape[1])


def batch(count: int, views: int = 2):
    rng = np.random.default_rng(0)
    features = torch.tensor(rng.normal(size=(count, views, 5)), dtype=torch.float32)
    targets = torch.tensor(rng.dirichlet(np.ones(3), size=(count, views)))
    return features, targets, rng.normal(size=(3, 6))


@pytest.mark.parametrize("views", [2, 9])  # by integer factors, and formed
def test_a_views_loss_counts_by_its_label_weights(views):
    features, targets, weights = batch(4, views)
    found = gradient(features, targets, weights, 64.0, WEIGHTS)
    coef = torch.tensor(weights, requires_grad=True)
    inputs = torch.cat([features.double(), torch.ones(4, views, 1, dtype=torch.float64)], dim=2)
    logs = torch.log_softmax(inputs @ coef.T, dim=2)
    losses = -(targets * logs).sum(dim=2) * (targets @ torch.tensor(WEIGHTS, dtype=torch.float64))
    losses.mean(dim=1).sum().backward()
    np.testing.assert_allclose(found, coef.grad.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("views", [2, 9])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_a_records_gradient_stays_within_the_clip_norm(size, views):
    """What one record adds, in integers: the same bound, whatever its class counts."""
    features, targets, weights = batch(30, views)
    alone = [
        gradient(features[i : i + 1], targets[i : i + 1], weights, 0.5, [size * w for w in WEIGHTS])
        for i in range(30)
    ]
    assert max(np.linalg.norm(one) for one in alone) <= 0.5
    whole = gradient(features, targets, weights, 0.5, [size * w for w in WEIGHTS])
    np.testing.assert_allclose(whole, sum(alone), rtol=0, atol=1e-9)  # none depends on another


def test_without_weights_no_bit_changes():
    features, targets, weights = batch(7)
    plain = gradient(features, targets, weights, 0.5)
    np.testing.assert_array_equal(plain, gradient(features, targets, weights, 0.5, None))


def plan(**settings):
    return plan_training(
        target_epsilon=4.0, target_delta=1e-5, epochs=2, num_records=100, batch_size=50,
        augmentation=AugmentationPlan.plain(), **settings,
    )  # fmt: skip


def test_weights_are_part_of_the_plan_and_of_its_digest():
    sizes = {"classes": ["a", "b", "c"], "input_shape": (5,)}
    made = plan(**sizes, class_weight=WEIGHTS)
    assert type(made).from_json(made.to_json()).config.class_weight == WEIGHTS
    assert made.digest() != plan(**sizes).digest() and made.epsilon == plan(**sizes).epsilon
    assert "class_weight" not in plan(**sizes).to_json()
    for wrong in ((1.0, 2.0), (1.0, 2.0, 0.0), (1.0, 2.0, math.nan), "much"):
        with pytest.raises(InvalidInputError, match="class_weight"):
            plan(**sizes, class_weight=wrong)


def test_networks_refuse_them_by_name():
    made = plan(classes=[0, 1], input_shape=(1, 8, 8), class_weight=(1.0, 2.0))
    network = Network(make_model("cnn-26k", 1, 2))
    with pytest.raises(InvalidInputError, match="class_weight"):
        check_training(made, network)
    check_training(made, LinearHead(torch.nn.Flatten()))


def test_balanced_needs_public_shares():
    assert class_weights("balanced", (0.9, 0.1)) == pytest.approx((1 / 1.8, 5.0))
    assert class_weights(None, (0.9, 0.1)) is None
    for balance in (None, "unequal"):
        with pytest.raises(InvalidInputError, match="class_balance"):
            class_weights("balanced", balance)
    with pytest.raises(InvalidInputError, match="class_weight"):
        class_weights("even", (0.5, 0.5))


@pytest.mark.parametrize("given", [{0: 1.0, 1: 9.0}, {1.0, 9.0}, ("a", "b"), 9.0, [[1.0], [9.0]]])
def test_weights_that_are_no_list_of_numbers(given):
    with pytest.raises(InvalidInputError, match="class_weight: expected a number for each class"):
        class_weights(given, None)
    with pytest.raises(InvalidInputError, match="class_balance: expected a number for each class"):
        class_weights("balanced", given)


def test_shares_that_do_not_add_up_to_1():
    with pytest.raises(InvalidInputError, match=r"class_balance: .* add up to 1, got 1\.1"):
        class_weights("balanced", (0.9, 0.2))
    assert class_weights("balanced", (0.5, 0.333, 0.167)) is not None  # stated with few digits


def rare_records(count: int):
    """Two classes that overlap, one of them rare, and a fresh set to be judged by."""
    rng = np.random.default_rng(1)
    labels = (rng.random(count) < 0.1).astype(int)
    inputs = rng.normal(size=(count, 4)) / 2 + np.where(labels == 1, 1.0, 0.0)[:, None] * 0.5
    return inputs / 4, labels


def recalls(model) -> list[float]:
    inputs, labels = rare_records(4000)
    found = model.predict(inputs)
    return [float(np.mean(found[labels == k] == k)) for k in (0, 1)]


@pytest.mark.filterwarnings("ignore::privmix.running.unrecorded.UnrecordedSpendingWarning")
def test_the_rare_class_is_found():
    """Of 8 fits each: 0.38 (standard deviation 0.024) without weights, and 0.686 (0.014) with them."""
    settings = {"classes": [0, 1], "num_records": 2000, "batch_size": 1000, "epochs": 40}
    settings |= {"learning_rate": 12.0, "feature_cache": "views"}
    inputs, labels = rare_records(2000)
    plain, weighted = (
        DPMixClassifier(torch.nn.Flatten(), 30.0, **settings, **more).fit(inputs, labels)
        for more in ({}, {"class_weight": "balanced", "class_balance": (0.9, 0.1)})
    )
    assert recalls(plain)[1] < 0.5
    assert min(recalls(weighted)) > 0.6


def test_the_command_takes_them(tmp_path):
    inputs, labels = rare_records(300)
    np.savez(tmp_path / "d.npz", x=inputs, y=labels)
    facts = {"classes": [0, 1], "num_records": 300, "num_features": 4, "feature_clip_norm": 1.0}
    (tmp_path / "s.json").write_text(json.dumps(facts | {"class_balance": [0.9, 0.1]}))
    (tmp_path / "without.json").write_text(json.dumps(facts))

    def run(schema: str, weight: str, out: str):
        words = ["fit", tmp_path / "d.npz", "--features-key", "x", "--label-key", "y", "--schema"]
        words += [tmp_path / schema, "--class-weight", weight, "--batch-size", 100, "--epochs", 1]
        words += ["--epsilon", 8, "--delta", 1e-5, "--test-seed", 1, "--out", tmp_path / out]
        return CliRunner().invoke(app, [str(word) for word in words])

    for weight, due in (("balanced", [1 / 1.8, 5.0]), ("1,9", [1.0, 9.0])):
        assert run("s.json", weight, f"m{weight}").exit_code == 0
        stated = json.loads((tmp_path / f"m{weight}" / "certificate.json").read_text())
        assert stated["config"]["class_weight"] == pytest.approx(due)
    for schema, weight in (("without.json", "balanced"), ("s.json", "much"), ("s.json", "1,2,3")):
        assert isinstance(run(schema, weight, "no").exception, InvalidInputError)

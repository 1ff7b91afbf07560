"""Plans of private training: what is left open is solved for within the budget."""

from __future__ import annotations

import numpy as np
import pytest

from privmix import InvalidInputError
from privmix.accounting import account
from privmix.dpsgd import (
    AugmentationPlan,
    TrainingPlan,
    plan_training,
    trainer,
)
from privmix.dpsgd.training_plan import usual_batch_size
from training_cases import make_config

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
    again = TrainingPlan.from_json(plan.to_json())
    assert again == plan
    assert again.parameters_digest() == plan.parameters_digest()
    told = plan.model_copy(update={"epsilon": 9.0})
    assert told.parameters_digest() == plan.parameters_digest() and told.digest() != plan.digest()
    other = plan.model_copy(update={"delta": 1e-6})
    assert other.parameters_digest() != plan.parameters_digest()


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


def test_no_step_beyond_the_budget():
    config = make_config()
    steps = trainer.Steps.__new__(trainer.Steps)
    steps.config = config
    with pytest.raises(RuntimeError, match="budget is spent"):
        steps.gradient(config.num_steps, np.zeros(3))


@pytest.mark.parametrize(
    ("count", "batch"), [(30, 30), (300, 64), (6000, 300), (20_000, 1000), (60_000, 1000)]
)
def test_a_step_takes_a_twentieth_of_the_records_unless_told_otherwise(count, batch):
    assert usual_batch_size(count) == batch
    settings = SETTINGS | {"num_records": count, "batch_size": None}
    plan = plan_training(target_epsilon=8.0, target_delta=1e-5, epochs=1, **settings)
    assert plan.config.batch_size == batch
    with pytest.raises(InvalidInputError, match="num_records"):
        plan_training(
            target_epsilon=8.0, target_delta=1e-5, epochs=1, **settings | {"num_records": 0}
        )

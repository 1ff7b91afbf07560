"""Private feature selection on the DFS paper's synthetic setting, at a size for tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from privmix.accounting import gdp_mu_from

PATH = Path(__file__).parents[2] / "experiments" / "dfs" / "recovery.py"
pytestmark = pytest.mark.skipif(not PATH.is_file(), reason="needs a checkout with its experiments")


@pytest.fixture(scope="module")
def dfs():
    spec = importlib.util.spec_from_file_location("dfs_recovery", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_probability_equals_simulation(dfs):
    """40,000 draws of the distances themselves (false alarm 1e-8)."""
    setting = dfs.Setting(num_records=1000, num_features=60, support=4, distance=0.5)
    gdp_mu = gdp_mu_from(1.0, 1e-5)
    per_class = setting.num_records / 2
    stddev = np.hypot(np.sqrt(2 / per_class), np.sqrt(2) * setting.clip_norm / gdp_mu / per_class)
    distances = stddev * np.random.default_rng(0).standard_normal((40_000, 60))
    distances[:, :4] += setting.distance
    found = np.abs(distances)
    hits = int((found[:, :4].min(axis=1) > found[:, 4:].max(axis=1)).sum())
    low, high = binom.interval(1 - 1e-8, 40_000, setting.probability(gdp_mu))
    assert low <= hits <= high


@pytest.mark.parametrize("epsilon", [0.4, 0.7, 1.0])
def test_the_support_is_found_as_often_as_theory_says(dfs, epsilon):
    """False alarm 1e-8 each; noise wrong by 1.5 moves one of the probabilities out of its range."""
    setting = dfs.Setting(num_records=1000, num_features=100, support=4, distance=0.75)
    trials = 250
    rates = dfs.success_rates(setting, epsilon, trials, np.random.default_rng(1))
    low, high = binom.interval(1 - 1e-8, trials, rates["theory"])
    assert low <= round(rates["distance"] * trials) <= high


def test_the_probabilities_would_notice_a_wrong_scale(dfs):
    setting = dfs.Setting(num_records=1000, num_features=100, support=4, distance=0.75)
    for factor in (1 / 1.5, 1.5):
        seen = []
        for epsilon in (0.4, 0.7, 1.0):
            gdp_mu = gdp_mu_from(epsilon, 1e-5)
            low, high = binom.interval(1 - 1e-8, 250, setting.probability(gdp_mu))
            seen.append(not low <= 250 * setting.probability(gdp_mu * factor) <= high)
        assert any(seen)


def test_the_t_statistic_does_worse_at_small_epsilon_and_as_well_at_large(dfs):
    """At epsilon 1 it succeeds at less than half of the distance's rate (false alarm below 1e-8)."""
    setting = dfs.Setting(num_records=1000, num_features=100, support=4, distance=0.75)
    small = dfs.success_rates(setting, 1.0, 200, np.random.default_rng(2))
    assert small["t-test"] < small["distance"] / 2
    large = dfs.success_rates(setting, 50.0, 50, np.random.default_rng(3))
    assert large["t-test"] == large["distance"] == 1.0


@pytest.fixture
def records():
    """200 records of unit length in two classes, which differ in the first three of ten features."""
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = rng.standard_normal((200, 10))
    x[:, :3] += 1.5 * (y[:, None] - 0.5)
    return x / np.linalg.norm(x, axis=1, keepdims=True), y


def test_algorithm_1_ranks_and_scales_by_the_records_themselves(records):
    from experiments.dfs import common

    x, y = records
    columns, rows = common.algorithm_1(x, y, 2, 3, 1e9, np.random.default_rng(0))
    assert columns.tolist() == [0, 1, 2]
    assert np.allclose(rows, x[:, :3], atol=1e-6)
    columns, rows = common.algorithm_1(x, y, 2, 3, 1.0, np.random.default_rng(0))
    due = np.linalg.norm(x[:, :3], axis=1).max() * np.sqrt(2 * np.log(1e5))
    # 600 normal draws: a standard deviation 20 % off has a probability below 1e-9.
    assert np.std(rows - x[:, :3]) == pytest.approx(due, rel=0.2)


@pytest.mark.parametrize("attack", ["scale", "selection", "rows"])
def test_algorithm_1_breaks_its_claim_and_the_library_keeps_its_own(attack):
    """An attack that fails would prove nothing: 0."""
    from experiments.dfs import algorithm1

    found = algorithm1.proven(attack, 1.0, 400)
    assert found["proven"] > 1.5 * found["claimed"]
    assert algorithm1.sound(1.0)["certified"] <= 1.0


def test_attacked_data_sets_are_neighbours():
    from experiments.dfs import algorithm1

    for attack in ("scale", "selection"):
        first, second, _ = algorithm1.neighbours(attack)
        assert (first != second).any(axis=1).sum() == 1


def test_theorem_6_speaks_of_noisy_test_records():
    """The claim is met by records as noisy as the training records, and not by clean ones."""
    from experiments.dfs import asymptotics

    found = asymptotics.theorem_6(100, "fixed s", 1.0, 40)
    assert found["claimed"] == pytest.approx(found["noisy test"], rel=0.03)
    assert found["clean test"] < 0.7 * found["claimed"]
    small, large = (
        asymptotics.theorem_6(size, "Algorithm 1", 10.0, 10)["noisy test"] for size in (20, 2500)
    )
    assert small < 40 and large > 49


def test_lemma_2_fails_for_noisy_sums():
    from experiments.dfs import asymptotics

    ratios = {
        name: asymptotics.lemma_2(name, 3.5, 500_000)["ratio"] for name in ("records", "noisy sums")
    }
    assert ratios["noisy sums"] > ratios["records"] > 0.8


def test_fishers_rule_and_both_criteria(records):
    from experiments.dfs import common

    x, y = records
    found = common.moments(x, y, 2)
    for criterion in (common.distance, common.t_statistic):
        assert common.best(criterion(found), 3).tolist() == [0, 1, 2]
    assert common.fisher_error(found, x, y) < 15


@pytest.mark.parametrize("noise", ["none", "printed", "privmix"])
@pytest.mark.parametrize("criterion", ["distance", "t-test"])
def test_every_way_to_select_runs(noise, criterion, records, monkeypatch):
    from experiments.dfs import common, fisher

    x, y = records
    monkeypatch.setattr(fisher, "CLASSES", 2)
    monkeypatch.setattr(fisher, "split", lambda dataset, quick: common.Split(x, y, x, y))
    key = {"dataset": "mnist", "noise": noise, "criterion": criterion, "epsilon": 50.0}
    assert fisher.error({**key, "selected": 3, "run": 0}, True)["error"] < 30

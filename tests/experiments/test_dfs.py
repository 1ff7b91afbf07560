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

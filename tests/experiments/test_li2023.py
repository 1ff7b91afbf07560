"""The claims of the DPFMix and NeuroMixGDP experiments, at sizes for tests."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    not (ROOT / "experiments").is_dir(), reason="needs a checkout with its experiments"
)


@pytest.mark.parametrize(
    ("steps", "epsilon"), [(10, 3.78), (50, 3.29), (200, 2.86), (50_000, 2.06)]
)
def test_the_central_limit_says_less_than_the_truth_and_others_more(steps, epsilon):
    from experiments.li2023.accountants import readings

    found = readings(steps)
    assert found["gdp"] == pytest.approx(2.0, abs=0.001)
    assert found["pld"] == pytest.approx(epsilon, abs=0.01)
    assert found["gdp"] < found["pld_lower"] <= found["pld"] < found["rdp"] < found["moments"]
    assert found["l2_distance"] < found["sup_distance"]


def test_accountants_ask_for_noise_in_the_order_of_the_papers_figure():
    from experiments.li2023.noise import NAMES, noise_multiplier

    noise = {name: noise_multiplier(name, 64) for name in NAMES}
    order = ("poisson-gdp", "poisson-pld", "poisson-rdp", "poisson-ma", "uniform-rdp")
    assert [noise[name] for name in order] == sorted(noise[name] for name in order)
    assert len({*noise.values()}) == len(NAMES)
    assert noise["poisson-gdp"] < noise["uniform-gdp"] < noise["uniform-rdp"]


@pytest.mark.parametrize("gdp_mu", [1 / 3, 1.0])
def test_the_simulated_best_mix_size_is_within_a_factor_of_two_of_theory(gdp_mu):
    from experiments.li2023.optimal_degree import simulated

    found = simulated(200, 600, gdp_mu, 5, 100)
    assert 0.5 <= found["ratio"] <= 2.0
    # Sizes up to eight times too small or too large were tried.
    assert found["error"] < found["error_of_zero"]


def test_hierarchical_rows_cost_more_than_claimed():
    from experiments.li2023.hierarchical_cost import costs

    found = costs(1.0, 0.03)
    assert found["claimed_central_limit"] == pytest.approx(1.0, abs=1e-6)
    assert found["balanced"] == pytest.approx(7.60, abs=0.01)
    assert found["random"] == pytest.approx(7.62, abs=0.01)


def test_sound_noise_exceeds_the_claimed_and_more_so_for_few_open_classes():
    from experiments.li2023.rows import noise_at

    claimed = noise_at(1.0, 10_000, 64, sound=False)
    poisson = noise_at(1.0, 10_000, 64, sound=True)
    hierarchical = noise_at(1.0, 10_000, 64, 0.1, sound=True)
    assert claimed < poisson < hierarchical
    assert noise_at(1.0, 10_000, 64, 0.1, sound=False) == claimed


def test_poisson_labels_collapse_and_hierarchical_do_not(monkeypatch):
    from experiments.li2023 import label_collapse

    monkeypatch.setattr(label_collapse, "SIZE", 10_000)
    monkeypatch.setattr(label_collapse, "ROWS", 300)
    poisson = label_collapse.figures(1024, 1.0)
    hierarchical = label_collapse.figures(1024, 0.3)
    # Without collapse, a class is open or closed: the weights' spread is about 1 / 3 * 0.46.
    assert hierarchical["signal"] == pytest.approx(math.sqrt(0.3 * 0.7) / 3, rel=0.15)
    assert poisson["signal"] < hierarchical["signal"] / 4


def blobs(num_records=600, num_classes=4, num_features=12, spread=0.1):
    import experiments.harness  # puts utility on the path  # noqa: F401

    from utility import DataSet, unit_norm

    rng = np.random.default_rng(0)
    y = np.arange(2 * num_records) % num_classes
    centres = rng.standard_normal((num_classes, num_features))
    x = unit_norm(centres[y] + spread * rng.standard_normal((2 * num_records, num_features)))
    return DataSet(x[:num_records], y[:num_records], x[num_records:], y[num_records:])


class TestNeuralCollapse:
    def test_a_simplex_without_spread_has_collapsed(self):
        from experiments.li2023.neural_collapse import collapse, mean_cosine

        y = np.repeat(np.arange(5), 20)
        x = np.eye(5)[y]
        assert collapse(x, y) == pytest.approx(0, abs=1e-12)
        assert mean_cosine(x, y) == pytest.approx(-1 / 4)

    def test_the_measure_is_the_papers(self):
        from experiments.li2023.neural_collapse import class_means, collapse

        data = blobs(400)
        x, y = data.x_train.astype(float), data.y_train
        means = class_means(x, y)
        rest = x - means[y]
        centred = means - x.mean(axis=0)
        within, between = rest.T @ rest / len(x), centred.T @ centred / len(means)
        # The records' mean is one of the means: K - 1 directions, and one of rounding.
        trace = np.trace(within @ np.linalg.pinv(between, rcond=1e-10, hermitian=True))
        assert collapse(x, y) == pytest.approx(trace / len(means), rel=1e-6)
        wide = blobs(400, spread=0.4)
        assert collapse(wide.x_train, wide.y_train) > 4 * collapse(x, y)

    def test_distances_by_brute_force(self):
        from experiments.li2023.neural_collapse import distance_to_others

        data = blobs(60)
        rng = np.random.default_rng(3)
        due = []
        for i, j in rng.integers(0, 60, (40, 2)):
            mixed = (data.x_train[i] + data.x_train[j]) / 2
            others = ~np.isin(data.y_train, data.y_train[[i, j]])
            due.append(np.linalg.norm(data.x_train[others] - mixed, axis=1).min())
        assert distance_to_others(data, 40, 3) == pytest.approx(np.mean(due), rel=1e-4)

    def test_mixtures_leave_their_class_for_the_mean(self):
        from experiments.li2023.neural_collapse import figures

        data = blobs()
        one, many = figures(data, 1, 300), figures(data, 64, 300)
        assert one["held"] > 0.95 > 0.8 > many["held"]
        assert one["to_own"] == pytest.approx(one["to_mean"], rel=0.05)
        assert many["collapse"] > 4 * one["collapse"]


class TestCurves:
    def test_a_row_states_all_that_a_run_may_change(self, tmp_path, monkeypatch):
        from experiments.harness import Experiment
        from experiments.li2023 import cells

        given = argparse.Namespace(
            quick=True, out=str(tmp_path), datasets=["blobs"], cache=tmp_path, seeds=1, epochs=2, learner="kl",
            records=None,
        )  # fmt: skip
        measured = []
        monkeypatch.setattr(cells, "load", lambda *_: blobs(200))
        monkeypatch.setattr(
            cells, "figures", lambda data, setting, *_: measured.append(setting) or {"accuracy": 1}
        )
        experiment = Experiment(str(tmp_path / "paper" / "curve.py"), cells.KEYS, given)
        fits, too_large = (cells.Setting(1.0, "claimed", size, 0.1) for size in (20, 21))
        cells.measure(experiment, given, [fits, too_large])
        assert measured == [fits]
        row = experiment.rows[0]
        assert (row["mix_size"], row["class_prob"], row["records"]) == ("20", "0.1", "200")

    def test_sound_rows_cost_what_is_asked_and_claimed_rows_more(self):
        from experiments.li2023.cells import Setting, figures

        found = {
            accounting: figures(blobs(), Setting(8.0, accounting, 16, 0.25), 1, 2)
            for accounting in ("claimed", "sound")
        }
        assert found["sound"]["certified"] <= 8.0 < 1.5 * 8 < found["claimed"]["certified"]
        assert found["sound"]["noise"] > 1.5 * found["claimed"]["noise"]

    def test_rows_without_noise_are_learnt_from(self):
        from experiments.li2023.cells import Setting, figures

        found = figures(blobs(), Setting(float("inf"), "none", 8), 2, 20)
        assert found["accuracy"] > 90
        assert found["seeds"] == 2


def test_random_weights_have_more_noise_at_one_cost():
    from experiments.li2023.weights import figures

    given = argparse.Namespace(seeds=1, quick=True)
    average = figures(blobs(), "average", 1.0, 16, 8.0, given)
    random = figures(blobs(), "alpha 0.5", 4.0, 16, 8.0, given)
    assert average["certified"] == pytest.approx(random["certified"], rel=0.01)
    assert random["noise"] == pytest.approx(4 * average["noise"], rel=0.01)
    assert average["kl"] > 60  # of 100 on blobs that hardly overlap; chance is below 50


def test_renyi_rows_have_more_noise_than_those_of_the_central_limit():
    from experiments.li2023.pixels import figures

    found = {name: figures(blobs(), name, 8.0, 1, 2) for name in ("u-rdp", "p-gdp", "none")}
    assert found["none"]["noise"] == 0 < 1.2 * found["p-gdp"]["noise"] < found["u-rdp"]["noise"]
    assert found["u-rdp"]["certified"] < found["p-gdp"]["certified"]


def test_records_themselves_are_learnt_from_without_privacy():
    from experiments.li2023.utility import without_privacy

    found, cost = without_privacy(blobs(), 8.0, 0, 20)
    assert found > 0.95
    assert cost == math.inf

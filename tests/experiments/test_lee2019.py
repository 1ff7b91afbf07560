"""The claims of the DPMix experiments, at sizes for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    not (ROOT / "experiments").is_dir(), reason="needs a checkout with its experiments"
)


def test_more_records_in_a_row_need_less_noise():
    from experiments.lee2019.privacy import epsilons

    stddev = 0.2
    found = [epsilons(size, stddev)["theorem_1"] for size in (4, 16, 64)]
    assert found == sorted(found, reverse=True)
    low = epsilons(16, 0.0625)  # the low privacy regime, where Theorem 3 is the smaller
    assert low["theorem_3"] < low["theorem_1"]
    high = epsilons(16, 6.25)
    assert high["theorem_1"] < high["theorem_3"]


def test_a_release_has_the_papers_noise_and_costs_no_more_than_it_says(rng):
    from experiments.lee2019.mixing_degree import figures, paper_noise

    from utility import DataSet

    y = rng.integers(10, size=600)
    x = (np.eye(784, dtype=np.float32)[y] * 0.5).astype(np.float32)
    found = figures(DataSet(x, y, x[:50], y[:50]), 8, 1000.0)
    assert found["noise"] == paper_noise(8, 1000.0, 600)
    assert 0 < found["certified"] <= 1000.0
    assert paper_noise(8, 2000.0, 600) < found["noise"]


def easy_pixels(rng, count=800):
    """Made records of MNIST's shape: bars in places that tell the class."""
    from utility import DataSet

    y = rng.integers(10, size=count)
    images = np.full((count, 28, 28), -0.5, dtype=np.float32)
    for k in range(10):
        images[y == k, 2 * k : 2 * k + 4, 4:24] = 0.5
    x = images.reshape(count, 784)
    return DataSet(x, y, x[:100], y[:100])


def test_the_network_takes_pixels_and_means_of_pixels(rng):
    torch = pytest.importorskip("torch")
    from experiments.lee2019.common import Network, pool

    x = easy_pixels(rng, 3).x_train
    for pooled in (False, True):
        torch.manual_seed(0)
        module = Network((1, 28, 28), pooled)
        assert module(torch.from_numpy(x)).shape == (3, 10)
    seen = []
    module.network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    module(torch.from_numpy(x))
    pooled = pool(x, (1, 28, 28)).reshape(3, 1, 14, 14)
    np.testing.assert_allclose(seen[0].numpy(), 2 * pooled, atol=1e-6)


def test_a_network_learns_from_rows_without_noise_by_the_papers_schedule(rng):
    pytest.importorskip("torch")
    from experiments.lee2019 import common
    from experiments.lee2019.network import figures

    schedule = common.papers_schedule()
    assert [*schedule["decay_epochs"]] == [10, 20, 30, 40]
    schedule |= {"epochs": 8, "learning_rate": 3e-3}
    data = common.with_validation(easy_pixels(rng, 1500))
    found = figures("mnist", data, float("inf"), 2, pooled=True, schedule=schedule, seeds=1)
    assert found["cnn"] > 0.6
    assert (found["noise"], found["certified"]) == (0, float("inf"))


def test_projected_records_have_the_noise_that_the_paper_prints_or_more(rng):
    pytest.importorskip("torch")
    from experiments.lee2019.table2 import projected, projection_stddev, sound

    assert projection_stddev(np.diag([3.0, 4.0]), 2.0, 0.5) == pytest.approx(4 * 2**0.5 / 2)
    data = easy_pixels(rng)
    made, seen, stddev = projected(data, "projection-20", 20.0, 0)
    assert (made.features - seen.x_train).std() == pytest.approx(stddev, rel=0.05)
    assert (made.label_weights.argmax(axis=1) == data.y_train).all()
    assert set(np.unique(made.label_weights)) == {0, 1}
    labels = projected(data, "projection-20-noisy", 20.0, 0)[0].label_weights
    assert (labels - made.label_weights).std() == pytest.approx(stddev, rel=0.05)
    _, _, more = projected(data, "projection-20-record", 20.0, 0)
    assert more == pytest.approx(28 * stddev)
    for method, width in (("local-sound", 784), ("projection-20-sound", 20)):
        made, seen, epsilon = sound(data, method, 20.0, 0)
        assert made.features.shape == (800, width) and seen.x_test.shape == (100, width)
        assert epsilon <= 20


def test_only_standardized_rows_are_learnt_from_in_the_ablation(rng):
    torch = pytest.importorskip("torch")
    from experiments.lee2019.ablation import ARMS, figures, published_rows
    from experiments.lee2019.common import fully_connected, with_validation
    from experiments.mixing import Rows

    data = with_validation(easy_pixels(rng, 2000))
    assert len(data.x_train) == 1000 and len(data.x_test) == 1100
    made = published_rows(data, float("inf"))
    assert isinstance(made, Rows) and made.mix_size == 64

    def accuracy(arm):
        torch.manual_seed(0)
        return figures(made, data, arm, fully_connected(784), 5)["set aside"]

    assert set(ARMS) == {"all", "clipped", "raw", "raw-clipped", "he"}
    assert accuracy("all") > accuracy("raw") + 0.2


def test_smoothing_brings_noisy_mixtures_nearer(rng):
    from experiments.lee2019.samples import mixtures, smoothed

    plain, noisy = mixtures(easy_pixels(rng).x_train, 16, 0.6)
    assert (noisy - plain).std() == pytest.approx(0.6, rel=0.02)
    assert np.abs(smoothed(noisy, (1, 28, 28)) - plain).mean() < np.abs(noisy - plain).mean() / 2


def test_a_linear_model_has_its_sweet_spot_as_well():
    from experiments.lee2019.linear_degree import figures

    found = {size: figures(1500, size, 100.0, 3) for size in (1, 24, 1500)}
    for name in ("centred", "least-squares"):
        assert found[24][name] < found[1500][name]
        assert found[24][name] < found[1][name]
    # A row of all records is the same row each time: no better than the best constant.
    assert found[1500]["centred"] > 0.5
    assert found[24]["bound"] < found[1500]["bound"]


def test_the_low_privacy_variant_has_a_plan_of_less_noise_than_its_theorem():
    from experiments.lee2019.low_privacy import figures

    little, much = figures(1000.0, 8, 800), figures(2.0, 8, 800)
    assert little["theorem_3"] < little["theorem_1"]
    assert much["theorem_1"] < much["theorem_3"]
    for found in (little, much):
        assert found["transposed"] < found["theorem_3"]


def test_papers_tables_are_whole():
    folder = ROOT / "experiments" / "lee2019"
    sizes = {"network": 60, "mixing_degree": 60, "table2": 28}
    for name, rows in sizes.items():
        assert len((folder / f"{name}.paper.csv").read_text().splitlines()) == rows + 1

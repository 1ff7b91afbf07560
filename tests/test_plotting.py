import sys
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest

import builders
from privmix._validate import InvalidInputError
from privmix.accounting import (
    GaussianEvent,
    PoissonGaussianEvent,
    UniformGaussianEvent,
    epsilon_at,
    tradeoff_curve,
)
from privmix.planning.rule import predicted_errors, recommend_design
from privmix.plotting import (
    plot_budget,
    plot_epsilon,
    plot_predicted_errors,
    plot_regression,
    plot_singular_values,
    plot_tradeoff,
    plot_training,
)
from privmix.running.ledger import Ledger
from privmix.theory.regression import simulate_regression

EVENT = PoissonGaussianEvent(sampling_prob=0.01, noise_multiplier=1.0, count=100)
UNIFORM = UniformGaussianEvent(num_records=100, mix_size=5, noise_multiplier=2.0, count=3)


@pytest.fixture(autouse=True)
def plt():
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def labels(ax):
    return [line.get_label() for line in ax.lines]


def test_the_tradeoff_of_a_sampled_event():
    ax = plot_tradeoff(EVENT)
    certified, approximation, diagonal = ax.lines
    assert certified.get_label() == "certified"
    assert "no guarantee" in approximation.get_label()
    assert diagonal.get_xydata().tolist() == [[0.0, 1.0], [1.0, 0.0]]
    fpr, fnr = tradeoff_curve(EVENT, num_points=401)
    assert np.array_equal(certified.get_xdata(), fpr)
    assert np.array_equal(certified.get_ydata(), fnr)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("false-positive rate", "false-negative rate")


def test_what_is_gaussian_is_called_exact_and_what_has_no_limit_is_left_out():
    assert "exact" in labels(plot_tradeoff(GaussianEvent(noise_multiplier=2.0)))[1]
    assert labels(plot_tradeoff(UNIFORM)) == ["certified", "perfect privacy"]
    assert labels(plot_epsilon(UNIFORM)) == ["certified"]


def test_epsilon_over_delta():
    ax = plot_epsilon(EVENT)
    certified, approximation = ax.lines
    assert dict(zip(*certified.get_data(), strict=True)) == epsilon_at(EVENT)
    assert (approximation.get_ydata() <= certified.get_ydata()).all()


def test_a_plan_is_drawn_by_its_event_and_on_the_axes_given(plt):
    plan = builders.make_plan(builders.make_schema(), "poisson")
    _, ax = plt.subplots()
    assert plot_tradeoff(plan, ax) is ax
    assert labels(plot_tradeoff(plan.event))[1] == labels(ax)[1]


def test_a_simulation():
    found = simulate_regression([2.0, 8.0], num_records=30, num_mixtures=60, num_repetitions=3)
    ax = plot_regression(found, label="least squares")
    assert np.array_equal(ax.lines[0].get_ydata(), np.median(found.errors, axis=0))
    assert labels(ax) == ["least squares"]
    assert plot_regression(found).get_legend() is None


def test_other_things_are_refused():
    with pytest.raises(InvalidInputError, match="event_or_certificate"):
        plot_tradeoff(1.0)


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"privmix\[plot\]"):
        plot_tradeoff(EVENT)


class Rows:
    """Released rows: noise of a known size, and a direction with signal."""

    def __init__(self, signal: float) -> None:
        rng = np.random.default_rng(0)
        self.features = rng.normal(0, 0.5, (400, 20)).astype(np.float32)
        self.features[:, 0] += signal
        self.feature_noise_stddev = 0.5


def test_singular_values_stand_out_of_the_noise_where_there_is_signal():
    """Noise alone passes 1.1 times its limit with probability below exp(-400 * 0.12^2 / 2) = 0.06;
    the seed is one of the others.
    """
    for signal, above in ((0.0, 0), (1.0, 1)):
        ax = plot_singular_values(Rows(signal))
        values, edge = ax.lines
        limit = edge.get_ydata()[0]
        assert limit == pytest.approx(1 + np.sqrt(20 / 400))
        assert int((values.get_ydata() > 1.1 * limit).sum()) == above
        assert len(values.get_xdata()) == 20


def test_errors_of_designs_over_epsilon():
    epsilons = [0.25, 1.0, 4.0]
    errors = predicted_errors(
        num_records=1000, num_classes=30, num_features=50, epsilons=epsilons, delta=1e-5
    )
    ax = plot_predicted_errors(errors, epsilons)
    assert labels(ax) == list(errors) and len({line.get_linestyle() for line in ax.lines}) > 1
    assert errors["hybrid"] == sorted(errors["hybrid"], reverse=True)
    best = recommend_design(
        num_records=1000, num_classes=30, num_features=50, epsilon=1.0, delta=1e-5
    )[0]
    assert errors[best.design][1] == best.predicted_error


def test_the_budget_over_time(tmp_path):
    book = Ledger(tmp_path / "l.db").open_dataset("people", epsilon_limit=5.0, delta=1e-5)
    for digest in "12":
        book.record("people", GaussianEvent(noise_multiplier=8.0), digest=digest * 64)
    balance = book.balance("people")
    hostile = SimpleNamespace(  # as a ledger that was imported may have it
        dataset_id="people\x1b", charges=balance.charges, epsilon_limit=balance.epsilon_limit
    )
    ax = plot_budget(hostile)
    used, points, limit = ax.lines
    assert list(points.get_ydata()) == [one.epsilon_spent for one in balance.charges]
    assert limit.get_ydata()[0] == 5.0 and "holds" in limit.get_label()
    assert used.get_drawstyle() == "steps-post" and ax.get_title() == "people\\x1b"


def test_a_training_over_its_steps():
    ax = plot_training({1: 0.1, 2: 0.2}, {1: 3.0, 2: 1.0})
    assert list(ax.lines[0].get_ydata()) == [3.0, 1.0]
    right = next(other for other in ax.figure.axes if other is not ax)
    assert list(right.lines[0].get_ydata()) == [0.1, 0.2]

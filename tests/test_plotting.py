import sys

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
from privmix.plotting import plot_epsilon, plot_regression, plot_tradeoff
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

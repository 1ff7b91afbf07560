import math

import numpy as np
import pytest
from scipy import optimize

from privmix._validate import InvalidInputError
from privmix.accounting import (
    gdp_mu_from,
)
from privmix.theory.noise import (
    OPTIMAL_NOISE_MULTIPLIER,
    central_limit_noise_multiplier,
)
from privmix.theory.regression import (
    RegressionSetting,
    limiting_regression_error_bound,
    optimal_mix_size,
    optimal_rate,
    regression_error_bound,
    simulate_regression,
)

SETTING = RegressionSetting(
    num_records=10**6,
    num_mixtures=2 * 10**6,
    num_features=5,
    gdp_mu=1.0,
    coefficient_norm=2.0,
    residual_stddev=1.0,
    smallest_eigenvalue=0.5,
    largest_eigenvalue=2.0,
    feature_clip_norm=4.0,
    label_clip_norm=8.0,
)


@pytest.mark.parametrize("gdp_mu", [0.01, 0.268051, 1.0, 5.0])
def test_the_optimal_rate_is_the_maximum(gdp_mu):
    found = optimize.minimize_scalar(
        lambda nu: -nu * math.log1p(gdp_mu**2 / nu**2),
        bounds=(1e-3 * gdp_mu, 10 * gdp_mu),
        method="bounded",
        options={"xatol": 1e-9 * gdp_mu},
    )
    assert optimal_rate(gdp_mu) == pytest.approx(found.x, rel=1e-6)
    assert optimal_rate(gdp_mu) == pytest.approx(0.50498 * gdp_mu, rel=1e-5)


def test_the_optimal_mix_size():
    gdp_mu = gdp_mu_from(1.0, 1e-5)
    best = optimal_mix_size(50000, 50000, gdp_mu)
    assert best == pytest.approx(30.267, abs=1e-3)
    noise = central_limit_noise_multiplier(best / 50000, 50000, gdp_mu)
    assert noise == pytest.approx(OPTIMAL_NOISE_MULTIPLIER) == pytest.approx(0.79215, abs=1e-5)
    assert optimal_mix_size(100, 1, gdp_mu=50.0) == 100  # never more than everybody


# Error bounds


def test_the_bias_is_smallest_at_the_optimum():
    best = optimal_mix_size(SETTING.num_records, SETTING.num_mixtures, SETTING.gdp_mu)
    finite = [regression_error_bound(SETTING, best * f).bias for f in (0.97, 1.0, 1.03)]
    rate = optimal_rate(SETTING.gdp_mu)
    limiting = [limiting_regression_error_bound(SETTING, rate * f).bias for f in (0.97, 1, 1.03)]
    assert np.argmin(finite) == np.argmin(limiting) == 1


def test_the_limit_of_the_bound():
    rate = 0.7
    mix_size = rate * SETTING.num_records / math.sqrt(SETTING.num_mixtures)
    finite = regression_error_bound(SETTING, mix_size)
    limiting = limiting_regression_error_bound(SETTING, rate)
    assert finite.bias == pytest.approx(limiting.bias, rel=1e-3)
    assert finite.total == limiting.variance + finite.bias


def test_the_bound_is_equation_3():
    n, t, m = 300, 900, 10.0
    setting = SETTING.model_copy(update={"num_records": n, "num_mixtures": t, "label_balance": 2.0})
    alpha = math.sqrt(n / t)
    c_x, c_y = 4 * math.sqrt(5) / 2, 8 * math.sqrt(5)
    signal = m * (n - m) / n * math.log(1 + n**2 / (m**2 * t))
    bias = (2 * c_x * 2 + 2 * c_y) / (math.sqrt(0.5) * (1 - alpha)) / math.sqrt(signal)
    variance = 2 * math.sqrt(5) * math.log(n) / math.sqrt(n) * (1 + alpha) * 2 / (1 - alpha)
    assert regression_error_bound(setting, m) == pytest.approx((bias, variance))


# Simulation


@pytest.mark.parametrize("noise_aware", [False, True])
def test_the_simulated_error_is_smallest_near_the_optimum(noise_aware):
    n, t, gdp_mu = 500, 1000, 3.0
    best = optimal_mix_size(n, t, gdp_mu)
    found = simulate_regression(
        [best * 2.0**e for e in (-4, -3, -2, -1, 0, 1, 2, 3)],
        num_records=n,
        num_mixtures=t,
        gdp_mu=gdp_mu,
        num_repetitions=8,
        noise_aware=noise_aware,
    )
    assert found.best_mix_size / best in (0.5, 1.0, 2.0)
    median = np.median(found.errors, axis=0)
    assert median[4] < 0.9 * median[0]
    assert median[4] < 0.9 * median[-1]


def test_the_paper_s_simulation():
    # NeuroMixGDP, Appendix J.1: the minimum is where Theorem 3.2 says, its value is not.
    sizes = [float(m) for m in np.geomspace(0.6, 100.0, 11)]
    found = simulate_regression(sizes)
    assert found.errors.shape == found.bounds.shape == (20, 11)
    assert found.best_mix_size == pytest.approx(optimal_mix_size(300, 900, 1.0), rel=0.7)
    assert (found.errors < found.bounds).all()
    assert np.median(found.bounds) > 10 * np.median(found.coefficient_norms)


def test_the_simulation_repeats_and_takes_other_noise():
    small = {"num_records": 30, "num_mixtures": 60, "num_features": 2, "num_repetitions": 2}
    first, again = (simulate_regression([3.0, 6.0], **small, seed=5) for _ in range(2))
    assert (first.errors == again.errors).all()
    assert (first.errors != simulate_regression([3.0, 6.0], **small, seed=6).errors).all()
    no_noise = simulate_regression([6.0], **small, seed=5, noise_multipliers=[1e-9])
    assert no_noise.errors.max() < first.errors.min()


def test_a_setting_needs_more_rows_than_records():
    fields = SETTING.model_dump() | {"num_mixtures": SETTING.num_records}
    with pytest.raises(InvalidInputError, match="num_mixtures"):
        RegressionSetting(**fields)


@pytest.mark.parametrize(
    ("call", "place"),
    [
        (lambda: optimal_rate(0.0), "gdp_mu"),
        (lambda: optimal_mix_size(0, 10, 1.0), "num_records"),
        (lambda: regression_error_bound(SETTING, 1e6), "mix_size"),
        (lambda: limiting_regression_error_bound(SETTING, 0.0), "rate"),
        (lambda: simulate_regression([]), "noise_multipliers"),
        (lambda: simulate_regression([3.0], noise_multipliers=[1.0, 2.0]), "noise_multipliers"),
        (lambda: simulate_regression([300.0]), "mix_sizes"),
        (lambda: simulate_regression([3.0], num_mixtures=300), "num_mixtures"),
    ],
)
def test_bad_settings(call, place):
    with pytest.raises(InvalidInputError, match=place):
        call()

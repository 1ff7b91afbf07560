import math

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from privmix._validate import InvalidInputError
from privmix.accounting import (
    GaussianEvent,
    PoissonGaussianEvent,
    SignedGaussianEvent,
    UniformGaussianEvent,
    account,
    event_gdp_mu,
    gdp_mu_from,
)
from privmix.mechanism import MixtureConfig
from privmix.theory.hierarchical import hierarchical_cost
from privmix.theory.membership import membership_errors, membership_separation
from privmix.theory.noise import (
    OPTIMAL_NOISE_MULTIPLIER,
    central_limit_noise_multiplier,
    published_noise,
    step_chi_square,
)
from privmix.theory.regression import (
    RegressionSetting,
    limiting_regression_error_bound,
    optimal_mix_size,
    optimal_rate,
    regression_error_bound,
    simulate_regression,
)

DESIGNS = ("poisson", "signed")
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


# Chi-square of a step


def chi_square_by_integration(prob, noise, design):
    def density(z, centre=0.0):
        return stats.norm.pdf(z, centre, noise)

    def integrand(z):
        shifted = density(z, 1.0)
        if design == "signed":
            shifted = (shifted + density(z, -1.0)) / 2
        return prob**2 * (shifted - density(z)) ** 2 / density(z)

    return integrate.quad(integrand, -30 * noise, 30 * noise, points=[0.0], limit=200)[0]


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(("prob", "noise"), [(0.1, 0.6), (0.0036, 1.0), (0.7, 5.0)])
def test_chi_square_is_that_of_the_pair(prob, noise, design):
    expected = chi_square_by_integration(prob, noise, design)
    assert step_chi_square(prob, noise, design=design) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("noise", [0.3, 1.0, 30.0])
def test_signs_save_at_least_half_of_the_chi_square(noise):
    ratio = step_chi_square(0.2, noise, design="signed") / step_chi_square(0.2, noise)
    assert ratio == pytest.approx(-math.expm1(-(noise**-2)) / 2)
    assert ratio < 0.5


def test_chi_square_beyond_a_double_is_infinite():
    assert step_chi_square(0.5, 0.01) == step_chi_square(0.5, 0.01, design="signed") == math.inf


def signed_rows(rng, others, record, prob, noise, count):
    """Rows of the other records and, if given, of one more."""
    records = others if record is None else np.vstack([others, record])
    signs = rng.choice([-1.0, 1.0], (count, len(records)))
    entered = signs * (rng.random((count, len(records))) < prob)
    return entered @ records + noise * rng.standard_normal((count, records.shape[1]))


def rows_from_the_line(rng, others, record, prob, noise, z, spare):
    """The random map of docs/theory/signed-mixing.md, from outcomes z of the pair on the line."""
    length = np.linalg.norm(record)
    axis = record / length
    others_sum = signed_rows(rng, others, None, prob, 0.0, len(z))
    across = noise * rng.standard_normal((len(z), len(axis)))
    across -= np.outer(across @ axis, axis)
    along = length * z + spare * rng.standard_normal(len(z))
    return others_sum + across + np.outer(along, axis)


@pytest.mark.parametrize("dimension", [1, 4])
@pytest.mark.parametrize("present", [False, True])
def test_signed_rows_are_a_random_map_of_the_pair(present, dimension):
    """False alarms: one of 8 tests below 1e-6 comes less than once in 10^5 seeds; seed fixed.

    Extra noise of standard deviation s in place of s sqrt(1 - r^2) must be noticed.
    """
    rng = np.random.default_rng(3)
    prob, noise, length, count = 0.4, 0.5, 0.8, 40000
    others, record = rng.standard_normal((3, dimension)), rng.standard_normal(dimension)
    others *= 0.2 / np.linalg.norm(others, axis=1, keepdims=True)
    record *= length / np.linalg.norm(record)
    rows = signed_rows(rng, others, record if present else None, prob, noise, count)
    z = signed_rows(rng, np.zeros((0, 1)), np.ones(1) if present else None, prob, noise, count)
    right = rows_from_the_line(
        rng, others, record, prob, noise, z[:, 0], noise * math.sqrt(1 - length**2)
    )
    wrong = rows_from_the_line(rng, others, record, prob, noise, z[:, 0], noise)
    for direction in (record, rng.standard_normal(dimension)):
        assert stats.ks_2samp(rows @ direction, right @ direction).pvalue > 1e-6
    assert stats.ks_2samp(rows @ record, wrong @ record).pvalue < 1e-6


# Noise and the optimal mix size


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(("prob", "rows", "gdp_mu"), [(0.01, 1000, 0.5), (1.0, 7, 1e-5)])
def test_the_noise_inverts_the_central_limit(prob, rows, gdp_mu, design):
    noise = central_limit_noise_multiplier(prob, rows, gdp_mu, design=design)
    kind = {"poisson": PoissonGaussianEvent, "signed": SignedGaussianEvent}[design]
    event = kind(sampling_prob=prob, noise_multiplier=noise, count=rows)
    if prob < 1.0:
        assert event_gdp_mu(event)[0] == pytest.approx(gdp_mu)
    assert rows * step_chi_square(prob, noise, design=design) == pytest.approx(gdp_mu**2)


def test_published_noise_is_lemma_c3_with_the_square_of_n():
    # n = T = 50000, m = 64, mu of (1, 1e-5); the paper's lambda = 2, C_x = 3, C_y = 1.
    noise = published_noise(
        num_records=50000,
        num_mixtures=50000,
        mix_size=64,
        gdp_mu=0.268051,
        label_balance=2.0,
        feature_clip_norm=3.0,
    )
    log = math.log(1 + 0.268051**2 * 50000**2 / (64**2 * 50000))
    assert noise.feature_noise_stddev == pytest.approx(3 * math.sqrt(5) / (2 * 64 * math.sqrt(log)))
    assert noise.label_noise_stddev == pytest.approx(math.sqrt(5) / (64 * math.sqrt(log)))


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


# Membership tests


def test_the_separation_is_what_the_score_test_shows():
    """NeuroMixGDP's statistic, simulated; its printed exponent is of the other sign.

    Five standard errors of a mean are 0.08 without the record and about 0.1 with it, so that a
    false alarm would come once in 10^6 seeds; the seed is fixed. A scale wrong by 1.5 fails.
    """
    q, t, s, runs = 0.01, 5000, 0.8, 4000
    rng = np.random.default_rng(0)
    separation = membership_separation(q, t, s)
    information = math.expm1(s**-2)
    means = []
    for present in (0.0, q):
        estimates = np.empty(runs)
        for run in range(runs):
            z = (rng.random(t) < present) + s * rng.standard_normal(t)
            estimates[run] = np.expm1((2 * z - 1) / (2 * s**2)).mean() / information
        means.append(math.sqrt(t * information) * estimates.mean())
        if not present:
            spread = math.sqrt(t * information) * estimates.std()
    assert means[0] == pytest.approx(0.0, abs=5 / math.sqrt(runs))
    assert spread == pytest.approx(1.0, abs=0.15)
    assert means[1] == pytest.approx(separation, abs=8 / math.sqrt(runs))
    assert separation == pytest.approx(
        event_gdp_mu(PoissonGaussianEvent(sampling_prob=q, noise_multiplier=s, count=t))[0]
    )


def test_no_test_beats_the_certified_errors():
    """The likelihood-ratio test of 60 rows, simulated, at one false-positive rate and another.

    Five standard errors of a share of 20,000 draws are below 0.018: a false alarm would come less
    than once in 10^6 seeds; the seed is fixed.
    """
    event = PoissonGaussianEvent(sampling_prob=0.1, noise_multiplier=0.9, count=60)
    rng = np.random.default_rng(1)

    def statistic(present):
        included = rng.random((20000, 60)) < (0.1 if present else 0.0)
        z = included + 0.9 * rng.standard_normal((20000, 60))
        return np.log1p(0.1 * np.expm1((2 * z - 1) / (2 * 0.9**2))).sum(axis=1)

    without, with_record = statistic(False), statistic(True)
    rates = np.array([0.02, 0.1, 0.3])
    thresholds = np.quantile(without, 1 - rates)
    fnr = (with_record[:, None] <= thresholds).mean(axis=0)
    found = membership_errors(event, rates)
    assert (fnr > found.certified_fnr - 0.02).all()
    assert (fnr < found.certified_fnr + 0.05).all()


def test_the_central_limit_promises_more_than_is_certified():
    event = PoissonGaussianEvent(sampling_prob=64 / 50000, noise_multiplier=1.26, count=50000)
    found = membership_errors(event, [[0.01, 0.1]])
    assert found.certified_fnr.shape == (1, 2)
    assert (found.gdp_fnr > found.certified_fnr).all()
    exact = membership_errors(GaussianEvent(noise_multiplier=2.0), 0.1)
    assert exact.gdp_fnr == pytest.approx(exact.certified_fnr, abs=1e-3)
    uniform = UniformGaussianEvent(num_records=100, mix_size=5, noise_multiplier=2.0)
    assert membership_errors(uniform, 0.1).gdp_fnr is None


# Hierarchical sampling

HIERARCHICAL = {
    "num_records": 50000,
    "num_mixtures": 50000,
    "mix_size": 64.0,
    "noise_multiplier": 1.26,
    "delta": 1e-5,
}


def test_hierarchical_golden_values():
    cost = hierarchical_cost(**HIERARCHICAL, class_prob=0.03)
    assert cost.balanced == pytest.approx(7.604, rel=5e-3)
    assert cost.random == pytest.approx(7.617, rel=5e-3)
    assert cost.claimed == pytest.approx(1.011, rel=5e-3)
    assert cost.claimed_central_limit == pytest.approx(1.000, abs=1e-3)
    assert hierarchical_cost(**HIERARCHICAL, class_prob=0.3).balanced == pytest.approx(
        1.981, rel=5e-3
    )


def test_hierarchical_cost_is_that_of_the_mechanism():
    """Class counts that divide nothing as well."""
    for class_prob in (0.0313, 1.0):
        cost = hierarchical_cost(**HIERARCHICAL | {"num_mixtures": 1234}, class_prob=class_prob)
        for eligibility in ("balanced", "random"):
            s = 1.26
            config = MixtureConfig(
                design="hierarchical",
                num_records=50000,
                num_classes=10,
                num_features=3,
                num_mixtures=1234,
                sampling_prob=64 / 50000,
                mix_size=64.0,
                noise_multiplier=s,
                feature_noise_multiplier=s * math.sqrt(2),
                label_noise_multiplier=s * math.sqrt(2),
                class_prob=class_prob,
                eligibility=eligibility,
            )
            assert account(config.event, 1e-5).epsilon == getattr(cost, eligibility)
            assert account(config.claimed_event, 1e-5).epsilon == cost.claimed
    assert cost.balanced == pytest.approx(cost.claimed)  # p = 1: everybody is always eligible


# Errors


@pytest.mark.parametrize(
    ("call", "place"),
    [
        (lambda: optimal_rate(0.0), "gdp_mu"),
        (lambda: optimal_mix_size(0, 10, 1.0), "num_records"),
        (lambda: step_chi_square(0.5, math.nan), "noise_multiplier"),
        (lambda: step_chi_square(0.5, 1.0, design="uniform"), "design"),
        (lambda: central_limit_noise_multiplier(1.5, 10, 1.0), "sampling_prob"),
        (lambda: regression_error_bound(SETTING, 1e6), "mix_size"),
        (lambda: limiting_regression_error_bound(SETTING, 0.0), "rate"),
        (lambda: simulate_regression([]), "noise_multipliers"),
        (lambda: simulate_regression([3.0], noise_multipliers=[1.0, 2.0]), "noise_multipliers"),
        (lambda: simulate_regression([300.0]), "mix_sizes"),
        (lambda: simulate_regression([3.0], num_mixtures=300), "num_mixtures"),
        (lambda: membership_errors(GaussianEvent(noise_multiplier=1.0), 1.5), "false_positive"),
        (lambda: hierarchical_cost(**HIERARCHICAL, class_prob=1e-4), "class_prob"),
    ],
)
def test_bad_input_is_named(call, place):
    with pytest.raises(InvalidInputError, match=place):
        call()


def test_a_setting_needs_more_rows_than_records():
    fields = SETTING.model_dump() | {"num_mixtures": SETTING.num_records}
    with pytest.raises(InvalidInputError, match="num_mixtures"):
        RegressionSetting(**fields)

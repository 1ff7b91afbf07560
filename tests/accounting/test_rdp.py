import math

import mpmath as mp
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant

from privmix._validate import InvalidInputError
from privmix.accounting import (
    ComposedEvent,
    EligibleGaussianEvent,
    GaussianEvent,
    PoissonGaussianEvent,
    SignedGaussianEvent,
    UniformGaussianEvent,
    account,
    dpmix_paper_epsilon,
    dpmix_paper_stddev,
    moments_epsilon,
    rdp_delta,
    rdp_epsilon,
)
from privmix.accounting.rdp import ORDERS, rdp_curve


def at(order):
    return int(np.searchsorted(ORDERS, order))


def theorem27(share, rdp, order):
    """Wang, Balle, Kasiviswanathan 2019, Theorem 27, as printed, in 200 digits."""
    with mp.workdps(200):
        p = mp.mpf(share)

        def b(k):
            return sum(
                (-1) ** i * mp.binomial(k, i) * mp.e ** ((i - 1) * rdp(i)) for i in range(k + 1)
            )

        total = 1 + p**2 * mp.binomial(order, 2) * min(4 * (mp.e ** rdp(2) - 1), 2 * mp.e ** rdp(2))
        for j in range(3, order + 1):
            pair = b(2 * (j // 2)) * b(2 * ((j + 1) // 2))
            total += 4 * p**j * mp.binomial(order, j) * mp.sqrt(pair)
        return float(mp.log(total) / (order - 1))


@pytest.mark.parametrize(("n", "m", "s"), [(1000, 10, 1.3), (1000, 10, 20.0), (500, 100, 0.4)])
@pytest.mark.parametrize("order", [2, 3, 4, 9, 24])
def test_uniform_against_the_printed_formula(n, m, s, order):
    event = UniformGaussianEvent(num_records=n, mix_size=m, noise_multiplier=s)
    expected = theorem27(mp.mpf(m) / n, lambda a: a / (2 * mp.mpf(s) ** 2), order)
    assert rdp_curve(event)[at(order)] == pytest.approx(expected, rel=1e-9)


def test_dpmix_theorem_1_against_the_printed_formula():
    facts = {
        "num_records": 1000,
        "mix_size": 8,
        "num_mixtures": 20000,
        "num_features": 4,
        "num_classes": 3,
    }
    noise = {"feature_noise_stddev": 0.9, "label_noise_stddev": 0.7}
    squared = mp.mpf(4) / mp.mpf("0.9") ** 2 + mp.mpf(3) / mp.mpf("0.7") ** 2  # the paper's Delta^2
    expected = min(
        20000 * theorem27(mp.mpf(8) / 1000, lambda i: i * squared / (2 * 64), a)
        + math.log(1e5) / (a - 1)
        for a in range(2, 21)
    )
    assert dpmix_paper_epsilon(1, **facts, **noise, delta=1e-5) == pytest.approx(expected, rel=1e-9)


def test_dpmix_theorem_3_is_the_minimum_over_orders():
    facts = {
        "num_records": 1000,
        "mix_size": 8,
        "num_mixtures": 500,
        "num_features": 4,
        "num_classes": 3,
    }
    noise = {"feature_noise_stddev": 0.9, "label_noise_stddev": 0.7}
    squared = 4 / 0.9**2 + 3 / 0.7**2
    orders = np.linspace(1.0001, 50.0, 2_000_000)
    slope = 500 * (8 / 1000) / (2 * 8**2) * squared  # equation (12): T p Delta^2 / (2 l^2)
    expected = (orders * slope + math.log(1e5) / (orders - 1.0)).min()
    assert dpmix_paper_epsilon(3, **facts, **noise, delta=1e-5) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("theorem", [1, 3])
@pytest.mark.parametrize("epsilon", [0.5, 20.0])
def test_dpmix_noise_is_the_inverse_of_its_epsilon(theorem, epsilon):
    facts = {
        "num_records": 1000,
        "mix_size": 8,
        "num_mixtures": 500,
        "num_features": 4,
        "num_classes": 3,
        "delta": 1e-3,
    }
    stddev = dpmix_paper_stddev(theorem, **facts, epsilon=epsilon)
    noise = {"feature_noise_stddev": stddev, "label_noise_stddev": stddev}
    assert dpmix_paper_epsilon(theorem, **facts, **noise) == pytest.approx(epsilon, rel=1e-3)


def test_dpmix_noise_for_an_epsilon_below_all_that_theorem_1_says_is_refused():
    facts = {"num_records": 1000, "mix_size": 8, "num_mixtures": 500}
    with pytest.raises(InvalidInputError, match="epsilon.*above 0.0135"):
        dpmix_paper_stddev(1, **facts, num_features=4, num_classes=3, delta=1e-3, epsilon=1e-3)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"mix_size": 0}, "mix_size"),
        ({"num_features": -20}, "num_features"),
        ({"num_classes": None}, "num_classes"),
        ({"epsilon": 1e9}, "epsilon.*below"),
    ],
)
def test_dpmix_noise_of_what_is_none_is_refused(changed, words):
    facts = {"num_records": 1000, "mix_size": 8, "num_mixtures": 500, "epsilon": 1.0}
    given = facts | {"num_features": 4, "num_classes": 3} | changed
    with pytest.raises(InvalidInputError, match=words):
        dpmix_paper_stddev(3, **given, delta=1e-3)


def test_poisson_agrees_with_dp_accounting():
    event = PoissonGaussianEvent(sampling_prob=0.02, noise_multiplier=0.9)
    orders = [2, 3, 7, 33, 64]
    accountant = RdpAccountant(orders)
    accountant.compose(PoissonSampledDpEvent(0.02, GaussianDpEvent(0.9)))
    assert rdp_curve(event)[[at(a) for a in orders]] == pytest.approx(accountant.rdp, rel=1e-9)


def renyi(event, order, reverse):
    """Renyi divergence of one step by the trapezoidal rule in 1e-4 steps."""
    s, q = event.noise_multiplier, event.sampling_prob
    y = 1e-3 * np.arange(-60_000, 60_001)
    shift = np.logaddexp(y / s, -y / s) - math.log(2.0) - 0.5 / s**2
    if isinstance(event, PoissonGaussianEvent):
        shift = y / s - 0.5 / s**2
    loss = np.logaddexp(math.log1p(-q), math.log(q) + shift)
    power = (1.0 - order) if reverse else order  # E_P[(Q/P)^a] = E_Q[(P/Q)^(1 - a)]
    log_density = -(y**2) / 2.0 + math.log(1e-3 / math.sqrt(2.0 * math.pi))
    exponent = power * loss + log_density
    return (exponent.max() + math.log(np.exp(exponent - exponent.max()).sum())) / (order - 1.0)


@pytest.mark.parametrize("make", [PoissonGaussianEvent, SignedGaussianEvent])
@pytest.mark.parametrize(("q", "s"), [(0.01, 1.0), (0.5, 0.6), (0.9, 4.0)])
@pytest.mark.parametrize("order", [2, 5, 16])
def test_sampled_curves_bound_both_directions_tightly(make, q, s, order):
    event = make(sampling_prob=q, noise_multiplier=s)
    forward, backward = renyi(event, order, False), renyi(event, order, True)
    found = rdp_curve(event)[at(order)]
    assert found >= max(forward, backward) * (1 - 1e-9)
    assert found <= max(forward, backward) * (1 + 1e-3)


def test_eligible_step_is_a_mixture_of_moments():
    inner = PoissonGaussianEvent(sampling_prob=0.2, noise_multiplier=1.0)
    event = EligibleGaussianEvent(eligible_prob=0.1, sampling_prob=0.2, noise_multiplier=1.0)
    moment = math.exp(4.0 * rdp_curve(inner)[at(5)])
    assert rdp_curve(event)[at(5)] == pytest.approx(math.log(0.9 + 0.1 * moment) / 4.0)


def test_gaussian_and_composition_add_up():
    one = GaussianEvent(noise_multiplier=2.0, count=3)
    two = PoissonGaussianEvent(sampling_prob=0.1, noise_multiplier=1.0, count=5)
    both = rdp_curve(ComposedEvent(events=[one, two]))
    assert both == pytest.approx(rdp_curve(one) + rdp_curve(two))
    assert rdp_curve(one) == pytest.approx(3 * ORDERS / 8.0)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 10.0])
def test_delta_inverts_epsilon(epsilon):
    event = PoissonGaussianEvent(sampling_prob=0.01, noise_multiplier=2.0, count=1000)
    delta = rdp_delta(event, epsilon)
    assert rdp_epsilon(event, delta) == pytest.approx(epsilon, rel=1e-6)


def test_classic_conversion_is_looser():
    event = PoissonGaussianEvent(sampling_prob=0.01, noise_multiplier=1.0, count=1000)
    assert rdp_epsilon(event, 1e-5) < moments_epsilon(event, 1e-5)
    # RDP of 1000 Poisson steps at order 8, the best integer one, by the reference above.
    by_hand = min(1000 * renyi(event, a, False) + math.log(1e5) / (a - 1) for a in range(2, 40))
    assert moments_epsilon(event, 1e-5) == pytest.approx(by_hand, rel=1e-6)


@pytest.mark.parametrize(
    "event",
    [
        PoissonGaussianEvent(sampling_prob=0.01, noise_multiplier=1.0, count=1000),
        PoissonGaussianEvent(sampling_prob=0.2, noise_multiplier=2.0, count=100),
        SignedGaussianEvent(sampling_prob=0.01, noise_multiplier=0.7, count=1000),
        EligibleGaussianEvent(
            eligible_prob=0.1, sampling_prob=0.1, noise_multiplier=1.0, count=1000
        ),
    ],
    ids=str,
)
def test_rdp_is_never_below_the_certified_lower_bound(event):
    readings = account(event, 1e-5).accountants
    assert readings["pld"].lower <= readings["rdp"].epsilon


def test_bad_arguments():
    event = GaussianEvent(noise_multiplier=1.0)
    with pytest.raises(InvalidInputError, match="delta"):
        rdp_epsilon(event, 1.0)
    with pytest.raises(InvalidInputError, match="epsilon"):
        rdp_delta(event, -1.0)

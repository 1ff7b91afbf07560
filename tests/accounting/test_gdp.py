import math

import mpmath as mp
import numpy as np
import pytest

from privmix._validate import InvalidInputError
from privmix.accounting import (
    EligibleGaussianEvent,
    GaussianEvent,
    PoissonGaussianEvent,
    SignedGaussianEvent,
    UniformGaussianEvent,
    bounded_range_from,
    event_gdp_mu,
    gdp_delta,
    gdp_epsilon,
    gdp_mu_from,
)


def exact_delta(gdp_mu, epsilon):
    """Dong, Roth, Su 2022, Corollary 2.13, in 60 digits."""
    with mp.workdps(60):
        mu, eps = mp.mpf(gdp_mu), mp.mpf(epsilon)
        return float(mp.ncdf(mu / 2 - eps / mu) - mp.exp(eps) * mp.ncdf(-mu / 2 - eps / mu))


@pytest.mark.parametrize("gdp_mu", [1e-3, 0.05, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0, 3.0])
def test_delta_against_many_digits(gdp_mu, share):
    epsilon = share * gdp_mu * (gdp_mu / 2 + 2.0)
    assert gdp_delta(gdp_mu, epsilon) == pytest.approx(exact_delta(gdp_mu, epsilon), rel=1e-9)


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
@pytest.mark.parametrize("gdp_mu", [0.01, 0.3, 2.0, 30.0])
def test_epsilon_inverts_delta_on_the_safe_side(gdp_mu, delta):
    epsilon = gdp_epsilon(gdp_mu, delta)
    if epsilon == 0.0:
        assert exact_delta(gdp_mu, 0.0) <= delta
    else:
        assert exact_delta(gdp_mu, epsilon) <= delta
        assert exact_delta(gdp_mu, epsilon) == pytest.approx(delta, rel=1e-7)


# Design, section 4.4; the two ends are Lemma values of the papers' tables at delta = 1e-5.
@pytest.mark.parametrize(("epsilon", "gdp_mu"), [(1, 0.268051), (2, 0.501552), (8, 1.666031)])
def test_golden_mu(epsilon, gdp_mu):
    assert gdp_mu_from(epsilon, 1e-5) == pytest.approx(gdp_mu, abs=1e-6)
    assert gdp_epsilon(gdp_mu_from(epsilon, 1e-5), 1e-5) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 1000.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-2])
def test_mu_from_round_trips(epsilon, delta):
    assert gdp_epsilon(gdp_mu_from(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-8)


def test_event_parameters():
    sampled = {"sampling_prob": 0.01, "noise_multiplier": 1.0, "count": 100}
    assert event_gdp_mu(GaussianEvent(noise_multiplier=2.0, count=16)) == (2.0, True)
    poisson = 0.01 * math.sqrt(100 * math.expm1(1.0))
    assert event_gdp_mu(PoissonGaussianEvent(**sampled)) == (pytest.approx(poisson), False)
    signed = 0.01 * math.sqrt(100 * (math.cosh(1.0) - 1.0))
    assert event_gdp_mu(SignedGaussianEvent(**sampled)) == (pytest.approx(signed), False)
    eligible = EligibleGaussianEvent(eligible_prob=0.25, **sampled)
    assert event_gdp_mu(eligible) == (pytest.approx(poisson / 2), False)
    assert (
        event_gdp_mu(UniformGaussianEvent(num_records=9, mix_size=3, noise_multiplier=1.0)) is None
    )


def test_bad_arguments():
    for bad in (0.0, 1.0, 2.0, float("nan")):
        with pytest.raises(InvalidInputError, match="delta"):
            gdp_epsilon(1.0, bad)
    with pytest.raises(InvalidInputError, match="gdp_mu"):
        gdp_delta(float("nan"), 1.0)
    with pytest.raises(InvalidInputError, match="epsilon"):
        gdp_delta(1.0, -0.1)


@pytest.mark.parametrize("gdp_mu", [0.01, 0.268, 1.0, 4.0, 9.0])
def test_a_loss_of_bounded_range_is_as_private_as_the_gaussian_mechanism(gdp_mu):
    """Every pair of two points with losses t and t - r asks for at most mu, and one asks for it."""
    context = mp.MPContext()
    context.dps = 50
    loss_range = context.mpf(bounded_range_from(gdp_mu))

    def quantile(p):
        return context.sqrt(2) * context.erfinv(2 * p - 1)

    asked = []
    for t in np.linspace(0.02, 0.98, 49):
        up, down = context.exp(t * loss_range), context.exp((t - 1) * loss_range)
        q = (1 - down) / (up - down)
        asked.append(float(quantile(up * q) - quantile(q)))
    assert max(asked) <= gdp_mu
    assert max(asked) == pytest.approx(gdp_mu, rel=1e-9)


@pytest.mark.parametrize("gdp_mu", [1e-8, 1.1e-7, 1e-5, 1e-3, 0.3, 0.999999, 1.0, 5.0, 20.0])
def test_a_bounded_range_is_right_to_twelve_digits_and_never_too_large(gdp_mu):
    with mp.workdps(60):
        half = mp.mpf(gdp_mu) / 2
        due = 2 * mp.log(mp.ncdf(half) / mp.ncdf(-half))
        excess = float((mp.mpf(bounded_range_from(gdp_mu)) - due) / due)
    assert -3e-12 < excess < 0

import math

import numpy as np
import pytest

from privmix._validate import InvalidInputError
from privmix.accounting import (
    GaussianEvent,
    PoissonGaussianEvent,
    UniformGaussianEvent,
    event_gdp_mu,
)
from privmix.theory.membership import membership_errors, membership_separation

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


def test_a_bad_rate_of_false_positives():
    with pytest.raises(InvalidInputError, match="false_positive"):
        membership_errors(GaussianEvent(noise_multiplier=1.0), 1.5)

import json

import numpy as np
import pytest

from privmix._validate import InvalidInputError
from privmix.accounting import (
    GaussianEvent,
    PoissonGaussianEvent,
    UniformGaussianEvent,
    delta_at,
    gdp_tradeoff,
    tradeoff_curve,
    tradeoff_report,
)

SAMPLED = PoissonGaussianEvent(sampling_prob=64 / 50000, noise_multiplier=1.26, count=50000)
ONE_STEP = PoissonGaussianEvent(sampling_prob=0.4, noise_multiplier=0.8)
UNIFORM = UniformGaussianEvent(num_records=1000, mix_size=10, noise_multiplier=2.0, count=100)


@pytest.mark.parametrize("event", [SAMPLED, ONE_STEP, UNIFORM, GaussianEvent(noise_multiplier=1.0)])
def test_a_convex_decreasing_line_below_the_diagonal(event):
    fpr, fnr = tradeoff_curve(event, num_points=61)
    assert fpr.size == fnr.size <= 61
    assert (fpr[0], fpr[-1]) == (0.0, 1.0)
    assert (np.diff(fpr) > 0.0).all()
    assert (np.diff(fnr) <= 0.0).all()
    assert (fnr <= 1.0 - fpr + 1e-12).all()
    slopes = np.diff(fnr) / np.diff(fpr)
    assert (np.diff(slopes) >= -1e-6 * np.abs(slopes[:-1])).all()


@pytest.mark.parametrize("event", [SAMPLED, ONE_STEP])
def test_the_curve_is_symmetric(event):
    fpr, fnr = tradeoff_curve(event)
    assert np.interp(fnr[::-1], fpr, fnr) == pytest.approx(fpr[::-1], abs=1e-6)


def test_gaussian_curve_is_a_tight_lower_bound():
    fpr, fnr = tradeoff_curve(GaussianEvent(noise_multiplier=1.0), num_points=401)
    rates = np.linspace(0.0, 1.0, 1001)
    gap = gdp_tradeoff(1.0, rates) - np.interp(rates, fpr, fnr)
    assert gap.min() >= -1e-12
    assert gap.max() <= 1e-4


def test_no_test_between_the_true_distributions_beats_the_curve():
    """One step, both directions: thresholds on the outcome are the best tests there are."""
    from scipy.special import ndtr

    s, q = ONE_STEP.noise_multiplier, ONE_STEP.sampling_prob
    cut = np.linspace(-4.0, 6.0, 2001)
    idle = ndtr(cut / s)
    mixed = (1 - q) * idle + q * ndtr((cut - 1.0) / s)
    fpr, fnr = tradeoff_curve(ONE_STEP, num_points=201)
    for false_positive, false_negative in ((1 - idle, mixed), (mixed, 1 - idle)):
        bound = np.interp(false_positive, fpr, fnr)
        assert (bound <= false_negative + 1e-12).all()
    # Tight too: the curve is the convex hull of the two directions' curves.
    rates = np.linspace(0.0, 1.0, 1001)
    both = np.minimum(
        np.interp(rates, (1 - idle)[::-1], mixed[::-1]), np.interp(rates, mixed, 1 - idle)
    )
    assert (both - np.interp(rates, fpr, fnr)).max() <= 0.03


def test_report_reads_the_curve():
    report = tradeoff_report(SAMPLED)
    assert report.advantage == pytest.approx(delta_at(SAMPLED, 0.0), rel=1e-3)
    assert 0.001 < report.tpr_at_fpr_0_001 < report.tpr_at_fpr_0_01 < 0.05
    assert report.gdp_is_exact is False
    assert 0.0 < report.gdp_l2_distance < report.gdp_sup_distance < 1e-3
    assert json.loads(json.dumps(report.to_dict()))["advantage"] == report.advantage


def test_gaussian_report_is_the_gaussian():
    report = tradeoff_report(GaussianEvent(noise_multiplier=2.0), num_points=801)
    assert report.gdp_is_exact
    assert report.gdp_sup_distance <= 1e-4
    assert report.tpr_at_fpr_0_01 == pytest.approx(1 - gdp_tradeoff(0.5, 0.01), rel=1e-3)


def test_uniform_has_no_gaussian_approximation():
    report = tradeoff_report(UNIFORM)
    assert report.gdp_mu is report.gdp_sup_distance is report.gdp_l2_distance is None
    assert 0.0 < report.advantage < 1.0


def test_bad_arguments():
    with pytest.raises(InvalidInputError, match="num_points"):
        tradeoff_curve(SAMPLED, num_points=2)
    with pytest.raises(InvalidInputError, match="gdp_mu"):
        gdp_tradeoff(-1.0, 0.5)

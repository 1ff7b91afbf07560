"""Plans to a risk: exact for the Gaussian mechanism, never beyond the target for any."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from privmix import InvalidInputError
from privmix.accounting import (
    ComposedEvent,
    EligibleGaussianEvent,
    GaussianEvent,
    GroupEvent,
    PoissonGaussianEvent,
    Risk,
    SignedGaussianEvent,
    calibrate_noise_to_risk,
    delta_at,
    gdp_tradeoff,
    tradeoff_curve,
    tradeoff_report,
)

RISKS = (
    Risk(measure="tpr", most=0.02, at=0.01),
    Risk(measure="advantage", most=0.1),
    Risk(measure="reconstruction", most=0.3, at=0.1),
    Risk(measure="tpr", most=0.9, at=0.001),
)
MAKERS = {
    "gaussian": lambda s: GaussianEvent(noise_multiplier=s),
    "poisson": lambda s: PoissonGaussianEvent(sampling_prob=0.02, noise_multiplier=s, count=500),
    "signed": lambda s: SignedGaussianEvent(sampling_prob=0.1, noise_multiplier=s, count=200),
    "eligible": lambda s: EligibleGaussianEvent(
        eligible_prob=0.1, sampling_prob=0.2, noise_multiplier=s, count=300
    ),
    "group": lambda s: GroupEvent(
        unit="patient", group_size=3, event=GaussianEvent(noise_multiplier=s)
    ),
}


@pytest.mark.parametrize("risk", RISKS, ids=lambda risk: risk.statement)
@pytest.mark.parametrize("name", MAKERS)
def test_the_noise_found_keeps_to_the_risk_and_little_less_does_not(name, risk):
    noise = calibrate_noise_to_risk(MAKERS[name], risk)
    gain = risk.of(MAKERS[name](noise)) - risk.baseline
    target = risk.most - risk.baseline
    assert 0.99 * target <= gain <= target
    assert risk.of(MAKERS[name](0.97 * noise)) > risk.most


@pytest.mark.parametrize("risk", RISKS, ids=lambda risk: risk.statement)
def test_the_gaussian_mechanism_is_solved_in_closed_form(risk):
    noise = calibrate_noise_to_risk(MAKERS["gaussian"], risk)
    assert noise == pytest.approx(1 / risk.gdp_mu, rel=0.01)


def test_measures_are_those_of_the_trade_off_function():
    event = GaussianEvent(noise_multiplier=0.8)
    mu = 1 / 0.8
    for at in (0.001, 0.05, 0.5):
        due = 1 - float(gdp_tradeoff(mu, at))
        for measure in ("tpr", "reconstruction"):
            found = Risk(measure=measure, most=0.99, at=at).of(event)
            assert due <= found <= due + 2e-3
    advantage = Risk(measure="advantage", most=0.9)
    assert advantage.of(event) == pytest.approx(2 * norm.cdf(mu / 2) - 1, abs=1e-6)
    # The total variation distance: delta at epsilon 0.
    assert advantage.of(event) == pytest.approx(delta_at(event, 0.0), rel=1e-6)
    assert advantage.of(event) == tradeoff_report(event).advantage


# By riskcal 1.5.1 on loss distributions of dp-accounting 0.6.0, in steps of 1e-4, of signed rows 1e-5: true-positive
# rates at FALSE_POSITIVE_RATES, the advantage, and the Bayes risk of guessing a bit of prior 0.9. Rates at the
# papers' sizes are the duals of its deltas: what it gives as rates there, 0.00206 at 0.001, is below them.
FALSE_POSITIVE_RATES = (0.001, 0.01, 0.1, 0.5)
RISKCAL = {
    "gaussian": ((0.00480, 0.03390, 0.21724, 0.69146), 0.19741, 0.1),
    "poisson": ((0.00690, 0.04307, 0.24342, 0.71601), 0.22263, 0.09998),
    "papers": ((0.00240, 0.01985, 0.15559, 0.60567), 0.10658, 0.1),
    "hybrid": ((0.01307, 0.06859, 0.31820, 0.78700), 0.30589, 0.09958),
    "signed": ((0.02264, 0.10049, 0.38713, 0.83648), 0.36744, 0.09799),
}
EVENTS = {
    "gaussian": MAKERS["gaussian"](2.0),
    "poisson": MAKERS["poisson"](1.0),
    "papers": PoissonGaussianEvent(sampling_prob=64 / 50000, noise_multiplier=1.26, count=50000),
    "hybrid": ComposedEvent(
        events=(
            GaussianEvent(noise_multiplier=2.0),
            PoissonGaussianEvent(sampling_prob=0.05, noise_multiplier=1.0, count=100),
        )
    ),
    "signed": MAKERS["signed"](1.0),
}


@pytest.mark.parametrize("name", RISKCAL)
def test_risks_are_those_of_riskcal(name):
    """Theirs are rounded up as well, by a thousandth at most; ours are of a polygon."""
    rates, advantage, bayes_risk = RISKCAL[name]
    event = EVENTS[name]
    for at, due in zip(FALSE_POSITIVE_RATES, rates, strict=True):
        for measure in ("tpr", "reconstruction"):
            found = Risk(measure=measure, most=0.999, at=at).of(event)
            assert 0.999 * due - 5e-5 <= found <= due + 3e-4
    assert Risk(measure="advantage", most=0.999).of(event) == pytest.approx(advantage, abs=3e-4)
    fpr, fnr = tradeoff_curve(event, num_points=201)
    assert (0.1 * fpr + 0.9 * fnr).min() == pytest.approx(bayes_risk, abs=1e-4)


# What riskcal finds at the noise that is calibrated here: of a target of 0.1; of 0.02 at 0.01; of 0.3 at 0.1.
@pytest.mark.parametrize(
    ("sampling_prob", "count", "noise"),
    [(0.02, 500, (1.901686, 1.820173, 0.8501346)), (0.1, 50, (2.87796, 2.795774, 1.120467))],
)
def test_riskcal_finds_the_planned_risk_at_the_noise_that_is_planned(sampling_prob, count, noise):
    """0.09989, 0.01998, 0.29967 of the first, 0.09982, 0.01999, 0.29959 of the second: 0.2 % less at most."""
    for risk, due in zip((RISKS[1], RISKS[0], RISKS[2]), noise, strict=True):
        found = calibrate_noise_to_risk(
            lambda s: PoissonGaussianEvent(
                sampling_prob=sampling_prob, noise_multiplier=s, count=count
            ),
            risk,
        )
        assert found == pytest.approx(due, rel=1e-3)


def test_reconstruction_by_a_simulated_attacker():
    """One of ten equally likely records is in a Gaussian sum; false alarm 1e-4 (3.9 deviations).

    The best guess is the nearest record. Its success stays below the bound from a prior of 1/10.
    """
    generator = np.random.default_rng(0)
    noise, trials = 0.7, 20_000
    chosen = generator.integers(10, size=trials)
    seen = np.eye(10)[chosen] + noise * generator.standard_normal((trials, 10))
    success = float((seen.argmax(axis=1) == chosen).mean())
    event = GaussianEvent(noise_multiplier=noise)
    bound = Risk(measure="reconstruction", most=0.99, at=0.1).of(event)
    assert 0.3 < success < bound + 3.9 * 0.5 / trials**0.5


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"measure": "tpr", "most": 0.01, "at": 0.01}, "most"),
        ({"measure": "tpr", "most": 1.0, "at": 0.01}, "most"),
        ({"measure": "tpr", "most": 0.5}, "at"),
        ({"measure": "tpr", "most": 0.5, "at": 0.0}, "at"),
        ({"measure": "advantage", "most": 0.0}, "most"),
        ({"measure": "advantage", "most": 0.1, "at": 0.1}, "at"),
        ({"measure": "reconstruction", "most": float("nan"), "at": 0.1}, "most"),
    ],
)
def test_risks_that_are_none(fields, place):
    with pytest.raises(InvalidInputError, match=rf"^Risk\.{place}: "):
        Risk(**fields)


def test_a_risk_that_no_noise_reaches():
    def fixed(noise: float) -> GaussianEvent:
        return GaussianEvent(noise_multiplier=1.0)

    with pytest.raises(InvalidInputError, match="^risk: expected at least 0.38"):
        calibrate_noise_to_risk(fixed, Risk(measure="advantage", most=0.1))
    with pytest.raises(InvalidInputError, match="^risk: expected a value near 0.38"):
        calibrate_noise_to_risk(fixed, Risk(measure="advantage", most=0.9))

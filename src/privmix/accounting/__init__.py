"""What a mechanism guarantees: events, accountants, trade-off curves, calibration.

event = PoissonGaussianEvent(sampling_prob=64 / 50000, noise_multiplier=1.26, count=50000)
account(event, delta=1e-5).epsilon
"""

from __future__ import annotations

from privmix.accounting.accountants import (
    CERTIFICATE_DELTAS,
    Accounting,
    Reading,
    account,
    delta_at,
    delta_profile,
    epsilon_at,
    epsilon_under,
    group_epsilon,
)
from privmix.accounting.calibrate import calibrate, calibrate_noise_multiplier
from privmix.accounting.events import (
    AllocationGaussianEvent,
    ComposedEvent,
    EligibleGaussianEvent,
    Event,
    GaussianEvent,
    GroupEvent,
    PoissonGaussianEvent,
    SignedAllocationGaussianEvent,
    SignedGaussianEvent,
    UniformGaussianEvent,
    event_from_json,
    per_record,
)
from privmix.accounting.filters import AdaptiveReading, adaptive_reading, admits, event_time
from privmix.accounting.gdp import (
    bounded_range_from,
    event_gdp_mu,
    gdp_delta,
    gdp_epsilon,
    gdp_mu_from,
)
from privmix.accounting.rdp import (
    dpmix_paper_epsilon,
    dpmix_paper_stddev,
    moments_epsilon,
    rdp_delta,
    rdp_epsilon,
)
from privmix.accounting.risk import Risk, calibrate_noise_to_risk
from privmix.accounting.rounding import format_epsilon, rounded_up
from privmix.accounting.tradeoff import (
    TradeoffReport,
    gdp_tradeoff,
    tradeoff_curve,
    tradeoff_report,
)

__all__ = [
    "CERTIFICATE_DELTAS",
    "Accounting",
    "AdaptiveReading",
    "AllocationGaussianEvent",
    "ComposedEvent",
    "EligibleGaussianEvent",
    "Event",
    "GaussianEvent",
    "GroupEvent",
    "PoissonGaussianEvent",
    "Reading",
    "Risk",
    "SignedAllocationGaussianEvent",
    "SignedGaussianEvent",
    "TradeoffReport",
    "UniformGaussianEvent",
    "account",
    "adaptive_reading",
    "admits",
    "bounded_range_from",
    "calibrate",
    "calibrate_noise_multiplier",
    "calibrate_noise_to_risk",
    "delta_at",
    "delta_profile",
    "dpmix_paper_epsilon",
    "dpmix_paper_stddev",
    "epsilon_at",
    "epsilon_under",
    "event_from_json",
    "event_gdp_mu",
    "event_time",
    "format_epsilon",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu_from",
    "gdp_tradeoff",
    "group_epsilon",
    "moments_epsilon",
    "per_record",
    "rdp_delta",
    "rdp_epsilon",
    "rounded_up",
    "tradeoff_curve",
    "tradeoff_report",
]

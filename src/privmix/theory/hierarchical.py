"""What hierarchical sampling costs, against what it was said to cost."""

from __future__ import annotations

import math
from typing import NamedTuple

from privmix import _validate
from privmix.accounting import (
    EligibleGaussianEvent,
    PoissonGaussianEvent,
    account,
    gdp_epsilon,
)
from privmix.theory.noise import step_chi_square


class HierarchicalCost(NamedTuple):
    """Epsilon of hierarchical sampling: two sound values and two that are no guarantee.

    Attributes:
        balanced: Certified, every class eligible for the same number of rows.
        random: Certified, eligibility by independent coins.
        claimed: What Prop. E.3 of NeuroMixGDP implies, by privacy-loss distributions: NOT sound.
        claimed_central_limit: The same by the papers' own accountant: NOT sound.

    """

    balanced: float
    random: float
    claimed: float
    claimed_central_limit: float


def hierarchical_cost(
    *,
    num_records: int,
    num_mixtures: int,
    mix_size: float,
    class_prob: float,
    noise_multiplier: float,
    delta: float,
) -> HierarchicalCost:
    """Epsilon of hierarchical sampling as the paper claims it and as it is.

    Args:
        num_records: n.
        num_mixtures: T.
        mix_size: m, planned number of records in a row; q = m / n.
        class_prob: p, share of the rows that a class is eligible for, from q to 1.
        noise_multiplier: s, the joint one.
        delta: In (0, 1).

    The claim is T-fold composition at sampling probability q. Sound is what holds when the
    eligible classes of each row are known: records of an eligible class enter with probability
    q / p (``balanced``: T q / R in R rows, R = T p rounded). See
    docs/theory/hierarchical-sampling.md; source of the claim: NeuroMixGDP, Prop. E.3.

    """
    num_records = _validate.integer("num_records", num_records)
    num_mixtures = _validate.integer("num_mixtures", num_mixtures)
    mix_size = _validate.real("mix_size", mix_size, above=0.0, at_most=num_records)
    share = mix_size / num_records
    class_prob = _validate.real("class_prob", class_prob, at_least=share, at_most=1.0)
    eligible_rows = max(1, round(class_prob * num_mixtures))
    claimed = PoissonGaussianEvent(
        sampling_prob=share, noise_multiplier=noise_multiplier, count=num_mixtures
    )
    balanced = PoissonGaussianEvent(
        sampling_prob=min(1.0, share * num_mixtures / eligible_rows),
        noise_multiplier=noise_multiplier,
        count=eligible_rows,
    )
    random = EligibleGaussianEvent(
        eligible_prob=class_prob,
        sampling_prob=share / class_prob,
        noise_multiplier=noise_multiplier,
        count=num_mixtures,
    )
    gdp_mu = math.sqrt(num_mixtures * step_chi_square(share, noise_multiplier))
    return HierarchicalCost(
        balanced=account(balanced, delta).epsilon,
        random=account(random, delta).epsilon,
        claimed=account(claimed, delta).epsilon,
        claimed_central_limit=gdp_epsilon(gdp_mu, delta),
    )

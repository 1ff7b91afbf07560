"""Privacy loss distributions: certified upper and lower bounds on delta and epsilon.

A mechanism is a dominating pair (P, Q) of distributions; its privacy loss is L = log dP/dQ and

    delta(epsilon) = E_P[(1 - exp(epsilon - L))_+].

One step is put on a lattice of losses in two ways, each a pair of distributions again:

- *upper*: the mass between two neighbouring lattice points moves to these two points so that its
  P-mass and its Q-mass are kept ("connect the dots", Doroshenko et al. 2022). exp(-L) is spread
  out in the convex order, so every hockey-stick divergence grows. Outcomes in the far tails are
  taken to give everything away.
- *lower*: outcomes are merged into groups whose log P/Q lies on the lattice, at random where an
  outcome must be shared out between two groups. That is a post-processing, so every divergence
  shrinks. Outcomes in the far tails are left out.

Both survive composition and reversal of (P, Q): one lattice serves both directions.

T steps are composed by a fast Fourier transform of the *tilted* distribution, p(l) exp(order * l),
whose bulk lies where the tail of interest was, so that the round-off of the transform, absolute by
nature, is small against the answer. Round-off, wrap-around and truncation are bounded, and each
bound is added to the upper value of delta and taken from the lower one.
"""

from __future__ import annotations

from privmix.accounting.pld.bounds import (
    delta_bounds,
    delta_curve,
    delta_profile,
    epsilon_bounds,
    epsilon_upper,
    reverse_log_moments,
)
from privmix.accounting.pld.lattice import log_sum_exp

__all__ = [
    "delta_bounds",
    "delta_curve",
    "delta_profile",
    "epsilon_bounds",
    "epsilon_upper",
    "log_sum_exp",
    "reverse_log_moments",
]

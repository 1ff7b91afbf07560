"""The privacy loss of a step by the central limit, and the noise of a planned row."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import lambertw

from privmix import _validate

Array: TypeAlias = NDArray[np.float64]


MixedDesign: TypeAlias = Literal["poisson", "signed"]


# ln(1 + u) = 2 u / (1 + u), the condition for a maximum of ln(1 + u) / sqrt(u), solved for 1 + u
# by Lambert's function; the other branch gives the root u = 0.
GROWTH = -2.0 / float(lambertw(-2.0 * math.exp(-2.0), 0).real)

OPTIMAL_NOISE_MULTIPLIER: float = 1.0 / math.sqrt(math.log(GROWTH))


"""Joint noise multiplier at the optimal mix size, 0.7921, whatever the sizes and the budget."""


def step_chi_square(
    sampling_prob: float, noise_multiplier: float, *, design: MixedDesign = "poisson"
) -> float:
    """Chi-square divergence of one step, with the record against without it.

    q^2 (exp(1/s^2) - 1) for ``poisson`` (DPFMix, Appendix C.1.3) and q^2 (cosh(1/s^2) - 1) for
    ``signed``. The square root of its sum over the steps is the GDP parameter of the central
    limit, see :func:`privmix.accounting.event_gdp_mu`. Infinite where it exceeds a double.
    """
    sampling_prob = _validate.probability("sampling_prob", sampling_prob)
    inverse = _validate.real("noise_multiplier", noise_multiplier, above=0.0) ** -2
    with np.errstate(over="ignore"):
        if _validate.one_of("design", design, ("poisson", "signed")) == "poisson":
            return float(sampling_prob**2 * np.expm1(inverse))
        return float(sampling_prob**2 * 2.0 * np.sinh(inverse / 2.0) ** 2)


def central_limit_noise_multiplier(
    sampling_prob: float, num_mixtures: int, gdp_mu: float, *, design: MixedDesign = "poisson"
) -> float:
    """Joint noise multiplier at which the central limit of ``num_mixtures`` steps is ``gdp_mu``.

    The inverse of ``gdp_mu^2 = num_mixtures * step_chi_square(...)``: 1/s^2 is
    ln(1 + r) for ``poisson`` (DPFMix, Lemma C.3; NeuroMixGDP, Theorem 3.1) and arcosh(1 + r) for
    ``signed``, with r = gdp_mu^2 / (q^2 T).

    Limit: T -> infinity with q sqrt(T) -> a constant. For finite T a release with this noise costs
    more than ``gdp_mu``; for a guarantee use ``calibrate_noise_multiplier``.
    """
    sampling_prob = _validate.probability("sampling_prob", sampling_prob)
    num_mixtures = _validate.integer("num_mixtures", num_mixtures)
    gdp_mu = _validate.real("gdp_mu", gdp_mu, above=0.0)
    growth = (gdp_mu / sampling_prob) ** 2 / num_mixtures
    if _validate.one_of("design", design, ("poisson", "signed")) == "signed":
        growth += math.sqrt(growth * (growth + 2.0))  # arcosh(1 + r), accurate for small r
    return 1.0 / math.sqrt(math.log1p(growth))


class PublishedNoise(NamedTuple):
    """Noise standard deviations of one published number, in the units of the data."""

    feature_noise_stddev: float
    label_noise_stddev: float


def published_noise(
    *,
    num_records: int,
    num_mixtures: int,
    mix_size: float,
    gdp_mu: float,
    label_balance: float = 1.0,
    feature_clip_norm: float = 1.0,
    label_clip_norm: float = 1.0,
) -> PublishedNoise:
    """Noise of features and labels for ``poisson`` rows at ``gdp_mu`` by the central limit.

    C_x s_x / m and C_y s_y / m with s_x = s sqrt(1 + 1/b^2) and s_y = b s_x, s from
    :func:`central_limit_noise_multiplier` and b = ``label_balance``, the papers' lambda.

    Source: DPFMix, Lemma C.3, whose feature line is printed with m^2 where n^2 belongs (its label
    line, and NeuroMixGDP's Theorem 3.1, have n^2). Limit: that of the central limit.
    """
    num_records = _validate.integer("num_records", num_records)
    mix_size = _validate.real("mix_size", mix_size, above=0.0, at_most=num_records)
    balance = _validate.real("label_balance", label_balance, above=0.0)
    joint = central_limit_noise_multiplier(mix_size / num_records, num_mixtures, gdp_mu)
    feature = joint * math.sqrt(1.0 + balance**-2)
    norms = [
        _validate.real(name, norm, above=0.0)
        for name, norm in (
            ("feature_clip_norm", feature_clip_norm),
            ("label_clip_norm", label_clip_norm),
        )
    ]
    return PublishedNoise(
        norms[0] * feature / mix_size,
        norms[1] * balance * feature / mix_size,
    )

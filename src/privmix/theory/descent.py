"""Stochastic gradients of a linear model on mixed rows: how large they are, and how far they lead."""

from __future__ import annotations

import math

from privmix import _validate


def descent_error_bound(
    num_steps: int, *, squared_gradient: float, strong_convexity: float
) -> float:
    """Bound on the expected excess loss of the last of ``num_steps`` stochastic gradient steps.

    17 G^2 (1 + ln T) / (lambda T), for steps of size 1 / (lambda t) on a lambda-strongly convex
    loss over a convex set, with unbiased gradients of mean squared norm at most G^2.

    Args:
        num_steps: T, at least 2; one row of a release a step.
        squared_gradient: G^2, of :func:`mixed_squared_gradient` for mixed rows.
        strong_convexity: lambda: the smallest eigenvalue of the records' second moments X X' / n.

    Source: DPMix (Lee et al. 2019), Theorem 6, which is Theorem 1 of Shamir & Zhang 2013.
    DPMix states lambda as s_min(X) / n, where s_min must be the smallest eigenvalue of X X': the square
    of a singular value. Limit: the bound is for the steps of the theorem; it is loose by its 17 at least.

    Example:
        >>> from privmix.theory import descent_error_bound
        >>> round(descent_error_bound(60_000, squared_gradient=2.0, strong_convexity=0.5), 4)
        0.0136

    """
    steps = _validate.integer("num_steps", num_steps, at_least=2)
    squared = _validate.real("squared_gradient", squared_gradient, at_least=0.0)
    convexity = _validate.real("strong_convexity", strong_convexity, above=0.0)
    return 17.0 * squared * (1.0 + math.log(steps)) / (convexity * steps)


def mixed_squared_gradient(
    mix_size: int,
    *,
    num_features: int,
    num_classes: int,
    weight_norm: float,
    feature_clip_norm: float,
    label_clip_norm: float,
    feature_noise_stddev: float,
    label_noise_stddev: float,
) -> float:
    """Bound on the mean squared norm of DPMix's bias-corrected gradient on one row.

    The gradient is l ((W x' - y') x'' - s_x^2 W), where x' and y' are the means of l records plus
    noise of standard deviations s_x and s_y. With e = |W| C_x + C_y, the bound is

        l^2 ((e^2 + s_x^2 |W|^2 + K s_y^2) (C_x^2 + d s_x^2) + 2 e C_x s_x^2 |W| + s_x^4 |W|^2),

    an equality in one dimension with one class where the records of the row are alike and on
    their bounds, of opposite signs in W x and y. It rises in both noises, as the paper's proof says
    of its own, which has no constants.

    Args:
        mix_size: l, records of a row.
        num_features: d.
        num_classes: K, the width of a label vector.
        weight_norm: Frobenius norm |W| that the weights are kept within.
        feature_clip_norm: C_x, bound on a record's features.
        label_clip_norm: C_y, bound on its label vector.
        feature_noise_stddev: s_x, noise of a published feature.
        label_noise_stddev: s_y, noise of a published label weight.

    Source: DPMix (Lee et al. 2019), Theorem 5, part (2) of its proof; the constants are ours, by the
    fourth moments of Gaussians. The paper concludes from the noise alone that more records in a row are better
    always: that leaves out the factor l^2, which makes the bound rise where the noise is small.

    """
    size = _validate.integer("mix_size", mix_size)
    width = _validate.integer("num_features", num_features)
    classes = _validate.integer("num_classes", num_classes)
    weights = _validate.real("weight_norm", weight_norm, at_least=0.0)
    features = _validate.real("feature_clip_norm", feature_clip_norm, at_least=0.0)
    labels = _validate.real("label_clip_norm", label_clip_norm, at_least=0.0)
    x_noise = _validate.real("feature_noise_stddev", feature_noise_stddev, at_least=0.0) ** 2
    y_noise = _validate.real("label_noise_stddev", label_noise_stddev, at_least=0.0) ** 2
    error = weights * features + labels
    residual = error**2 + x_noise * weights**2 + classes * y_noise
    row = features**2 + width * x_noise
    crossed = 2.0 * error * features * x_noise * weights + (x_noise * weights) ** 2
    return float(size**2 * (residual * row + crossed))

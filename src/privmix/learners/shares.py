"""How many of the records each class has: what a release says, and what predictions go by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from privmix import _validate
from privmix.learners.base import LinearClassifier, ReleaseLike, Vector, check_prior, facts_of
from privmix.preprocess import Step

ClassPrior = ArrayLike | Literal["uniform", "counts", "estimated"] | None
ClassWeight = Literal["balanced"] | Mapping[Any, float] | None


class PriorClassifier(LinearClassifier):
    """Base of the classifiers that a prior of the classes can be given to: of sizes, and of vectors."""

    class_prior_: Vector | None

    def __init__(
        self,
        *,
        class_prior: ClassPrior = None,
        class_weight: ClassWeight = None,
        class_vectors: ArrayLike | None = None,
    ) -> None:
        self.class_prior, self.class_weight = class_prior, class_weight
        self.class_vectors = class_vectors


def denoised(sizes: Vector, error: float) -> Vector:
    """Estimate shares from class sizes with a known standard error.

    Sizes are shrunk towards their mean as James and Stein would, and no share is below what the
    error hides.

    Returns:
        (K,) shares above 0, which add up to 1.

    """
    num_classes, total = len(sizes), float(sizes.sum())
    equal = np.full(num_classes, 1 / num_classes)
    if not total > num_classes * error / 10:
        return equal
    shares, noise = sizes / total, error / total
    spread = float(((shares - equal) ** 2).sum())
    kept = max(1 - num_classes * noise**2 / spread, 0.0) if spread > 0 else 0.0
    shares = np.maximum(equal + kept * (shares - equal), min(max(noise, 1e-6), 1 / num_classes))
    return np.asarray(shares / shares.sum())


class Sizes(NamedTuple):
    """The classes' shares of the records, which add up to 1, and actual over planned records."""

    shares: Vector
    total: float = 1.0

    @classmethod
    def of(cls, sizes: Vector, error: float) -> Self:
        """Estimate from class sizes over the planned number of records, with a standard error."""
        total = float(sizes.sum())
        known = total > 4 * error * np.sqrt(len(sizes))
        return cls(denoised(sizes, error), total if known else 1.0)


def known_sizes(release: ReleaseLike) -> Sizes | None:
    """Return class sizes as the schema states them or charged counts show them, or None."""
    balance = getattr(facts_of(release), "class_balance", None)
    counted = getattr(getattr(release, "preprocessor", None), "counted", None)
    if counted is not None:
        return Sizes.of(*counted)
    if isinstance(balance, tuple):
        return Sizes(denoised(np.asarray(balance, dtype=np.float64), 0.0))
    return None


def prediction_prior(
    given: ClassPrior,
    weight: ClassWeight,
    shares: Vector | None,
    lengths: Vector | None,
    release: ReleaseLike,
) -> Vector | None:
    """Return the prior of the classes that predictions use; None for none.

    Args:
        given: As the learners take it.
        weight: Likewise.
        shares: The classes' shares of the records, if the release shows them.
        lengths: Sizes of the classes as the lengths of class sums have them, the second best.
        release: The release.

    """
    if isinstance(weight, Mapping):
        prior = prediction_prior(given, None, shares, lengths, release)
        factors = _weights(weight, release.classes)
        return check_prior(factors if prior is None else factors * prior, release.num_classes)
    if weight is not None:
        asked: object = weight
        if not isinstance(asked, str) or asked != "balanced":
            allowed = "balanced, or a weight above 0 for each class, by its name"
            _validate.fail("class_weight", allowed, repr(asked)[:80])
        if given is not None:
            _validate.fail("class_weight", "None beside class_prior, which it replaces", weight)
        given = "uniform"
    if given is None:
        return shares
    if not isinstance(given, str):
        return check_prior(given, release.num_classes)
    _validate.one_of("class_prior", given, ("uniform", "counts", "estimated"))
    if given == "uniform":
        return np.full(release.num_classes, 1 / release.num_classes)
    steps = [step.step for step in _steps(release)]
    if given == "counts" and "class_counts" not in steps:
        _validate.fail("class_prior", "a release whose preprocessing has class counts", "none")
    if shares is None and (lengths is None or "center" in steps):
        allowed = "a release with class counts, labelled mixtures or a public class_balance"
        _validate.fail("class_prior", allowed, "a centred one, whose class sums are equally long")
    return denoised(lengths, 0.0) if shares is None and lengths is not None else shares


def _weights(given: Mapping[Any, float], classes: Sequence[int | str]) -> Vector:
    """Return (K,) weights; of classes that are not named, 1."""
    for name, weight in given.items():
        if name not in classes:
            _validate.fail("class_weight", "classes of the release", repr(name)[:80])
        _validate.real(f"class_weight[{name!r}]", weight, at_least=1e-6, at_most=1e6)
    return np.array([given.get(name, 1.0) for name in classes], dtype=np.float64)


def _steps(release: ReleaseLike) -> tuple[Step, ...]:
    preprocessor = getattr(release, "preprocessor", None)
    return () if preprocessor is None else preprocessor.steps

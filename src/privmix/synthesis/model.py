"""What a release says of its records, as distributions that records can be drawn from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.learners.adaptive import Rounds, round_shares
from privmix.learners.base import (
    HybridLike,
    Matrix,
    ReleaseLike,
    Vector,
    facts_of,
    target_of,
)
from privmix.learners.class_means import Offsets
from privmix.learners.discriminant import residual_spectrum
from privmix.learners.moments import RowMoments, class_means
from privmix.learners.population import (
    PopulationMoments,
    TargetMoments,
    hybrid_moments,
    mixed_moments,
    target_moments,
)
from privmix.learners.record_norm import (
    LENGTHS_VARIATION,
    intercept_of,
    mixed_norm,
    scaled_constant,
)
from privmix.learners.regression import shrunk_least_squares
from privmix.learners.shares import known_sizes
from privmix.theory.spectrum import signal_variances

_TINY = np.finfo(float).tiny
# A class of fewer records than this share of the average is drawn as if it had as many: its offset
# is divided by its size, and so is its noise.
_LEAST_SIZE = 0.1
_LEAST_SHARE = 1e-9
MIXED_DESIGNS = ("poisson", "signed", "uniform", "transposed", "hierarchical")
DESIGNS = (*MIXED_DESIGNS, "stratified", "hybrid")


class RecordModel(Protocol):
    """A distribution of records as they were mixed, with labels."""

    def draw(self, count: int, random: np.random.Generator) -> tuple[Matrix, NDArray[Any]]:
        """Draw (count, d) features, and labels: (count,) class indices, or (count, K) values."""


@dataclass(frozen=True)
class ClassModel:
    """Gaussian classes with one covariance, scaled to the norm that all records have, if they do.

    Attributes:
        prior: (K,) probabilities of the classes.
        means: (K, d).
        stddevs: (r,) standard deviations along the basis.
        basis: (d, r) directions of the scatter within classes.
        norm: What all records' norm is, or None.
        boundary: The same classes nearer to each other, of which some records are drawn, or None.
        boundary_share: Which part of the records.

    """

    prior: Vector
    means: Matrix
    stddevs: Vector
    basis: Matrix
    norm: float | None
    boundary: ClassModel | None = None
    boundary_share: float = 0.0

    @classmethod
    def of(cls, release: ReleaseLike, prior: Vector) -> Self:
        """Estimate from the rows of a release whose records have one class each."""
        norm = mixed_norm(release)
        if release.design == "stratified":
            return cls._isotropic(release, prior, norm)
        if release.design == "hybrid":
            moments = _with_sizes(hybrid_moments(*cast(HybridLike, release).tables), prior)
        else:
            moments = mixed_moments(release)
        means = moments.mean + class_offsets(moments.offsets, moments.offset_noise, prior)
        posterior = Offsets.of(moments.offsets, moments.offset_noise).posterior
        variances, basis = residual_spectrum(moments, posterior)
        left = _trace(moments) - _scatter_trace(means, moments.mean, prior)
        if norm is not None:
            left = norm**2 - float(prior @ (means**2).sum(axis=1))
        return cls(prior, means, np.sqrt(scaled_to_trace(variances, left)), basis, norm)

    @classmethod
    def _isotropic(cls, release: ReleaseLike, prior: Vector, norm: float | None) -> Self:
        """Class sums alone say nothing of how records vary, but that none is beyond the clip norm."""
        sums, noise = class_means(release)
        mean = sums.mean(axis=0)
        sizes = prior * len(prior)
        means = mean + class_offsets(sums - np.outer(sizes, mean), noise, prior)
        width = len(mean)
        left = release.feature_clip_norm**2 - float(prior @ (means**2).sum(axis=1))
        variances = np.full(width, max(left, 0.0) / width)
        scaled = scaled_constant(release)
        if scaled is not None:  # it varies as lengths do
            variances[scaled.position] = (LENGTHS_VARIATION * mean[scaled.position]) ** 2
        return cls(prior, means, np.sqrt(variances), np.eye(width), norm)

    def draw(self, count: int, random: np.random.Generator) -> tuple[Matrix, NDArray[np.int64]]:
        """Draw records; every class has its share of them, up to one."""
        labels = draw_classes(self.prior, count, random)
        if self.boundary is None:
            return self.members(labels, random), labels
        near = random.random(count) < self.boundary_share
        features = np.empty((count, self.means.shape[1]))
        features[~near] = self.members(labels[~near], random)
        features[near] = self.boundary.members(labels[near], random)
        return features, labels

    def members(self, labels: NDArray[np.int64], random: np.random.Generator) -> Matrix:
        """Draw records of the given classes, in pairs on either side of their class's mean.

        So the draw moves no class mean, which is what learners take most from few records. The two of a
        pair are anywhere among those of their class.
        """
        noise = random.standard_normal((len(labels), len(self.stddevs)))
        order = np.lexsort((random.permutation(len(labels)), labels))
        places = np.arange(len(labels)) - np.searchsorted(labels[order], labels[order])
        second = np.flatnonzero(places % 2 == 1)
        noise[order[second]] = -noise[order[second - 1]]
        return _scaled(self.means[labels] + (noise * self.stddevs) @ self.basis.T, self.norm)


def draw_classes(prior: Vector, count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Draw (count,) class indices, of every class its share, up to one."""
    places = (np.arange(count) + random.random()) / count
    labels = np.searchsorted(np.cumsum(prior)[:-1], places, side="right")
    return random.permutation(labels).astype(np.int64)


@dataclass(frozen=True)
class TargetModel:
    """Gaussian records with label vectors that are linear in them, but for a spread.

    Attributes:
        features_mean: (d,).
        targets_mean: (J,).
        offset: (J,) targets where all features are 0.
        stddevs: (d,) standard deviations of the features along the basis.
        basis: (d, d) orthonormal.
        coef: (J, d).
        spread: (J,) standard deviation of a target around the linear model.
        norm: What all records' norm is, or None.

    """

    features_mean: Vector
    targets_mean: Vector
    offset: Vector
    stddevs: Vector
    basis: Matrix
    coef: Matrix
    spread: Vector
    norm: float | None

    @classmethod
    def of(cls, release: ReleaseLike, constant: Vector | None = None) -> Self:
        """Estimate from rows with label vectors.

        Args:
            release: A release of design ``poisson``, ``signed``, ``uniform`` or ``transposed``.
            constant: (d,) weights that make 1 of the features of any record, if there are such.
                They show the means of signed rows.

        """
        moments = target_moments(release)
        line = moments
        if release.design == "signed":
            moments = _with_means(moments, release, constant)
        # The learner's own line of numbers is about 0. About means that signed rows show through a
        # constant only, it would be off by their noise.
        line = line if target_of(release) == "regression" else moments
        coef, _ = shrunk_least_squares(line, release.mix_size, release.sampling_prob)
        offset = line.targets_mean - coef @ line.features_mean
        eigenvalues, basis = np.linalg.eigh(moments.covariance)
        variances = signal_variances(eigenvalues, moments.noise, moments.num_rows)
        norm, x = mixed_norm(release), moments.features_mean
        trace = float(np.trace(moments.covariance)) - len(x) * moments.noise
        left = trace if norm is None else norm**2 - float(x @ x)
        variances = scaled_to_trace(variances, left)
        explained = ((coef @ basis) ** 2 * variances).sum(axis=1)
        rest = moments.variance - moments.target_noise - explained
        return cls(
            features_mean=x,
            targets_mean=moments.targets_mean,
            offset=offset,
            stddevs=np.sqrt(variances),
            basis=basis,
            coef=coef,
            spread=np.sqrt(np.maximum(rest, 0.0)),
            norm=norm,
        )

    def draw(self, count: int, random: np.random.Generator) -> tuple[Matrix, Matrix]:
        """Draw records and their label vectors, which no bound has been applied to."""
        noise = random.standard_normal((count, len(self.stddevs))) * self.stddevs
        shift = noise @ self.basis.T
        own = random.standard_normal((count, len(self.spread))) * self.spread
        features = self.features_mean + shift
        return _scaled(features, self.norm), self.offset + features @ self.coef.T + own


def class_prior(
    release: ReleaseLike,
    given: NDArray[np.float64] | str | None,
    rounds: Callable[[], Rounds],
) -> tuple[Vector, str]:
    """Return the classes' probabilities, and where they are from; ``rounds`` are read only if need be.

    ``given`` is K numbers, ``counts``, ``estimated``, ``uniform`` or None: counts, less their noise, if the
    release has them, else the public shares of the schema, else estimated from label weights or rounds, else uniform.
    """
    count = release.num_classes
    if given is not None and not isinstance(given, str):
        prior = np.asarray(given, dtype=np.float64)
        prior = prior / max(float(prior.max(initial=0.0)), _TINY)
        total = float(prior.sum()) if prior.shape == (count,) else 0.0
        if not (total > 0 and np.isfinite(total) and (prior >= 0).all()):
            allowed = f"{count} numbers, none negative and not all 0"
            _validate.fail("class_prior", allowed, np.asarray(given).tolist())
        prior = np.where(prior < _LEAST_SHARE * total, 0.0, prior)  # no record is of these
        return prior / prior.sum(), "given"
    preprocessor = getattr(release, "preprocessor", None)
    counted = preprocessor is not None and preprocessor.counted is not None
    stated = getattr(facts_of(release), "class_balance", None)
    if isinstance(given, str):
        _validate.one_of("class_prior", given, ("counts", "estimated", "uniform"))
    if given == "counts" or (given is None and counted):
        sizes = known_sizes(release) if counted else None
        if sizes is None:
            _validate.fail("class_prior", "a release whose preprocessing has class counts", given)
        return sizes.shares, "counts"
    if given is None and isinstance(stated, tuple):
        return _shares(np.asarray(stated, dtype=np.float64)), "public"
    mixed = release.design in MIXED_DESIGNS
    counting = release.design == "adaptive" and intercept_of(release) is not None
    if given == "estimated" and not (mixed or counting):
        allowed = "estimated for rows with label weights, or rounds with an intercept"
        _validate.fail("class_prior", allowed, release.design)
    if given == "uniform" or not (mixed or counting):
        return np.full(count, 1 / count), "uniform"
    if counting:
        return round_shares(release, rounds()), "estimated"
    return _estimated_prior(release), "estimated"


def _estimated_prior(release: ReleaseLike) -> Vector:
    """Shrink the classes' shares towards each other, by what chance alone would tell them apart.

    The shares' own errors are judged by folds of the rows: they vary among halves.
    """
    halves = RowMoments.folds(release, 2)
    first, second = (mixed_moments(release, half).class_sizes for half in halves)
    sizes = mixed_moments(release, halves[0] + halves[1]).class_sizes
    sizes = np.maximum(sizes, 0.0)
    average = float(sizes.mean())
    if average <= 0:
        return np.full(len(sizes), 1 / len(sizes))
    error = float(((first - second) ** 2).mean()) / 4
    spread = float(((sizes - average) ** 2).mean())
    gain = max(spread - error, 0.0) / max(spread, _TINY)
    return _shares(average + gain * (sizes - average))


def _shares(sizes: Vector) -> Vector:
    sizes = np.maximum(sizes, 0.0)
    return sizes / sizes.sum() if sizes.any() else np.full(len(sizes), 1 / len(sizes))


def _with_sizes(moments: PopulationMoments, prior: Vector) -> PopulationMoments:
    """Take offsets of class sums from the mean by the classes' sizes as they are drawn.

    The sizes that the sums' lengths show suppose that class means are alike in length.
    """
    sizes = prior * len(prior)
    offsets = moments.offsets + np.outer(moments.class_sizes - sizes, moments.mean)
    return replace(moments, offsets=offsets, class_sizes=sizes)


def class_offsets(offsets: Matrix, noise: float, prior: Vector) -> Matrix:
    """Return (K, d) class means less the overall mean: likeliest directions, unbiased lengths.

    The posterior of ``Offsets`` has the least error, not the length of a class's offset: with fewer
    classes than features it is too long, with hardly any noise too short. Records drawn around it
    would be easier or harder to tell apart than those of the release. So all offsets are scaled to
    the mean square that the offsets have beyond the noise.
    """
    posterior = Offsets.of(offsets, noise).posterior
    square = max(float((offsets**2).sum()) - offsets.size * noise, 0.0)
    factor = np.sqrt(square / max(float((posterior**2).sum()), _TINY))
    sizes = np.maximum(prior * len(prior), _LEAST_SIZE)
    return np.asarray(factor * posterior / sizes[:, None])


def _scatter_trace(means: Matrix, mean: Vector, prior: Vector) -> float:
    return float(prior @ ((means - mean) ** 2).sum(axis=1))


def _trace(moments: PopulationMoments) -> float:
    """Mean square of a record less the mean record: unbiased, whatever the noise."""
    return float(np.trace(moments.covariance)) - len(moments.mean) * moments.noise


def scaled_to_trace(variances: Vector, trace: float) -> Vector:
    """Scale variances so that they add up to ``trace``; noise made them too large together."""
    trace, total = max(trace, 0.0), float(variances.sum())
    if total <= 0:
        return np.full(len(variances), trace / len(variances))
    return np.asarray(variances * (trace / total))


def _with_means(
    moments: TargetMoments, release: ReleaseLike, constant: Vector | None
) -> TargetMoments:
    """Centre what signed rows show, raw second moments, by means that these hold themselves.

    The second moments of what is 1 for all records, and of anything else, are means; nearly so
    of a constant that was scaled with records. Labels of 0 and 1
    have their shares as squares; weights of classes that add up to one have means as the sums of
    their products. Where nothing shows a mean it stays 0.
    """
    x, y = moments.features_mean, moments.targets_mean
    table = getattr(facts_of(release), "table", None)
    is_clipped = table is not None and release.feature_clip_norm < table.norm_bound
    scaled = scaled_constant(release)
    if scaled is not None and constant is None:
        at = scaled.position
        signal = max(float(moments.covariance[at, at]) - moments.noise, 0.0)
        root = np.sqrt(signal / (1 + LENGTHS_VARIATION**2))
        root = float(np.clip(root, scaled.least, scaled.most))
        x, y = moments.covariance[at] / root, moments.cross[:, at] / root
        x[at] = root
    if constant is not None:
        x = moments.covariance @ constant - moments.noise * constant
        y = moments.cross @ constant
        square = float(constant @ x)  # 1, but for records that were clipped, or left out
        if is_clipped and square > 0:
            x, y = x / np.sqrt(square), y / np.sqrt(square)
    elif target_of(release) == "multilabel":
        y = np.maximum(moments.variance - moments.target_noise, 0.0)
    elif target_of(release) == "soft":
        rows = RowMoments.of(release)
        products = release.mix_size / rows.count * rows.label_gram
        x = moments.cross.sum(axis=0)
        y = products.sum(axis=0) - moments.target_noise
    return replace(
        moments,
        features_mean=x,
        targets_mean=y,
        covariance=moments.covariance - np.outer(x, x),
        cross=moments.cross - np.outer(y, x),
        variance=moments.variance - y**2,
    )


def _scaled(features: Matrix, norm: float | None) -> Matrix:
    if norm is None:
        return features
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return np.asarray(features * (norm / np.maximum(lengths, _TINY)))

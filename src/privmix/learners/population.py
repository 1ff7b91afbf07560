"""What the rows of a release say about the records: first and second moments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from privmix import _validate
from privmix.learners.base import Matrix, ReleaseLike, Vector, class_prob
from privmix.learners.class_means import relative_class_sizes
from privmix.learners.moments import RowMoments, class_means
from privmix.learners.shares import Sizes

_TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class PopulationMoments:
    """Estimates about the records, n of them planned, each with its known noise.

    Attributes:
        mean: (d,) mean record.
        covariance: (d, d) of the records, per planned record, **plus** ``noise`` on the diagonal.
        noise: Variance that the noise adds to every diagonal entry.
        num_rows: Number of rows behind the covariance.
        offsets: (K, d) sum of a class's records less the mean, over n / K: for classes of equal
            size, class mean less mean.
        offset_noise: Variance of each coordinate of the offsets.
        class_sizes: (K,) sizes of the classes up to a common factor, through noise.
        size_error: Standard error of each of them; None where they are guessed from the lengths of
            class sums.

    """

    mean: Vector
    covariance: Matrix
    noise: float
    num_rows: int
    offsets: Matrix
    offset_noise: float
    class_sizes: Vector
    size_error: float | None = None

    def per_record(self, total: float) -> Self:
        """Return the moments per actual record, of which there are ``total`` times the planned."""
        return replace(
            self,
            covariance=self.covariance / total,
            noise=self.noise / total,
            offsets=self.offsets / total,
            offset_noise=self.offset_noise / total**2,
        )


class _Moments(NamedTuple):
    """Row moments in units of one record: sums over records, per planned record, plus noise.

    ``mean`` and ``shares`` are the sums of the features and of the labels; ``features`` (d, d),
    ``cross`` (K, d) and ``labels`` (K, K) those of the outer products; ``noise`` is on the
    diagonal of ``features``, ``label_noise`` has been taken from that of ``labels``;
    ``cross_noise`` is the variance of an entry of ``cross``.
    """

    mean: Vector
    shares: Vector
    features: Matrix
    cross: Matrix
    labels: Matrix
    noise: float
    label_noise: float
    cross_noise: float


def mixed_moments(release: ReleaseLike, rows: RowMoments | None = None) -> PopulationMoments:
    """Estimate the records' moments from rows with label weights: all, or those summed in ``rows``.

    With m the mix size, b = m / n the inclusion probability, and sums over records of x x', per
    planned record, written E[x x'] (likewise for labels and for labels times features):

    - ``poisson``: records enter independently; m Cov(row) = (1 - b) E[x x'] + m v I, with v the
      variance of the published noise, and the mean row is E[x].
    - ``transposed``: the number of rows of a record is fixed, so that the mean row has no sampling
      variance; the same holds but for a factor 1 + 1/T of the first term.
    - ``uniform``: drawing without replacement, m (n-1)/(n-m) Cov(row) is the records' covariance
      (centred by itself) plus noise. Clipped Dirichlet weights multiply the signal by a constant
      that changes no prediction; the small variance of their sum is neglected.
    - ``signed``: m E[row row'] = E[x x'] + m v I. One-hot labels add up to one, so that
      E[y x'], summed over the classes, is the mean, and E[y y'] has the classes' shares on its
      diagonal.
    - ``hierarchical``: see :func:`_without_common_coins`.

    Raises:
        InvalidInputError: Every row holds every record: nothing varies but for signs.

    """
    check_varies(release)
    rows = RowMoments.of(release) if rows is None else rows
    moments = _in_records(rows, release)
    share = _total_share(moments.shares, rows.count, release)
    mean = moments.mean / share
    covariance, cross = moments.features, moments.cross
    if release.design != "uniform":
        covariance = covariance - share * np.outer(mean, mean)
        cross = cross - np.outer(moments.shares, mean)
    num_classes = release.num_classes
    return PopulationMoments(
        mean=mean,
        covariance=covariance,
        noise=moments.noise,
        num_rows=rows.count,
        offsets=num_classes * cross,
        offset_noise=num_classes**2 * moments.cross_noise,
        class_sizes=moments.shares,
        size_error=_size_error(rows.count, release),
    )


def check_varies(release: ReleaseLike) -> None:
    """Refuse rows that hold every record: nothing varies but for signs."""
    if release.sampling_prob >= 1 and release.design != "signed":
        _validate.fail(
            "release.sampling_prob",
            "below 1 for mixed labels (otherwise every row holds every record)",
            release.sampling_prob,
        )


@dataclass(frozen=True)
class TargetMoments:
    """Estimates about records with numbers as targets; second moments are per planned record.

    Attributes:
        features_mean: (d,) mean record; 0 for ``signed`` rows, whose signs cancel it.
        targets_mean: (J,) mean target; 0 likewise.
        covariance: (d, d) of the records **plus** ``noise`` on the diagonal; for ``signed`` rows
            these are raw second moments, and so in what follows.
        cross: (J, d) covariance of targets and features.
        variance: (J,) variance of the targets **plus** ``target_noise``.
        noise: Variance that the noise adds to every diagonal entry of ``covariance``.
        target_noise: The same for ``variance``.
        num_rows: Number of rows.
        sizes_vary: Whether rows hold varying numbers of records, so that what all records have in
            common varies from row to row, too.

    """

    features_mean: Vector
    targets_mean: Vector
    covariance: Matrix
    cross: Matrix
    variance: Vector
    noise: float
    target_noise: float
    num_rows: int
    sizes_vary: bool


def target_moments(release: ReleaseLike) -> TargetMoments:
    """Estimate moments of records and targets, by the formulas of :func:`mixed_moments`."""
    check_varies(release)
    rows = RowMoments.of(release)
    moments = _unscaled(rows, release)
    x, y = moments.mean, moments.shares
    if release.design == "signed":
        x, y = np.zeros_like(x), np.zeros_like(y)
    # Rows drawn without replacement are centred by the drawing itself.
    less = 0.0 if release.design == "uniform" else 1.0
    return TargetMoments(
        features_mean=x,
        targets_mean=y,
        covariance=moments.features - less * np.outer(x, x),
        cross=moments.cross - less * np.outer(y, x),
        variance=moments.labels.diagonal() + moments.label_noise - less * y**2,
        noise=moments.noise,
        target_noise=moments.label_noise,
        num_rows=rows.count,
        sizes_vary=release.design in ("poisson", "transposed"),
    )


def hybrid_moments(
    sums: ReleaseLike,
    rows: ReleaseLike,
    found: tuple[Matrix, float] | None = None,
    seen: RowMoments | None = None,
    known: Sizes | None = None,
) -> PopulationMoments:
    """Estimate the records' moments from class sums and signed rows without labels.

    Class sums show the mean and, unless the classes' sizes are ``known``, guess these from the sums'
    lengths. ``found`` (class means and their noise variance) and ``seen`` stand in for what the two
    tables say in all. With known sizes all is per actual record.
    """
    means, offset_noise = class_means(sums) if found is None else found
    total = 1.0 if known is None else known.total
    mean = means.mean(axis=0) / total
    seen = RowMoments.of(rows) if seen is None else seen
    sizes = (
        relative_class_sizes(means, offset_noise)
        if known is None
        else len(means) * total * known.shares
    )
    moments = PopulationMoments(
        mean=mean,
        covariance=rows.mix_size / seen.count * seen.gram - total * np.outer(mean, mean),
        noise=rows.mix_size * rows.feature_noise_stddev**2,
        num_rows=seen.count,
        offsets=means - np.outer(sizes, mean),
        offset_noise=offset_noise,
        class_sizes=sizes,
    )
    return moments if known is None else moments.per_record(total)


def _in_records(rows: RowMoments, release: ReleaseLike) -> _Moments:
    """Undo the scale of the rows, and what their sampling does to second moments."""
    moments = _unscaled(rows, release)
    if release.design == "signed":
        return moments._replace(
            mean=moments.cross.sum(axis=0), shares=np.maximum(moments.labels.diagonal(), 0)
        )
    if release.design == "hierarchical":
        inclusion_prob = _mean_inclusion_prob(release, moments.shares)
        return _without_common_coins(moments, inclusion_prob, moments.label_noise, rows.count)
    return moments


def _mean_inclusion_prob(release: ReleaseLike, shares: Vector) -> float:
    """Probability that a record enters a row open to its class, on average over the records."""
    prob = class_prob(release)
    if isinstance(prob, float):
        return release.sampling_prob / prob
    weights = np.maximum(shares, 0)
    known = weights if weights.any() else np.ones_like(weights)
    return float(np.average(release.sampling_prob / prob, weights=known))


def _unscaled(rows: RowMoments, release: ReleaseLike) -> _Moments:
    """Undo the scale of the rows; whatever the labels are."""
    size, prob = release.mix_size, release.sampling_prob
    signed = release.design == "signed"
    sums = rows if signed else rows.centred()
    freedom = rows.count if signed else max(rows.count - 1, 1)
    scale = size
    if release.design in ("poisson", "transposed"):
        scale /= 1 - prob
    elif release.design == "uniform":
        scale *= (size / prob - 1) / (size / prob - size)
    label_noise = scale * (release.label_noise_stddev or 0.0) ** 2
    labels, features = scale / freedom * sums.label_gram, scale / freedom * sums.gram
    # Label and feature noise are independent of each other, and most of what varies.
    cross_noise = float(labels.diagonal().mean() * features.diagonal().mean()) / rows.count
    return _Moments(
        mean=rows.features / rows.count,
        shares=rows.labels / rows.count,
        features=features,
        cross=scale / freedom * sums.cross,
        labels=labels - label_noise * np.eye(len(labels)),
        noise=scale * release.feature_noise_stddev**2,
        label_noise=label_noise,
        cross_noise=cross_noise,
    )


def _without_common_coins(
    moments: _Moments, inclusion_prob: float, label_noise: float, num_rows: int
) -> _Moments:
    """Undo what records of one class share: the coin that opens a row to their class.

    Given which classes a row is open to, records enter independently with probability b. With
    M the (K, d) class means, L = m Cov(labels) and D = diag(shares), the coins add the same
    L - (1-b) D to labels and, through M, to features: m Cov(labels, row) = L M and
    m Cov(row) = (1-b) W + M' L M + noise, with W the within-class moments. So M is the regression
    of features on labels (less their noise), whatever the coins' dependence, W the rest, and
    E[x x'] = W + M' D M. L is regularised by its own error, that of a variance. Where b differs
    between classes, it is the mean over records: right if the classes' own moments are alike.
    """
    error = label_noise * np.sqrt(2 / num_rows)
    labels = (moments.labels + moments.labels.T) / 2 + error * np.eye(len(moments.labels))
    inverse = np.linalg.pinv(labels, rcond=1e-9, hermitian=True)
    means = inverse @ moments.cross
    within = moments.features - means.T @ moments.cross
    shares = np.maximum(moments.shares, 0)
    loss = max(1 - inclusion_prob, 1e-3)
    # Errors of a regression: the residual's variance times what the labels leave of them.
    spread = (inverse @ (moments.labels + label_noise * np.eye(len(labels))) @ inverse).diagonal()
    rest = max(float(within.diagonal().mean()), 0.0)
    cross_noise = float((shares**2 * np.maximum(spread, 0)).mean()) * rest / num_rows
    return moments._replace(
        features=within / loss + (means.T * shares) @ means,
        cross=shares[:, None] * means,
        noise=moments.noise / loss,
        cross_noise=cross_noise,
    )


def _total_share(shares: Vector, count: int, release: ReleaseLike) -> float:
    """Estimate actual over planned number of records; 1 where the noise hides it."""
    total, num_classes = float(shares.sum()), len(shares)
    noise = release.label_noise_stddev or 0.0
    if release.design == "signed":
        stddev = release.mix_size * noise**2 * np.sqrt(2 * num_classes / count)
    else:
        stddev = noise * np.sqrt(num_classes / count)
    return total if total > max(4 * stddev, _TINY) else 1.0


def _size_error(count: int, release: ReleaseLike) -> float:
    """Standard error of a class's share as ``count`` rows show it.

    A label weight varies by noise and by which records are in a row, 1 / K / m for a class of
    average size; ``signed`` rows show shares as variances.
    """
    size, noise = release.mix_size, release.label_noise_stddev or 0.0
    variance = noise**2 + 1 / (release.num_classes * size)
    if release.design == "signed":
        return float(size * variance * np.sqrt(2 / count))
    return float(np.sqrt(variance / count))

"""Check a release folder as a stranger would: files, certificate, rows.

A release whose certificate was edited consistently with everything else cannot be told from a true
one unless its digest is known from elsewhere (``expect_digest``), or it is signed (``signers``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from privmix import _validate
from privmix._validate import FrozenModel, InvalidInputError, printable
from privmix.accounting.guarantee import Guarantee
from privmix.foreign.files import MOST_JSON_BYTES, ForeignFolder
from privmix.mechanism import AdaptiveConfig
from privmix.mixer import Rows
from privmix.preprocess import FILE_NAME as PREPROCESSING_NAME
from privmix.preprocess import charged
from privmix.publishing.card import CARD_NAME, dataset_card
from privmix.publishing.certificate import FILE_NAME
from privmix.publishing.folder import (
    check_listed,
    is_part_name,
    least_part_bytes,
    part_bounds,
)
from privmix.publishing.grid import PublishedGrid
from privmix.publishing.release import Release, Table, empty_preprocessor
from privmix.publishing.sealing import FORMAT_VERSION, Sealable
from privmix.publishing.signature import Origin, check_origin
from privmix.rounds.public_model import PublicModel, same_weights

# Probability that a sound release is flagged by its rows; shared by the tests below.
FALSE_ALARM = 1e-6
OriginCheck: TypeAlias = Callable[[Path, bytes], tuple[Origin, list[str]]]
_MOST_REASONS, _LONGEST_REASON = 200, 2000
# Spectra of wider tables take minutes: there the test looks at this many columns, evenly spread.
_SPECTRUM_COLUMNS = 1024


class Verification(FrozenModel):
    """The outcome of :func:`verify`.

    Attributes:
        valid: Whether nothing was found wrong.
        epsilon: The certificate's epsilon; None if there is no readable certificate.
        delta: Its delta.
        digest: SHA-256 of the certificate as found.
        reasons: What was found wrong, one line each.
        guarantee: What is guaranteed, in words; None if anything was found wrong.
        origin: What vouches for where it comes from; None if anything was found wrong.

    """

    valid: bool
    epsilon: float | None
    delta: float | None
    digest: str
    reasons: tuple[str, ...]
    guarantee: Guarantee | None = None
    origin: Origin | None = None

    @classmethod
    def of(
        cls, certificate: Sealable, digest: str, reasons: list[str], origin: Origin | None
    ) -> Verification:
        """Return the outcome for a readable certificate; any reason makes it invalid."""
        return cls(
            valid=not reasons,
            epsilon=certificate.epsilon,
            delta=certificate.delta,
            digest=digest,
            reasons=told(reasons),
            guarantee=None if reasons else certificate.guarantee,
            origin=None if reasons else origin,
        )


def verify(
    folder: str | Path,
    *,
    expect_digest: str | None = None,
    signers: str | Path | None = None,
    identity: str | None = None,
) -> Verification:
    """Check a release: files against their digests, the certificate against its own parameters,
    and the rows against the noise that the certificate states.

    Args:
        folder: The release folder.
        expect_digest: Digest of the certificate as printed at sealing. Without it, or a signature
            that is checked, a forgery that is consistent throughout cannot be detected.
        signers: OpenSSH's file of allowed signers, one of whom must have signed. Without it a
            signature that is there only has to fit the certificate.
        identity: Which of them must have signed; any, by default.

    Raises:
        InvalidInputError: ``folder`` holds no certificate, so it is no release at all; no list of
            allowed signers.

    Example:
        >>> import numpy as np
        >>> from privmix import Schema, plan_release, release, verify
        >>> schema = Schema(classes=[0, 1], num_features=3, num_records=200, feature_clip_norm=1.0)
        >>> plan = plan_release(
        ...     schema, target_epsilon=2.0, target_delta=1e-5, design="stratified", rows_per_class=5
        ... )
        >>> x, y = np.eye(3)[np.arange(200) % 2], np.arange(200) % 2
        >>> made = release(x, y, plan, out="checked")
        >>> verify("checked", expect_digest=made.certificate_digest).valid
        True
        >>> verify("checked", expect_digest="0" * 64).valid
        False

    """
    vouched = partial(check_origin, expect_digest=expect_digest, signers=signers, identity=identity)
    return _verified(folder, vouched)


def verify_unsigned(folder: str | Path) -> Verification:
    """Check a release but for its signature: whatever has that name is to be replaced."""
    return _verified(folder, None)


def _verified(folder: str | Path, find_origin: OriginCheck | None) -> Verification:
    """Check a release; without ``find_origin`` a signature is not looked at.

    What is wrong with its origin keeps no other check from being made.
    """
    try:
        release = Release(folder)
    except InvalidInputError as error:
        if not ForeignFolder(folder).exists(FILE_NAME):
            raise
        reason = f"{FILE_NAME}: not a certificate of format {FORMAT_VERSION}: {error}"
        return Verification(valid=False, epsilon=None, delta=None, digest="", reasons=(reason,))
    certificate = release.certificate
    origin, strange = None, list[str]()
    if find_origin is not None:
        raw = release.files.read(FILE_NAME, MOST_JSON_BYTES)
        origin, strange = find_origin(release.folder, raw)
    reasons = strange + _content_reasons(release)
    reasons += [f"{name}: changed while it was checked" for name in release.files.changed()]
    return Verification.of(certificate, release.certificate_digest, reasons, origin)


def require_stated(release: Release) -> None:
    """Refuse a release whose certificate states something else than its own parameters give.

    It is :func:`verify` but for the rows and the origin, and marks the release as ``checked``. One that
    says itself that it protects nobody passes.

    Raises:
        InvalidInputError: The first thing that ``verify`` finds.

    """
    stamp = release.certificate.not_private()
    found = [reason for reason in _statement_reasons(release) if reason not in stamp]
    if found:
        allowed = "a release as it was sealed; see privmix verify"
        _validate.fail(str(release.folder), allowed, told(found)[0])
    release.checked = True


def _content_reasons(release: Release) -> list[str]:
    """Check everything but the origin."""
    reasons = _statement_reasons(release)
    if not reasons:
        share = FALSE_ALARM / 3  # of at most two tables, and of preprocessing
        reasons += _guarded(lambda: check_preprocessing(release, share))
        for table in release.tables:
            reasons += _guarded(lambda table=table: check_rows(table, share))
        reasons += _guarded(lambda: check_rounds(release))
    return reasons


def _statement_reasons(release: Release) -> list[str]:
    """Check files, certificate and card; what a check needs is checked before it."""
    file_reasons = _guarded(lambda: check_files(release))
    reasons = list(file_reasons)
    # A certificate that says more of its rows than its files hold is not worth an account.
    if found := _guarded(lambda: [] if release.parts.layout else ["data: no parts"]):
        reasons += [reason for reason in found if reason not in reasons]
    else:
        reasons += _guarded(release.certificate.recheck)
    if not file_reasons:  # what is not the certified content is not worth a look
        reasons += _guarded(lambda: _check_content(release))
    return reasons


def told(reasons: list[str]) -> tuple[str, ...]:
    """Return findings as they are told: printable, not without end, and not one without end."""
    shown = [printable(reason, _LONGEST_REASON) for reason in reasons[:_MOST_REASONS]]
    if (left := len(reasons) - len(shown)) > 0:
        shown.append(f"and {left} more")
    return tuple(shown)


def _guarded(check: object) -> list[str]:
    """Run a check; a certificate with impossible values is a finding, not a crash."""
    try:
        return list(check())  # type: ignore[operator]
    except (ArithmeticError, ValueError, OSError, MemoryError, RecursionError) as error:
        return [f"certificate: {error}"]


def check_files(release: Release) -> list[str]:
    """Compare the files of a release with their digests; return a line for each that differs."""
    certificate = release.certificate
    stated = certificate.files
    reasons = check_listed(release.files, stated, "release", _bounds(release))
    beside = {CARD_NAME} | ({PREPROCESSING_NAME} if charged(certificate.preprocessing) else set())
    if {name for name in stated if not is_part_name(name)} != beside:
        due = ", a ".join(sorted(beside))
        reasons.append(f"certificate: files are not a {due} and parts under data/")
    return reasons


def _bounds(release: Release) -> dict[str, tuple[int, int]]:
    """Return the least and the most bytes of each file, by what the certificate says.

    Parts that are smaller together than the rows of the certificate are not laid out.
    """
    certificate = release.certificate
    card = len(dataset_card(certificate).encode())
    bounds = {CARD_NAME: (1, 2 * card + (1 << 16))}  # another card is told from one cut short
    empty = empty_preprocessor(certificate.to_plan())
    if empty is not None and empty.is_charged:
        bounds[PREPROCESSING_NAME] = empty.size_bounds()
    sizes = release.files.entries().files
    parts = {name: size for name, size in sizes.items() if is_part_name(name)}
    if sum(parts.values()) >= least_part_bytes(certificate.mechanism):
        return bounds | part_bounds(certificate.mechanism)
    return bounds | {name: (0, size) for name, size in parts.items()}


def _check_content(release: Release) -> list[str]:
    """Check what follows from the certificate byte by byte: itself, the card, the columns."""
    certificate, files = release.certificate, release.files
    reasons = []
    if files.read(FILE_NAME, MOST_JSON_BYTES) != certificate.to_bytes():
        reasons.append(f"{FILE_NAME}: not written as privmix writes it")
    card = dataset_card(certificate).encode()
    if files.size(CARD_NAME) != len(card) or files.read(CARD_NAME, len(card)) != card:
        reasons.append(f"{CARD_NAME}: not the card of this certificate")
    for name, part in release.parts.layout:
        problem = release.parts.problem(name, part)
        if problem is not None:
            reasons.append(f"{name}: {problem}")
    return reasons


def check_preprocessing(release: Release, false_alarm: float = FALSE_ALARM) -> list[str]:
    """Check what charged steps published.

    Names, shapes and types are those of the steps; what follows from the published integers is
    recomputed; and the sum of squares of each statistic is tested against the stated noise, as in
    :func:`check_rows`.

    Returns:
        A line for each finding.

    """
    preprocessor = release.preprocessor
    if preprocessor is None:
        return []
    reasons = preprocessor.problems()
    if preprocessor.is_charged:
        content = release.files.read(PREPROCESSING_NAME, preprocessor.size_bounds()[1])
        if content != preprocessor.to_bytes():
            reasons.append(f"{PREPROCESSING_NAME}: not written as privmix writes it")
    published = list(preprocessor.published())
    for position, integers, stddev in published:
        floor = chi2.ppf(false_alarm / len(published), integers.size)
        if float(np.square(integers / stddev).sum()) < floor:
            reasons.append(f"{PREPROCESSING_NAME}: {position} varies less than the stated noise")
    return reasons


def check_rounds(release: Release) -> list[str]:
    """Check that the rounds of design ``adaptive`` are what their guarantee takes them for.

    Every round's weights must follow from what was published before it.

    Returns:
        A line for each finding.

    """
    mechanism = release.certificate.mechanism
    if not isinstance(mechanism, AdaptiveConfig):
        return []
    published = (rows.features for rows in release.tables[0].iter_rows())
    model = PublicModel.of(mechanism, release.feature_clip_norm, published)
    pairs = ((rows.weights, rows.features) for rows in release.iter_rounds())
    return [
        f"data: weights of round {number} do not follow from the rows before it"
        for number, (found, due) in enumerate(model.replay(pairs))
        if not same_weights(found, due)
    ]


def check_rows(table: Table, false_alarm: float = FALSE_ALARM) -> list[str]:
    """Test that rows, columns and directions vary at least as much as the stated noise.

    A published row is (private) signal plus Gaussian noise, independent of it. Given the signal, a
    sum of squares over known noise variance is a noncentral chi-square variable, hence at least as
    large as a central one in the stochastic order, whatever the signal is. So the tests below are
    one-sided, and a sound release fails one of these tests with probability at most ``false_alarm``:

    - each row's sum of squares against chi-square with ``row_width`` degrees of freedom;
    - each column's sum of squares about its mean (``stratified``: about its class mean) against
      chi-square with num_mixtures - groups degrees of freedom;
      of rounds, whose signal may follow earlier noise, about zero and with num_mixtures degrees:
      whatever came before, a further row adds a noncentral chi-square variable;
    - the smallest singular value s of the table (of at most 1024 of its columns): projecting away
      the signal's column space leaves at least T - w Gaussian rows of width w, and
      s > sqrt(T - w) - sqrt(w) - t but for probability exp(-t^2 / 2) (Davidson & Szarek 2001,
      Theorem 2.13).

    A row is no longer, either, than a hundred times the planned records and the noise make it; see
    ``PublishedGrid.too_large``. And each number is one of the grid, bit for bit.

    Returns:
        A line for each test that failed.

    """
    share = false_alarm / 4
    moments = _Moments(table, share)
    for rows in table.iter_rows():
        moments.add(rows)
    num_rows, width = table.num_mixtures, moments.width
    if moments.num_rows != num_rows:
        return [f"data: {moments.num_rows} rows, but the certificate states {num_rows}"]
    if not moments.finite:
        return ["data: a value is not finite"]
    if not moments.on_grid:
        return ["data: a value is not on the grid of the integers that were released"]
    reasons = moments.layout_reasons
    if moments.num_large:
        reasons.append(
            f"data: {moments.num_large} rows are larger than records and noise make them"
        )
    low = int((moments.row_squares < chi2.ppf(share / num_rows, width)).sum())
    if low:
        reasons.append(f"data: {low} rows vary less than the stated noise")
    if (freedom := num_rows - moments.num_groups) > 0:
        low = int((moments.column_squares < chi2.ppf(share / width, freedom)).sum())
        if low:
            reasons.append(f"data: {low} columns vary less than the stated noise")
    if table.config.design == "residual":
        return reasons  # the last test's signal must not depend on the noise
    looked_at = len(moments.second)
    floor = math.sqrt(max(num_rows - looked_at, 0)) - math.sqrt(looked_at)
    floor -= math.sqrt(2 * math.log(1 / share))
    if floor > 0:
        smallest = float(np.linalg.eigvalsh(moments.second).min())
        if smallest < floor**2:
            reasons.append("data: some direction varies less than the stated noise")
    return reasons


class _Moments:
    """Sums over the standardised table, one pass, memory independent of the number of rows."""

    def __init__(self, table: Table, false_alarm: float) -> None:
        config = table.config
        self._feature_stddev = table.feature_noise_stddev
        self._label_stddev = table.label_noise_stddev
        self._rows_per_class = config.rows_per_class
        self.width = config.row_width
        self.num_groups = 1 if config.rows_per_class is None else config.num_classes
        if config.design == "residual":
            self.num_groups = 0
        self._num_mixtures = config.num_mixtures
        self.num_rows = 0
        self.finite = True
        self.on_grid = True
        self._share = false_alarm
        self._feature_grid = PublishedGrid.of(config, table.schema, "feature", false_alarm)
        self._label_grid = None
        if config.labels == "mixed":
            self._label_grid = PublishedGrid.of(config, table.schema, "label", false_alarm)
        self.num_large = 0
        self.layout_reasons: list[str] = []
        self._row_squares: list[NDArray[np.float64]] = []
        self._group_sums = np.zeros((self.num_groups, self.width))
        self._group_sizes = np.zeros(self.num_groups)
        stride = math.ceil(self.width / _SPECTRUM_COLUMNS)
        self._spectrum = slice(0, self.width, stride)
        size = len(range(0, self.width, stride))
        self.second = np.zeros((size, size))
        self._squares = np.zeros(self.width)

    def add(self, rows: Rows) -> None:
        table = rows.features.astype(np.float64) / self._feature_stddev
        self._check_grid(self._feature_grid, rows.features)
        if rows.label_weights is not None and self._label_grid is not None:
            self._check_grid(self._label_grid, rows.label_weights)
        groups = np.zeros(len(table), dtype=np.int64)
        if rows.labels is not None and self._rows_per_class is not None:
            groups = rows.labels
            due = np.arange(self.num_rows, self.num_rows + len(table)) // self._rows_per_class
            if not np.array_equal(groups, due) and not self.layout_reasons:
                self.layout_reasons.append("data: labels are not in the order of the classes")
        if rows.label_weights is not None and self._label_stddev is not None:
            weights = rows.label_weights.astype(np.float64) / self._label_stddev
            table = np.hstack([table, weights])
        self.finite &= bool(np.isfinite(table).all())
        self.num_rows += len(table)
        self._row_squares.append(np.square(table).sum(axis=1))
        if self.num_groups:
            for group in np.unique(groups):
                self._group_sums[group] += table[groups == group].sum(axis=0)
            self._group_sizes += np.bincount(groups, minlength=self.num_groups)
        self._squares += np.square(table).sum(axis=0)
        looked_at = table[:, self._spectrum]
        self.second += looked_at.T @ looked_at

    def _check_grid(self, grid: PublishedGrid, values: NDArray[np.float32]) -> None:
        self.on_grid &= grid.holds(values)
        share = self._share * len(values) / self._num_mixtures / 2
        self.num_large += grid.too_large(values, share)

    @property
    def row_squares(self) -> NDArray[np.float64]:
        return np.concatenate(self._row_squares)

    @property
    def column_squares(self) -> NDArray[np.float64]:
        sizes = np.maximum(self._group_sizes, 1)[:, None]
        squares: NDArray[np.float64] = self._squares - (np.square(self._group_sums) / sizes).sum(
            axis=0
        )
        return squares

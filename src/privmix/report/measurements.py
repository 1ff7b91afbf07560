"""What stands beside a release or a model: an evaluation, an audit, a ledger. All but the last are foreign."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, Literal

from privmix import _validate
from privmix._validate import FrozenModel, printable
from privmix.foreign.files import MOST_JSON_BYTES, read_file
from privmix.running.ledger import Balance, Ledger

_MOST_MEASURES = 60
_MOST_LINES = 20
_ROUNDING = 1e-9  # between a score and an end of its interval that are the same
_VERDICTS = ("consistent", "violated")  # of ``privmix.auditing.AuditReport``
_LONGEST_TEXT = 300
_DIGEST = re.compile(r"[0-9a-f]{64}")
# Scores in [0, 1] of ``privmix.learners.scores``, and those that are so for each class.
_SHARES = (
    "accuracy",
    "majority_accuracy",
    "balanced_accuracy",
    "macro_f1",
    "auc",
    "calibration_error",
    "mean_average_precision",
    "label_ranking_average_precision",
    "ranking_loss",
    "recall",
    "average_precision",
)


class Measure(FrozenModel):
    """One score: its name in words, its value, and its interval of 95 % where it has one."""

    name: str
    value: float
    interval: tuple[float, float] | None = None


class Utility(FrozenModel):
    """What ``privmix evaluate --json`` measured.

    Attributes:
        num_test_records: Records that it was measured on.
        measures: Scores of the whole test set.
        parts: Scores of single classes or outputs: by the score's name, the lowest first, at most 20.
        num_parts: How many of these there were, by the score's name.

    """

    num_test_records: int
    measures: tuple[Measure, ...]
    parts: dict[str, tuple[Measure, ...]]
    num_parts: dict[str, int]


class Audit(FrozenModel):
    """What an audit found: the claim that it tested, and what attacks showed of it.

    Attributes:
        epsilon: The claim.
        lower_bound: What attacks showed epsilon to be at least.
        confidence: Of the lower bound, in (0, 1).
        verdict: ``consistent``, or ``violated``, which says that the guarantee does not hold.
        findings: Why, as the audit has it; perhaps nothing.
        contradicts: Whether it is violated, or the lower bound is above the certified epsilon.
        same_claim: Whether the claim is the certified epsilon.
        subject: What was audited: ``this`` certificate; ``same_parameters``, a plan or another release or
            model by the same parameters; ``unknown`` where the audit does not say.

    """

    epsilon: float
    lower_bound: float
    confidence: float
    verdict: str
    findings: tuple[str, ...]
    contradicts: bool
    same_claim: bool
    subject: Literal["this", "same_parameters", "unknown"] = "unknown"


class LedgerFacts(FrozenModel):
    """What a ledger says of a release: private to the data holder.

    Attributes:
        dataset_id: The data set's declared name.
        epsilon_limit: Most that all charges together may cost.
        delta: The delta it is stated at.
        epsilon_alone: What the charge costs alone.
        epsilon_before: How much of the limit was used before it; None without a finite bound.
        epsilon_after: The same after it.
        epsilon_now: The same after all charges so far.
        kind: ``release`` or ``model``; ``reservation`` where it was charged with others in advance.
        refusal: Why nothing more is admitted, or None.
        head: Hash of the ledger's last entry, which stands for the whole ledger.

    """

    dataset_id: str
    epsilon_limit: float
    delta: float
    epsilon_alone: float | None
    epsilon_before: float | None
    epsilon_after: float | None
    epsilon_now: float | None
    kind: str
    refusal: str | None
    head: str


def read_utility(path: str | Path) -> Utility:
    """Read what ``privmix evaluate --json`` printed.

    Raises:
        InvalidInputError: Not such a file, a share outside [0, 1], or a score outside its own interval.

    """
    data = _read(path, "the JSON of privmix evaluate --json")
    count = _validate.integer(f"{path}: num_test_records", data.get("num_test_records"))
    measures, parts, counts = [], {}, {}
    for key, value in data.items():
        if key.endswith("_interval") or key.startswith("num_"):
            continue
        if _is_number(value):
            _check_share(f"{path}: {key}", key, value)
            interval = _interval(path, key, value, data.get(f"{key}_interval"))
            measures.append(Measure(name=_in_words(key), value=float(value), interval=interval))
        elif isinstance(value, dict) and all(_is_number(v) or v is None for v in value.values()):
            told = sorted((float(v), name) for name, v in value.items() if v is not None)
            for share, name in told:
                _check_share(f"{path}: {key}[{name!r}]", key, share)
            if told:
                lines = [Measure(name=printable(name, _LONGEST_TEXT), value=v) for v, name in told]
                parts[_in_words(key)] = tuple(lines[:_MOST_LINES])
                counts[_in_words(key)] = len(lines)
    if not measures:
        _validate.fail(str(path), "the JSON of privmix evaluate --json", "a file without scores")
    return Utility(
        num_test_records=count,
        measures=tuple(measures[:_MOST_MEASURES]),
        parts=parts,
        num_parts=counts,
    )


def _check_share(position: str, key: str, value: float) -> None:
    if key in _SHARES:
        _validate.real(position, value, at_least=0.0, at_most=1.0)


def _interval(path: str | Path, key: str, value: float, ends: object) -> tuple[float, float] | None:
    """Return the interval of a score, or None without one; refuse one that the score is not in."""
    if ends is None:
        return None
    position = f"{path}: {key}_interval"
    if not isinstance(ends, list) or len(ends) != 2 or not all(map(_is_number, ends)):
        _validate.fail(position, "two numbers", type(ends).__name__)
    low, high = map(float, ends)
    for end in (low, high):
        _check_share(position, key, end)
    if not low - _ROUNDING <= value <= high + _ROUNDING:
        _validate.fail(position, f"ends about {key}, {value!r}", f"[{low!r}, {high!r}]")
    return low, high


def read_audit(path: str | Path, epsilon: float, digest: str, parameters_digest: str) -> Audit:
    """Read what ``privmix audit`` wrote: ``epsilon``, ``lower_bound``, ``confidence`` and ``verdict``.

    ``findings``, a list of texts, may be there as well, and digests of what was audited; everything else
    is left alone.

    Args:
        path: The file.
        epsilon: The certified epsilon, which it is compared with.
        digest: Of the certificate.
        parameters_digest: Of the parameters that the certificate states.

    Raises:
        InvalidInputError: Not such a file, another verdict, a number out of range, or an audit of
            something else.

    """
    data = _read(path, "the JSON of an audit")
    claim = _validate.real(f"{path}: epsilon", data.get("epsilon"), at_least=0.0)
    low = _validate.real(f"{path}: lower_bound", data.get("lower_bound"), at_least=0.0)
    sure = _validate.real(f"{path}: confidence", data.get("confidence"), above=0.0, below=1.0)
    verdict = _validate.one_of(f"{path}: verdict", data.get("verdict"), _VERDICTS)
    findings = data.get("findings", [])
    if not isinstance(findings, list) or not all(isinstance(one, str) for one in findings):
        _validate.fail(f"{path}: findings", "a list of texts", type(findings).__name__)
    return Audit(
        epsilon=claim,
        lower_bound=low,
        confidence=sure,
        verdict=verdict,
        findings=tuple(printable(one, _LONGEST_TEXT) for one in findings[:_MOST_LINES]),
        contradicts=low > epsilon or verdict == "violated",
        same_claim=math.isclose(claim, epsilon, rel_tol=1e-5),
        subject=_subject(path, data, digest, parameters_digest),
    )


def _subject(
    path: str | Path, data: dict[str, Any], digest: str, parameters_digest: str
) -> Literal["this", "same_parameters", "unknown"]:
    """Say what an audit was of; refuse what says that it was of something else."""
    certificate, parameters = (
        _digest(f"{path}: {name}", data.get(name))
        for name in ("certificate_digest", "parameters_digest")
    )
    if parameters not in (None, parameters_digest):
        allowed = f"{parameters_digest}, of the parameters that this certificate states"
        _validate.fail(f"{path}: parameters_digest", allowed, parameters)
    if certificate == digest:
        return "this"
    if parameters is not None:
        return "same_parameters"
    if certificate is not None:
        allowed = f"{digest}, of this certificate"
        _validate.fail(f"{path}: certificate_digest", allowed, certificate)
    return "unknown"


def _digest(position: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        _validate.fail(position, "64 hexadecimal digits", repr(value)[:80])
    return value


def read_ledger(path: str | Path, digest: str) -> tuple[LedgerFacts, ...]:
    """Find what a ledger charged for a certificate, in every data set that has it.

    Raises:
        InvalidInputError: No ledger, or one that does not know the certificate.

    """
    if not Path(path).is_file():
        _validate.fail("--ledger", "an existing ledger", str(path))
    book = Ledger(path)
    head = book.head()
    found = [
        facts
        for balance in book.balances().values()
        if (facts := _charged(balance, digest, head)) is not None
    ]
    if not found:
        allowed = "the ledger that it was charged to (privmix ledger charge enters it)"
        _validate.fail(str(path), allowed, f"one without the certificate {digest}")
    return tuple(found)


def _charged(balance: Balance, digest: str, head: str) -> LedgerFacts | None:
    for place, charge in enumerate(balance.charges):
        if digest not in {charge.digest, *(draw.digest for draw in charge.draws)}:
            continue
        before = balance.charges[place - 1].epsilon_spent if place else 0.0
        return LedgerFacts(
            dataset_id=balance.dataset_id,
            epsilon_limit=balance.epsilon_limit,
            delta=balance.delta,
            epsilon_alone=charge.epsilon_alone,
            epsilon_before=before,
            epsilon_after=charge.epsilon_spent,
            epsilon_now=balance.epsilon_spent,
            kind=charge.kind,
            refusal=balance.refusal,
            head=head,
        )
    return None


def _read(path: str | Path, allowed: str) -> dict[str, Any]:
    content = read_file(path, MOST_JSON_BYTES, allowed)
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        _validate.fail(str(path), allowed, str(error)[:80])
    if not isinstance(data, dict):
        _validate.fail(str(path), allowed, type(data).__name__)
    _validate.refuse_repeated(str(path), content)
    return data


def _is_number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the doubles
        return False


def _in_words(key: str) -> str:
    return printable(key.replace("_", " "), _LONGEST_TEXT)

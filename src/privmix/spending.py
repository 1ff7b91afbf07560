"""What releases and models of the same people cost, by their certificates, alone and together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting import ComposedEvent, Event, per_record
from privmix.accounting.events import simple_events
from privmix.dpsgd.model_certificate import is_model_folder, read_certificate
from privmix.publishing.certificate import FILE_NAME
from privmix.publishing.release import Release

_MOST_MECHANISMS = 100  # different ones, which are accounted for within seconds


class Spent(FrozenModel):
    """What one folder spent.

    Attributes:
        folder: The folder, as it was named.
        kind: ``release`` or ``model``.
        digest: SHA-256 of its certificate, by which a ledger knows it.
        private: False for what was made with a test seed or for research, which protects nobody.
        event: What was done to the records, preprocessing included.

    """

    folder: str
    kind: str
    digest: str
    private: bool
    event: Event


def read_spent(folder: str | Path) -> Spent:
    """Read what a release or a model spent from its certificate.

    The certificate is believed but for this: its event must be that of its mechanism. Rows and
    files are not looked at; ``privmix.verify`` does.

    Raises:
        InvalidInputError: A folder without a certificate, or one whose event is another mechanism's.

    """
    if is_model_folder(folder):
        model = read_certificate(folder)
        digest = hashlib.sha256((Path(folder) / FILE_NAME).read_bytes()).hexdigest()
        due: Event = model.to_plan().event
        kind, private, event = "model", model.private, model.event
    else:
        release = Release(folder)
        certificate, digest = release.certificate, release.certificate_digest
        due = certificate.to_plan().event
        kind, private, event = "release", certificate.private, certificate.event
    if event != due:
        _validate.fail(f"{folder}: event", "what the certificate's mechanism costs", "another")
    return Spent(folder=str(folder), kind=kind, digest=digest, private=private, event=event)


def distinct(spent: Iterable[Spent]) -> list[Spent]:
    """Return each of them once, in order: the same certificate twice is the same thing twice."""
    return list({one.digest: one for one in reversed(list(spent))}.values())[::-1]


def together(spent: Sequence[Spent]) -> ComposedEvent:
    """Compose what several folders cost, in any order.

    The composed cost holds if all of them were fixed before the first ran; see
    :mod:`privmix.accounting.filters` for plans that depend on earlier outputs.

    Raises:
        InvalidInputError: None at all, one that protects nobody, folders under different
            neighbouring relations or for different units, which have no cost together, or more than
            100 different mechanisms.

    """
    if not spent:
        _validate.fail("release", "at least one folder", "none")
    for one in spent:
        if not one.private:
            allowed = "what was made without a test seed and not for research"
            _validate.fail(one.folder, allowed, f"a {one.kind} that protects nobody")
    for what, facts in (
        ("one neighbouring relation", [one.event.neighboring_relation for one in spent]),
        ("one kind of unit", [one.event.unit for one in spent]),
    ):
        if len(set(facts)) > 1:
            others = ", ".join(
                f"{one.folder} ({fact})" for one, fact in zip(spent, facts, strict=True)
            )
            _validate.fail("releases composed", f"folders of {what}", others)
    whole = ComposedEvent(events=tuple(one.event for one in spent))
    if (count := len(simple_events(per_record(whole)[0]))) > _MOST_MECHANISMS:
        _validate.fail("releases composed", f"{_MOST_MECHANISMS} different mechanisms", count)
    return whole

"""What the entries of a ledger come to: the charges of each data set, and the rule of its limit.

A limit has to hold although later plans depend on the outputs of earlier ones. The loss distribution
of the events that happened gives no such limit (:mod:`privmix.accounting.filters`), so the filter of
that module decides, and the loss distribution is told beside it: it holds for plans that were all
fixed before the first of them ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from privmix import _validate
from privmix._validate import FrozenModel, InvalidInputError
from privmix.accounting import (
    ComposedEvent,
    Event,
    GaussianEvent,
    GroupEvent,
    account,
    adaptive_reading,
    format_epsilon,
    per_record,
)
from privmix.accounting.events import RECORD, simple_events
from privmix.accounting.guarantee import number
from privmix.running.ledger_entries import Charged, Cost, Drawn, Entry, Opened, Reserved, Sealed

RULE = (
    "the filter of privmix.accounting.filters (the first charge exactly, later ones by the time of a "
    "reference process that dominates them): what holds, however earlier outputs chose the later "
    "plans, is the limit; how much of it is used up is no guarantee of its own"
)
PLANNED_RULE = "loss distributions composed, valid if all plans were fixed before the first one ran"


class Draw(FrozenModel):
    """A run of a reserved plan: its entry, when, by whom, what, and what it made."""

    number: int
    drawn_at: str
    who: str
    kind: str
    name: str
    run_id: str
    digest: str | None = None
    place: int


class Charge(FrozenModel):
    """One charge.

    Attributes:
        number: Number of its entry.
        charged_at: When, in UTC.
        who: By whom: free text.
        kind: ``release``, ``model``, ``reservation`` or ``mechanism``.
        name: The name it was given.
        mechanism: What it is, in short.
        event: What was charged.
        digest: Certificate digest; None of a run that has not been sealed.
        run_id: The run's name; None for what was recorded later.
        existing: Whether it was recorded later.
        epsilon_alone: Its own epsilon.
        epsilon_spent: How much of the limit all charges up to it use; None without a finite bound. It
            decides whether a charge is admitted; what holds is the limit.
        epsilon_planned: Of the same, had all been planned in advance; None likewise.
        draws: Runs that drew on a reservation.

    """

    number: int
    charged_at: str
    who: str
    kind: str
    name: str
    mechanism: str
    event: Event
    digest: str | None
    run_id: str | None
    existing: bool
    epsilon_alone: float | None
    epsilon_spent: float | None
    epsilon_planned: float | None
    draws: tuple[Draw, ...] = ()


class Balance(FrozenModel):
    """What a data set has spent.

    Attributes:
        dataset_id: The declared identifier.
        epsilon_limit: Most that all charges together may cost at ``delta``. All outputs together are
            (``epsilon_limit``, ``delta``)-DP, whatever chose the plans, unless something was recorded
            past it.
        delta: The data set's delta.
        epsilon_spent: How much of the limit is used: the filter's figure, which is held against it.
            While plans follow from earlier outputs it is no guarantee of its own. None without a
            finite bound.
        epsilon_planned: What they would cost had all been planned before the first ran: never held
            against the limit.
        rule: How ``epsilon_spent`` is found, and what holds.
        refusal: Why nothing more is admitted, or None.
        charges: The charges, oldest first.

    """

    dataset_id: str
    epsilon_limit: float
    delta: float
    epsilon_spent: float | None = 0.0
    epsilon_planned: float | None = 0.0
    rule: str = RULE
    refusal: str | None = None
    charges: tuple[Charge, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return self.model_dump(mode="json")

    def with_charge(self, charge: Charge) -> Balance:
        """Return the balance after one more charge."""
        changed: dict[str, Any] = {
            "charges": (*self.charges, charge),
            "epsilon_spent": charge.epsilon_spent,
            "epsilon_planned": charge.epsilon_planned,
        }
        if self.refusal is None:
            changed["refusal"] = self._refusal(charge)
        return self.model_copy(update=changed)

    def _refusal(self, last: Charge) -> str | None:
        if last.epsilon_planned is None:
            return f"no common account: {_apart([*_events(self.charges), last.event])}"
        if last.epsilon_spent is not None and last.epsilon_spent <= self.epsilon_limit:
            return None
        return f"charge {last.number} ({last.name}) was recorded past the limit of {number(self.epsilon_limit)}"

    def cost_of(self, event: Event, *, existing: bool) -> Cost:
        """Return what an event costs by itself and after all charges so far."""
        alone = account(event, self.delta).epsilon
        events = [*_events(self.charges), event]
        if _apart(events) is not None:
            return Cost(epsilon_alone=alone, epsilon_spent=None, epsilon_planned=None)
        # What was recorded later may have been seen before the first charge was chosen: then that
        # one was not fixed in advance, and is bounded as the later ones are.
        late = (existing and self.charges) or any(charge.existing for charge in self.charges[1:])
        reading = adaptive_reading(
            [_next_to_nothing(events[0]), *events] if late else events,
            epsilon_limit=self.epsilon_limit,
            delta=self.delta,
        )
        planned = reading.planned_epsilon
        if late:
            planned = account(ComposedEvent(events=tuple(events)), self.delta).epsilon
        return Cost(epsilon_alone=alone, epsilon_spent=reading.epsilon, epsilon_planned=planned)

    def check(self, event: Event) -> Cost:
        """Return what an event costs, or refuse it.

        Raises:
            InvalidInputError: A cost past the limit, a data set that is past it, or an event under
                another neighbouring relation or of another unit than the earlier ones.

        """
        position = f"data set {self.dataset_id!r}"
        if self.refusal is not None:
            allowed = "no new charge, since all that was set aside is spent"
            _validate.fail(position, allowed, f"one; {self.refusal}")
        ComposedEvent(events=(*_events(self.charges), event))  # one relation, one unit
        cost = self.cost_of(event, existing=False)
        if cost.epsilon_spent is None or cost.epsilon_spent > self.epsilon_limit:
            asked = "one that makes it " + shown(cost.epsilon_spent)
            if self.charges and within(cost.epsilon_planned, self.epsilon_limit):
                asked += (
                    f" ({shown(cost.epsilon_planned)} had all plans been fixed before the first ran: "
                    "see privmix ledger reserve)"
                )
            allowed = (
                f"charges of at most epsilon {number(self.epsilon_limit)} at delta "
                f"{number(self.delta)}, of which {shown(self.epsilon_spent)} is spent"
            )
            _validate.fail(position, allowed, asked)
        return cost

    def recorded(self, digest: str) -> Charge | Draw | None:
        """Return the charge or the draw that a certificate belongs to."""
        return next((one for one in _made(self.charges) if one.digest == digest), None)

    def run(self, run_id: str) -> Charge | Draw | None:
        """Return the charge or the draw of a run."""
        return next((one for one in _made(self.charges) if one.run_id == run_id), None)

    def event_of(self, made: Charge | Draw) -> Event:
        """Return what was charged, or the reserved event that was drawn."""
        if isinstance(made, Charge):
            return made.event
        reserved = next(charge.event for charge in self.charges if made in charge.draws)
        assert isinstance(reserved, ComposedEvent)
        return reserved.events[made.place]

    def check_same(self, known: Charge | Draw, event: Event, position: str) -> None:
        """Refuse what is known by its digest or run, but was recorded as something else.

        Raises:
            InvalidInputError: Another event than ``event``, or one under another relation: the ledger
                was edited, and what it says of the cost does not count for this event.

        """
        recorded = self.event_of(known)
        if recorded == event:
            return
        texts = [
            f"{described(one)} (epsilon {shown(account(one, self.delta).epsilon)} alone)"
            for one in (recorded, event)
        ]
        allowed = f"what entry {known.number} of the ledger records of it, {texts[0]}"
        advice = (
            "it was not charged. The ledger was edited: import an export of before into a new one, or "
            "open a new one and charge all that was made to it"
        )
        _validate.fail(position, allowed, f"{texts[1]}; {advice}")

    def check_run(self, entry: Charged | Drawn | Sealed, position: str) -> None:
        """Refuse an entry of a run that does not follow from the entries before it.

        Raises:
            InvalidInputError: A run that is charged or drawn twice, one that is sealed and was not
                charged, or a draw on what is not reserved or was drawn already.

        """
        known = entry.run_id is not None and self.run(entry.run_id) is not None
        if known != isinstance(entry, Sealed):
            allowed = "a run that was charged" if not known else "a run that was not charged yet"
            _validate.fail(position, allowed, repr(entry.run_id))
        if isinstance(entry, Drawn) and entry.place not in self._free(entry.reservation):
            allowed = "a draw on a reserved plan, once"
            received = f"plan {entry.place + 1} of entry {entry.reservation}"
            _validate.fail(position, allowed, received)

    def _free(self, reservation: int) -> dict[int, Event]:
        """Return what may still be drawn on a reservation, by its place; nothing if there is none."""
        for charge in self.charges:
            if charge.number == reservation and charge.kind == "reservation":
                planned = charge.event.events if isinstance(charge.event, ComposedEvent) else ()
                taken = {draw.place for draw in charge.draws}
                return {i: one for i, one in enumerate(planned) if i not in taken}
        return {}

    def free_place(self, event: Event) -> tuple[int, int] | None:
        """Return the reservation, by number, and the place in it that an event may draw on."""
        for charge in self.charges:
            for place, planned in self._free(charge.number).items():
                if planned == event:
                    return charge.number, place
        return None


def balances(entries: Sequence[Entry], position: str) -> dict[str, Balance]:
    """Return the balance of each data set, by its identifier, in the order of their opening.

    Raises:
        InvalidInputError: Entries that do not fit together; ``position`` names the ledger.

    """
    found: dict[str, Balance] = {}
    for count, entry in enumerate(entries, start=1):
        here, before = f"{position}: entry {count}", found.get(entry.dataset_id)
        if isinstance(entry, Opened) and before is None:
            _validate.real(f"{here}: epsilon_limit", entry.epsilon_limit, above=0.0)
            _validate.delta(f"{here}: delta", entry.delta)
            found[entry.dataset_id] = Balance(
                dataset_id=entry.dataset_id, epsilon_limit=entry.epsilon_limit, delta=entry.delta
            )
        elif isinstance(entry, Charged | Reserved) and before is not None:
            if isinstance(entry, Charged) and entry.run_id is not None:
                before.check_run(entry, here)
            found[entry.dataset_id] = before.with_charge(_charge(count, entry))
        elif isinstance(entry, Drawn | Sealed) and before is not None:
            before.check_run(entry, here)
            charges = tuple(_changed(charge, count, entry) for charge in before.charges)
            found[entry.dataset_id] = before.model_copy(update={"charges": charges})
        else:
            allowed = "a data set that is opened once, before anything is charged to it"
            _validate.fail(here, allowed, repr(entry.dataset_id))
    return found


def shown(epsilon: float | None) -> str:
    """Return an epsilon as text, rounded up; ``unbounded`` for None."""
    return "unbounded" if epsilon is None else format_epsilon(epsilon)


def within(epsilon: float | None, limit: float) -> bool:
    """Whether an epsilon keeps a limit."""
    return epsilon is not None and epsilon <= limit


def described(event: Event) -> str:
    """Return the mechanisms of an event in short, with the unit where it is not a record."""
    inner, size = per_record(event)
    simple = simple_events(inner)
    names = list(dict.fromkeys(event.mechanism for event in simple))
    text = " + ".join(names) + f" x {sum(event.count for event in simple)}"
    whose = "" if event.unit == RECORD else f", {event.unit} of up to {size} records"
    return f"{text}, {event.neighboring_relation}{whose}"


def _charge(number: int, entry: Charged | Reserved) -> Charge:
    run: dict[str, Any] = {"kind": "reservation", "digest": None, "run_id": None, "existing": False}
    if isinstance(entry, Charged):
        run = {name: getattr(entry, name) for name in run}
    return Charge(
        number=number,
        charged_at=entry.at,
        who=entry.who,
        name=entry.name,
        mechanism=described(entry.event),
        event=entry.event,
        **run,
        **entry.cost.model_dump(),
    )


def _changed(charge: Charge, number: int, entry: Drawn | Sealed) -> Charge:
    """Return a charge after a draw or a seal, which may be another's."""
    if isinstance(entry, Drawn):
        if charge.number != entry.reservation:
            return charge
        draw = Draw(
            number=number,
            drawn_at=entry.at,
            who=entry.who,
            kind=entry.kind,
            name=entry.name,
            run_id=entry.run_id,
            place=entry.place,
        )
        return charge.model_copy(update={"draws": (*charge.draws, draw)})
    sealed = {"digest": entry.digest}
    if charge.run_id == entry.run_id:
        return charge.model_copy(update=sealed)
    draws = tuple(
        draw.model_copy(update=sealed) if draw.run_id == entry.run_id else draw
        for draw in charge.draws
    )
    return charge.model_copy(update={"draws": draws})


def _events(charges: Iterable[Charge]) -> list[Event]:
    return [charge.event for charge in charges]


def _made(charges: Iterable[Charge]) -> Iterable[Charge | Draw]:
    for charge in charges:
        yield charge
        yield from charge.draws


def _apart(events: Sequence[Event]) -> str | None:
    """Say why events have no common account, or return None."""
    try:
        ComposedEvent(events=tuple(events))
    except InvalidInputError as error:
        return f"{error.got}, where {error.expected} are needed"
    return None


def _next_to_nothing(event: Event) -> Event:
    """Return an event of the same relation and unit that costs nothing to speak of."""
    nothing = GaussianEvent(noise_multiplier=1e12, neighboring_relation=event.neighboring_relation)
    if event.unit == RECORD:
        return nothing
    return GroupEvent(unit=event.unit, group_size=per_record(event)[1], event=nothing)

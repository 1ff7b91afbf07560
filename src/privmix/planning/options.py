"""What can be set about a design besides its noise, stated once.

The annotations of :class:`DesignOptions` are the table: every option with its type, its help, the designs
that take it, their defaults and its check. The flags of the command line follow from it, as do the
defaults and the checks of ``privmix.plan_release``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, get_args, get_type_hints

import numpy as np

from privmix import _validate
from privmix.accounting.events import NeighboringRelation
from privmix.mechanism import Design
from privmix.planning.rule import NUM_ROUNDS, PACE_BUDGET

Check = Callable[[str, Any], Any]


class Flag(NamedTuple):
    """A flag of the command line: ``--name-with-dashes``. Of type ``bool`` it takes no value."""

    name: str
    type: type
    help: str

    @property
    def option(self) -> str:
        """How it is written on the command line."""
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True)
class Option:
    """What is known about an option of a design.

    Attributes:
        help: What it is, for the help of its flag.
        defaults: The designs that take it, each with its default: None for one that must be given,
            that follows from the sizes, or that means there is none.
        check: Returns a value that may be given, and refuses others by a name; bounds that follow from
            the sizes are checked where the sizes are laid out.
        shown: The default as the help says it, where it is no plain number or word.
        flags: How the command line says it, where that is not a flag of its name and help.

    """

    help: str
    defaults: dict[Design, Any]
    check: Check
    shown: str | None = None
    flags: tuple[Flag, ...] = ()

    def flags_of(self, name: str, kind: type) -> tuple[Flag, ...]:
        """Return its flags; a ``kind`` of value is what a single one of its own name takes."""
        return self.flags or (Flag(name, kind, self._flag_help()),)

    def _flag_help(self) -> str:
        values = dict.fromkeys(self.defaults.values())
        shown = self.shown or ", ".join(str(value) for value in values if value is not None)
        text = f"{self.help} [{shown}]." if shown else f"{self.help}."
        if len(self.defaults) > 2:
            return text[0].upper() + text[1:]
        return f"{', '.join(self.defaults)}: {text}"


def _one_of(*names: str) -> Check:
    return lambda position, value: _validate.one_of(position, value, names)


def _above_zero(position: str, value: object) -> float:
    return _validate.real(position, value, above=0.0)


def _share(position: str, value: object) -> float:
    return _validate.real(position, value, above=0.0, below=1.0)


def _probabilities(position: str, value: object) -> float | tuple[float, ...]:
    """One probability, or a sequence of them: one for each class."""
    several = value.ndim == 1 if isinstance(value, np.ndarray) else isinstance(value, list | tuple)
    if several:
        found = tuple(_validate.probability(position, one) for one in value)  # type: ignore[attr-defined]
        return found or _validate.fail(position, "at least one probability", "none")
    return _validate.probability(position, value)


def _each(*designs: Design, default: Any = None) -> dict[Design, Any]:
    return dict.fromkeys(designs, default)


_MIXTURES: tuple[Design, ...] = (
    "poisson",
    "signed",
    "hybrid",
    "adaptive",
    "hierarchical",
    "uniform",
)
_NOISY_LABELS: tuple[Design, ...] = ("poisson", "signed", "hierarchical", "uniform", "transposed")


class DesignOptions(TypedDict, total=False):
    """What can be set about a design besides its noise; see ``privmix.plan_release``."""

    mix_size: Annotated[
        float | None,
        Option(
            "planned records in a row",
            _each(*_MIXTURES),
            _above_zero,
            "64, or by the rule of --design auto",
        ),
    ]
    num_mixtures: Annotated[
        int | None,
        Option(
            "rows",
            _each(*_MIXTURES, "transposed"),
            _validate.integer,
            "by the design: the number of records, or what the rule of --design auto finds",
        ),
    ]
    sampling_prob: Annotated[
        float | None,
        Option("share of a class that enters a row", {"stratified": 0.5}, _validate.probability),
    ]
    rows_per_class: Annotated[
        int | None, Option("rows of each class", {"stratified": 100}, _validate.integer)
    ]
    rows_per_record: Annotated[
        int | None,
        Option("rows that each record enters", {"transposed": None}, _validate.integer, "64"),
    ]
    class_prob: Annotated[
        float | Sequence[float] | None,
        Option(
            "share of the rows a class is open to",
            {"hierarchical": None},
            _probabilities,
            flags=(
                Flag(
                    "class_prob",
                    str,
                    "hierarchical: share of the rows a class is open to, or one a class, as in 0.9,0.3.",
                ),
                Flag(
                    "classes_per_row",
                    float,
                    "hierarchical: instead, classes a row is open to, on average.",
                ),
            ),
        ),
    ]
    eligibility: Annotated[
        Literal["balanced", "random"] | None,
        Option("balanced or random", {"hierarchical": "balanced"}, _one_of("balanced", "random")),
    ]
    feature_budget: Annotated[
        float | None,
        Option(
            "share of the budget for signed rows",
            {"hybrid": 0.25, "adaptive": PACE_BUDGET},
            _share,
            "by that rule, else 0.25, 0.05",
        ),
    ]
    num_rounds: Annotated[
        int | None,
        Option("rounds of residual mixtures", {"adaptive": NUM_ROUNDS}, _validate.integer),
    ]
    weight_alpha: Annotated[
        float | None,
        Option(
            "Dirichlet concentration of random weights",
            {"uniform": None},
            _above_zero,
            flags=(
                Flag("weights", str, "uniform: dirichlet, for random weights."),
                Flag("alpha", float, "uniform: Dirichlet concentration."),
            ),
        ),
    ]
    weight_clip: Annotated[
        float | None, Option("upper bound on a random weight", {"uniform": None}, _above_zero)
    ]
    neighboring_relation: Annotated[
        NeighboringRelation | None,
        Option(
            "add_or_remove_one or replace_one",
            {"transposed": "add_or_remove_one"},
            _one_of("add_or_remove_one", "replace_one"),
        ),
    ]
    label_balance: Annotated[
        float | None,
        Option(
            "label over feature noise multiplier",
            _each(*_NOISY_LABELS, default=math.sqrt(2)),
            _above_zero,
            "sqrt 2, or by that rule",
        ),
    ]


def _read_table() -> tuple[dict[str, Option], tuple[Flag, ...]]:
    options: dict[str, Option] = {}
    flags: list[Flag] = []
    for name, hint in get_type_hints(DesignOptions, include_extras=True).items():
        value, option = get_args(hint)
        kind = get_args(value)[0]  # of "kind | None"
        options[name] = option
        flags += option.flags_of(name, kind if isinstance(kind, type) else str)
    return options, tuple(flags)


OPTIONS, DESIGN_FLAGS = _read_table()


# Instead of an epsilon: the most that an attacker may gain.
RISK_FLAGS = (
    Flag("max_tpr", float, "Instead of --epsilon: most members found, at --at-fpr."),
    Flag("at_fpr", float, "Share of false alarms at which --max-tpr holds."),
    Flag("max_advantage", float, "Instead: most that members found exceed false alarms by."),
    Flag("max_reconstruction", float, "Instead: most probable reconstruction, at --at-prior."),
    Flag("at_prior", float, "Probability of a reconstruction without the release."),
)


def options_of(design: Design) -> tuple[str, ...]:
    """Return the names of the options that a design takes."""
    return tuple(name for name, option in OPTIONS.items() if design in option.defaults)


def without_none(options: DesignOptions) -> dict[str, Any]:
    """Return the options that are given."""
    return {name: value for name, value in options.items() if value is not None}


def chosen_options(design: Design, options: DesignOptions) -> dict[str, Any]:
    """Check that options belong to the design, and fill in the defaults."""
    given, own = without_none(options), options_of(design)
    for name, value in given.items():
        if name not in own:
            allowed = f"nothing for design {design}, whose options are {', '.join(own)}"
            _validate.fail(name, allowed, value)
        given[name] = OPTIONS[name].check(name, value)
    if design == "hierarchical" and "class_prob" not in given:
        _validate.fail("class_prob", "a probability, for design hierarchical", "nothing")
    if isinstance(given.get("class_prob"), tuple):
        given.setdefault("eligibility", "random")  # the only sort that takes a probability a class
    defaults = ((name, OPTIONS[name].defaults[design]) for name in own)
    return {name: value for name, value in defaults if value is not None} | given

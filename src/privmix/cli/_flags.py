"""Flags of a command that a table states: see :func:`with_flags`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from privmix.planning.flags import STEP_FLAGS
from privmix.planning.options import DESIGN_FLAGS, RISK_FLAGS, Flag


@dataclass(frozen=True)
class LedgerFlags:
    """What is charged, to whom, and by whom."""

    ledger: Annotated[
        Path | None, typer.Option(help="Ledger to charge before anything is drawn.")
    ] = None
    dataset_id: Annotated[str | None, typer.Option(help="The data set's name there.")] = None
    who: Annotated[
        str | None, typer.Option(help="By whom, for the ledger: free text [the login name].")
    ] = None


DesignFlags = Annotated[dict[str, Any], DESIGN_FLAGS]
StepFlags = Annotated[dict[str, Any], STEP_FLAGS]
RiskFlags = Annotated[dict[str, Any], RISK_FLAGS]


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of tables, for Typer.

    A parameter annotated by a table, as ``DesignFlags`` is, stands for its flags; the command gets them
    as a dictionary. One annotated by a dataclass stands for the dataclass's fields. All parameters are
    keyword-only.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[Parameter] = []
    groups: dict[str, tuple[Callable[..., Any], list[str]]] = {}
    for parameter in signature(command).parameters.values():
        hint = hints[parameter.name]
        if members := _members(hint):
            make: Callable[..., Any] = hint if isinstance(hint, type) else dict
            groups[parameter.name] = (make, [member.name for member in members])
            parameters += members
        else:
            parameters.append(parameter.replace(annotation=hint))

    @wraps(command)
    def called(**given: Any) -> None:
        grouped = {
            group: make(**{name: given.pop(name) for name in names})
            for group, (make, names) in groups.items()
        }
        command(**given, **grouped)

    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _members(hint: Any) -> list[Parameter]:
    """Return the parameters that one annotated by a table or a dataclass stands for; else nothing."""
    if is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        return [
            Parameter(
                field.name,
                Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=hints[field.name],
            )
            for field in fields(hint)
        ]
    tables = (extra for extra in get_args(hint)[1:] if isinstance(extra, tuple))
    return [_parameter(flag) for flag in next(tables, ())]


def _parameter(flag: Flag) -> Parameter:
    switch = flag.type is bool
    option = typer.Option(flag.option, help=flag.help)
    hint: Any = Annotated[bool, option] if switch else Annotated[flag.type | None, option]
    default = False if switch else None
    return Parameter(flag.name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)

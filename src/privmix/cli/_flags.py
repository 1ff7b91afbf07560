"""Flags of a command that a table states: see :func:`with_flags`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_args, get_type_hints

import typer

from privmix.planning.flags import STEP_FLAGS
from privmix.planning.options import DESIGN_FLAGS, Flag

DesignFlags = Annotated[dict[str, Any], DESIGN_FLAGS]
StepFlags = Annotated[dict[str, Any], STEP_FLAGS]


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of tables, for Typer.

    A parameter annotated by a table, as ``DesignFlags`` is, stands for its flags; the command gets them
    as a dictionary. All parameters are keyword-only.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[Parameter] = []
    groups: dict[str, tuple[str, ...]] = {}
    for parameter in signature(command).parameters.values():
        hint = hints[parameter.name]
        if flags := _table(hint):
            groups[parameter.name] = tuple(flag.name for flag in flags)
            parameters += map(_parameter, flags)
        else:
            parameters.append(parameter.replace(annotation=hint))

    @wraps(command)
    def called(**given: Any) -> None:
        grouped = {
            group: {name: given.pop(name) for name in names} for group, names in groups.items()
        }
        command(**given, **grouped)

    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _table(hint: Any) -> tuple[Flag, ...]:
    extras: Iterator[Any] = iter(get_args(hint)[1:])
    return next((extra for extra in extras if isinstance(extra, tuple)), ())


def _parameter(flag: Flag) -> Parameter:
    switch = flag.type is bool
    option = typer.Option(flag.option, help=flag.help)
    hint: Any = Annotated[bool, option] if switch else Annotated[flag.type | None, option]
    default = False if switch else None
    return Parameter(flag.name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)

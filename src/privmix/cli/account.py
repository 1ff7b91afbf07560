"""``privmix account``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from privmix import _validate
from privmix.accounting import Event, format_epsilon
from privmix.accounting.guarantee import number
from privmix.cli._common import (
    OUT,
    Design,
    Json,
    among,
    app,
    print_json,
    refuse_beside,
)
from privmix.cli._flags import with_flags
from privmix.cli._plots import Plot, check_plot, draw_guarantee
from privmix.mechanism import DESIGNS, ReleaseConfig
from privmix.planning.flags import design_options
from privmix.planning.options import DESIGN_FLAGS
from privmix.planning.plan import claim, cost
from privmix.planning.solve import configure

# How the noise is split between features and labels changes no cost.
_FLAGS = tuple(flag for flag in DESIGN_FLAGS if flag.name != "label_balance")
AccountedFlags = Annotated[dict[str, Any], _FLAGS]


@app.command("account", no_args_is_help=True)
@with_flags
def account_command(
    *,
    delta: Annotated[float, typer.Option(help="Delta to state epsilon at.")],
    design: Design = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Joint noise multiplier (hybrid: one over the GDP parameter to divide)."),
    ] = None,
    releases: Annotated[
        list[Path] | None,
        typer.Option(
            "--release",
            help="Instead: folders of releases and models of the same people, composed.",
        ),
    ] = None,
    group_size: Annotated[
        int | None, typer.Option(help="Also for a person with up to this many records.")
    ] = None,
    num_records: Annotated[int | None, typer.Option(help="Records; not for stratified.")] = None,
    num_classes: Annotated[int | None, typer.Option(help="Classes, for --classes-per-row.")] = None,
    given: AccountedFlags,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """State what a mechanism costs, by every accountant.

    Examples:
        privmix account --design poisson --num-records 50000 --num-mixtures 50000 --mix-size 64
        --noise-multiplier 1.26 --delta 1e-5

        privmix account --design stratified --rows-per-class 1500 --sampling-prob 0.0427
        --noise-multiplier 1.26 --delta 1e-5

        privmix account --release january/ --release model/ --delta 1e-5 --plot cost.svg

    """
    asked = locals()
    check_plot(plot)
    event: Event | None
    if releases:
        others = among(("design", "noise_multiplier", "num_records", "num_classes"), asked)
        refuse_beside("--release", others | given)
        told, event = _account_folders(releases, delta, group_size)
    else:
        config = _account_config(design, noise_multiplier, num_records, num_classes, **given)
        event = config.event
        told = {"design": design, **cost(event, delta, group_size)}
        if (claimed := config.claimed_event) is not None:
            told["claimed_by_paper"] = claim(claimed, delta)
    if as_json:
        print_json(told)
    else:
        _print_account(told, delta, group_size)
    if event is None:
        raise typer.Exit(1)
    draw_guarantee(plot, event)


def _account_folders(
    folders: list[Path], delta: float, group_size: int | None
) -> tuple[dict[str, Any], Event | None]:
    """State what folders cost together, and their event; nothing does of one that protects nobody."""
    from privmix.spending import distinct, read_spent, together

    _validate.delta("--delta", delta)
    spent = [read_spent(folder) for folder in folders]
    once = distinct(spent)
    told: dict[str, Any] = {
        "releases": [
            {"folder": one.folder, "kind": one.kind, "digest": one.digest, "private": one.private}
            for one in once
        ]
    }
    repeated = [n for n, one in enumerate(spent) if one.digest in {s.digest for s in spent[:n]}]
    if again := [spent[n].folder for n in repeated]:
        told["counted_once"] = again
    if nobody := [one.folder for one in once if not one.private]:
        nothing = {"epsilon": None, "delta": delta, "private": False, "protects_nobody": nobody}
        return nothing | told, None
    event = together(once)
    return cost(event, delta, group_size) | told, event


def _print_account(told: dict[str, Any], delta: float, group_size: int | None) -> None:
    for folder in told.get("counted_once", ()):
        OUT.print(f"{folder}: the same certificate again, counted once")
    if (nobody := told.get("protects_nobody")) is not None:
        for folder in nobody:
            line = (
                f"{folder}: NOT PRIVATE, made with a test seed or for research: it protects nobody"
            )
            OUT.print(line)
        OUT.print("no epsilon holds for these folders")
        return
    OUT.print(f"epsilon {format_epsilon(told['epsilon'])} at delta {number(delta)} (certified)")
    if len(told.get("releases", ())) > 1:
        OUT.print(
            "if all of them were fixed before the first one ran; otherwise see privmix ledger"
        )
    if (unit := told.get("unit_column")) is not None:
        OUT.print(f"for {unit}, up to {told['max_records_per_unit']} records of each")
    OUT.print(_accountant_table(told["accountants"]))
    for component in told.get("components", ()):
        OUT.print(
            f"component {component['mechanism']}: epsilon {format_epsilon(component['epsilon'])}"
        )
    if group_size is not None:
        whose = "records of one person" if unit is None else f"of {unit} together"
        OUT.print(f"for {group_size} {whose}: epsilon {format_epsilon(told['group_epsilon'])}")
    if (paper := told.get("claimed_by_paper")) is not None:
        OUT.print(f"claimed by the paper: {paper['epsilon']:.6g}, which is NOT a guarantee")


def _account_config(
    design: str | None,
    noise_multiplier: float | None,
    num_records: int | None,
    num_classes: int | None,
    **flags: Any,
) -> ReleaseConfig:
    """Build a mechanism to account for; its cost depends on neither classes nor features."""
    _validate.one_of("--design", design, DESIGNS)
    if noise_multiplier is None:
        _validate.fail("--noise-multiplier", "a number", "nothing")
    _validate.real("--noise-multiplier", noise_multiplier, above=0.0)
    if num_records is not None:
        _validate.integer("--num-records", num_records)
    elif design != "stratified":
        _validate.fail("--num-records", f"a number for design {design}", "nothing")
    if flags["classes_per_row"] is not None and num_classes is None:
        _validate.fail("--num-classes", "a number beside --classes-per-row", "nothing")
    sizes = {"num_records": num_records or 2, "num_classes": num_classes or 2, "num_features": 1}
    options = design_options(num_classes, **flags)
    return configure(sizes, design, options, noise_multiplier)  # type: ignore[arg-type]


def _accountant_table(accountants: dict[str, dict[str, Any] | None]) -> Table:
    table = Table("accountant", "epsilon", "lower", "upper", "guarantee")
    for name, reading in accountants.items():
        if reading is None:
            table.add_row(name, "-", "-", "-", "does not cover this design")
            continue
        lower, upper = reading["lower"], reading["upper"]
        cells = [
            format_epsilon(reading["epsilon"]),
            "-" if lower is None else f"{lower:.6g}",
            "-" if upper is None else format_epsilon(upper),
        ]
        table.add_row(name, *cells, "yes" if reading["guarantee"] else "no (approximation)")
    return table

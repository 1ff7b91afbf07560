"""``privmix plan``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from privmix import _validate
from privmix.cli._common import (
    OUT,
    Design,
    Json,
    MaxMemory,
    MaxRecordsPerUnit,
    SchemaFile,
    UnitColumn,
    among,
    app,
    note_centring,
    print_json,
    read_schema,
    refuse_beside,
    warn_of,
    write_text,
)
from privmix.cli._flags import DesignFlags, RiskFlags, StepFlags, with_flags
from privmix.cli._plots import Plot, check_plot, draw, draw_guarantee
from privmix.planning.flags import asked_risk, design_options, make_plan, preprocessing_steps
from privmix.planning.plan import RECORD, PrivacyUnit, ReleasePlan, planned_sizes
from privmix.planning.rule import predicted_errors, recommend_design
from privmix.planning.summary import plan_lines, plan_notes
from privmix.running.resources import parse_bytes


@app.command("plan", no_args_is_help=True)
@with_flags
def plan_command(
    *,
    delta: Annotated[float, typer.Option(help="Delta, for example 1e-5.")],
    epsilon: Annotated[
        float | None, typer.Option(help="Largest epsilon allowed; omit to compute it.")
    ] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Joint noise multiplier; omit to have it solved for.")
    ] = None,
    gained: RiskFlags,
    solve_for: Annotated[
        str | None,
        typer.Option(help="mix_size or num_mixtures, given --epsilon and --noise-multiplier."),
    ] = None,
    schema: SchemaFile = None,
    num_records: Annotated[int | None, typer.Option(help="Instead of a schema: records.")] = None,
    num_classes: Annotated[int | None, typer.Option(help="Instead of a schema: classes.")] = None,
    num_features: Annotated[int | None, typer.Option(help="Instead of a schema: features.")] = None,
    design: Design = None,
    given: DesignFlags,
    flags: StepFlags,
    unit_column: UnitColumn = None,
    max_records_per_unit: MaxRecordsPerUnit = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Compare designs by a learner's predicted error.")
    ] = False,
    max_memory: MaxMemory = None,
    out: Annotated[Path | None, typer.Option(help="Write the plan here, for release.")] = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Plan a release from public sizes alone. Touches no data.

    Examples:
        privmix plan --schema schema.json --epsilon 1 --delta 1e-5 --out plan.json

        privmix plan --num-records 10003 --num-classes 77 --num-features 384 --epsilon 1 --delta 1e-5

        privmix plan --schema schema.json --epsilon 1 --delta 1e-5 --unit-column patient
        --max-records-per-unit 4

        privmix plan --schema schema.json --epsilon 1 --delta 1e-5 --explain --plot designs.svg

        privmix plan --schema schema.json --max-tpr 0.02 --at-fpr 0.01 --delta 1e-5 --out plan.json

    """
    asked = locals()
    check_plot(plot)
    facts = None if schema is None else read_schema(schema)
    sizes = {"num_records": num_records, "num_classes": num_classes, "num_features": num_features}
    for name, value in sizes.items():
        option = "--" + name.replace("_", "-")
        if facts is None and value is None:
            _validate.fail(option, "a number, unless --schema is given", "nothing")
        if facts is not None and value is not None:
            _validate.fail(option, "nothing beside --schema, which states it", value)
        if value is not None:
            _validate.size(name, value, position=option)
    known: dict[str, Any] = sizes if facts is None else planned_sizes(facts)
    unit = PrivacyUnit(unit_column, max_records_per_unit)
    if explain:
        others = among(("design", "noise_multiplier", "solve_for", "max_memory", "out"), asked)
        refuse_beside("--explain, which compares its own", given | flags | gained | others)
        if unit != RECORD or "target" in known:
            allowed = "records with classes, by which designs are compared"
            _validate.fail("--explain", allowed, known.get("target", "a privacy unit"))
        _explain(known, epsilon, delta, as_json)
        _draw_errors(plot, known, epsilon, delta)
        return
    if out is not None and schema is None:
        _validate.fail("--out", "a plan made with --schema, which a release needs", "no schema")
    options = design_options(known["num_classes"], **given)
    preprocessing = preprocessing_steps(**flags)
    note_centring(preprocessing)
    plan = make_plan(
        facts,
        known,
        design,
        options,
        preprocessing=preprocessing,
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=noise_multiplier,
        solve_for=solve_for,
        max_memory=None if max_memory is None else parse_bytes("--max-memory", max_memory),
        unit=unit,
        risk=asked_risk(**gained),
    )
    if out is not None:
        write_text(out, plan.to_json() + "\n")
    warn_of(plan.guarantee)
    if as_json:
        print_json({**plan.to_dict(), "guarantee": plan.guarantee.model_dump(mode="json")})
    else:
        OUT.print(_plan_table(plan))
    draw_guarantee(plot, plan)


def _explain(sizes: dict[str, Any], epsilon: float | None, delta: float, as_json: bool) -> None:
    """Print the alternatives of the planning rule, the best first."""
    if epsilon is None:
        _validate.fail("--epsilon", "a number beside --explain", "nothing")
    found = recommend_design(**sizes, epsilon=epsilon, delta=delta)
    if as_json:
        print_json({"alternatives": [asdict(alternative) for alternative in found]})
        return
    table = Table("design", "centre", "rows", "mix size", "split", "predicted error")
    for a in found:
        center = "-" if a.center_share is None else f"{a.center_share:.2g}"
        rows = "100 a class" if a.num_mixtures is None else str(a.num_mixtures)
        size = "-" if a.mix_size is None else f"{a.mix_size:.4g}"
        split = "-" if a.feature_budget is None else f"features {a.feature_budget:g}"
        if a.label_balance is not None:
            split = f"balance {a.label_balance:g}"
        table.add_row(a.design, center, rows, size, split, f"{a.predicted_error:.1%}")
    OUT.print(table)
    for line in (
        "centre: share of the budget for a private mean, subtracted before records are scaled.",
        "split: share of the rest for rows of features (hybrid); label over feature noise.",
        "The error is that of a reference population: it ranks designs, no more.",
    ):
        OUT.print(line)


def _draw_errors(
    path: Path | None, sizes: dict[str, Any], epsilon: float | None, delta: float
) -> None:
    """Draw the predicted error of each design around a budget, if there is a file for it."""
    if path is None or epsilon is None:
        return
    from privmix.plotting import plot_predicted_errors

    epsilons = [epsilon * 2.0**power for power in range(-4, 5)]
    found = predicted_errors(**sizes, epsilons=epsilons, delta=delta)
    errors = {str(design): values for design, values in found.items()}
    draw(path, lambda ax: plot_predicted_errors(errors, epsilons, ax))


def _plan_table(plan: ReleasePlan) -> Table:
    table = Table("", "", title="privmix plan", show_header=False)
    for name, text in (
        *plan_lines(plan),
        ("peak memory", f"{plan.peak_memory_bytes / 1e6:.0f} MB"),
        ("disk", f"{plan.disk_bytes / 1e6:.1f} MB"),
        *plan_notes(plan),
    ):
        table.add_row(name, text)
    return table

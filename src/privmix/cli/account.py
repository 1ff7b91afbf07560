"""``privmix account``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from privmix import _validate
from privmix.cli._common import (
    DESIGN_OPTIONS,
    OUT,
    Alpha,
    ClassesPerRow,
    ClassProb,
    Design,
    Eligibility,
    FeatureBudget,
    Json,
    MixSize,
    NumMixtures,
    Relation,
    RowsPerClass,
    RowsPerRecord,
    SamplingProb,
    WeightClip,
    Weights,
    among,
    app,
    print_json,
    refuse_beside,
)
from privmix.cli.plan import design_options
from privmix.mechanism import DESIGNS, ReleaseConfig
from privmix.planning.plan import claim, cost
from privmix.planning.solve import configure
from privmix.publishing.release import combine


@app.command("account", no_args_is_help=True)
def account_command(
    delta: Annotated[float, typer.Option(help="Delta to state epsilon at.")],
    design: Design = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Joint noise multiplier (hybrid: one over the GDP parameter to divide)."),
    ] = None,
    releases: Annotated[
        list[Path] | None,
        typer.Option("--release", help="Instead: release folders of the same people, composed."),
    ] = None,
    group_size: Annotated[
        int | None, typer.Option(help="Also for a person with up to this many records.")
    ] = None,
    num_records: Annotated[int | None, typer.Option(help="Records; not for stratified.")] = None,
    num_classes: Annotated[int | None, typer.Option(help="Classes, for --classes-per-row.")] = None,
    mix_size: MixSize = None,
    num_mixtures: NumMixtures = None,
    sampling_prob: SamplingProb = None,
    rows_per_class: RowsPerClass = None,
    rows_per_record: RowsPerRecord = None,
    class_prob: ClassProb = None,
    classes_per_row: ClassesPerRow = None,
    eligibility: Eligibility = None,
    feature_budget: FeatureBudget = None,
    weights: Weights = None,
    alpha: Alpha = None,
    weight_clip: WeightClip = None,
    neighboring_relation: Relation = None,
    as_json: Json = False,
) -> None:
    """State what a mechanism costs, by every accountant.

    Examples:
        privmix account --design poisson --num-records 50000 --num-mixtures 50000 --mix-size 64
        --noise-multiplier 1.26 --delta 1e-5

        privmix account --design stratified --rows-per-class 1500 --sampling-prob 0.0427
        --noise-multiplier 1.26 --delta 1e-5

    """
    asked = locals()
    if releases:
        others = ("design", "noise_multiplier", "num_records", "num_classes")
        names = (name for name in (*others, *DESIGN_OPTIONS) if name in asked)
        refuse_beside("--release", among(names, asked))
        told = cost(combine(releases), delta, group_size)
    else:
        config = _account_config(
            design,
            noise_multiplier,
            num_records,
            num_classes,
            **among((name for name in DESIGN_OPTIONS if name in asked), asked),
        )
        told = {"design": design, **cost(config.event, delta, group_size)}
        if (claimed := config.claimed_event) is not None:
            told["claimed_by_paper"] = claim(claimed, delta)
    if as_json:
        print_json(told)
        return
    OUT.print(f"epsilon {told['epsilon']:.6g} at delta {delta:g} (certified)")
    if (unit := told.get("unit_column")) is not None:
        OUT.print(f"for {unit}, up to {told['max_records_per_unit']} records of each")
    OUT.print(_accountant_table(told["accountants"]))
    for component in told.get("components", ()):
        OUT.print(f"component {component['mechanism']}: epsilon {component['epsilon']:.6g}")
    if group_size is not None:
        whose = "records of one person" if unit is None else f"of {unit} together"
        OUT.print(f"for {group_size} {whose}: epsilon {told['group_epsilon']:.6g}")
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
        numbers = [reading[key] for key in ("epsilon", "lower", "upper")]
        cells = ["-" if number is None else f"{number:.6g}" for number in numbers]
        table.add_row(name, *cells, "yes" if reading["guarantee"] else "no (approximation)")
    return table

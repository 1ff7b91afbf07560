"""``privmix demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from privmix.accounting.guarantee import number
from privmix.cli._common import OUT, Json, app, print_json, progress_bar


@app.command("demo")
def demo_command(
    epsilon: Annotated[float, typer.Option(help="Privacy budget.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Its delta.")] = 1e-5,
    out: Annotated[Path | None, typer.Option(help="Keep the release here.")] = None,
    as_json: Json = False,
) -> None:
    """Run the main job on bundled data: plan, release, verify, train, evaluate.

    Example:
        privmix demo --epsilon 1

    """
    from privmix.datasets.demo import run_demo
    from privmix.running.journal import check_out

    if out is not None:
        check_out(out)
    with progress_bar("rows") as progress:
        result = run_demo(target_epsilon=epsilon, target_delta=delta, out=out, progress=progress)
    if as_json:
        print_json(result)
        return
    table = Table("", "", title="privmix demo: Banking77, 77 intents", show_header=False)
    for name, text in (
        ("epsilon", number(result["epsilon"])),
        ("delta", number(result["delta"])),
        ("verified", "yes" if result["valid"] else "NO"),
        ("accuracy on the release", f"{result['accuracy']:.1%}"),
        ("accuracy without privacy", f"{result['accuracy_without_privacy']:.1%}"),
        ("rows", f"{result['num_mixtures']} ({result['design']})"),
        ("size", f"{result['size_bytes'] / 1e6:.1f} MB"),
        ("seconds", f"{result['seconds']:.1f}"),
    ):
        table.add_row(name, text)
    OUT.print(table)

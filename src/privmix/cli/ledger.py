"""``privmix ledger``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from privmix import _validate
from privmix._validate import printable
from privmix.cli._common import OUT, Json, app, print_json
from privmix.publishing.release import combine
from privmix.running.ledger import Balance, Ledger

ledger_app = typer.Typer(
    no_args_is_help=True, help="Keep account of what data sets have spent. Private to their holder."
)
app.add_typer(ledger_app, name="ledger")
LedgerFile = Annotated[Path, typer.Option("--ledger", help="Ledger file (SQLite).")]
DatasetId = Annotated[str, typer.Option(help="The data set's declared name.")]


@ledger_app.command("open", no_args_is_help=True)
def ledger_open_command(
    ledger: LedgerFile,
    dataset_id: DatasetId,
    epsilon_limit: Annotated[float, typer.Option(help="Most that all charges may cost together.")],
    delta: Annotated[float, typer.Option(help="The delta it is stated at.")],
    as_json: Json = False,
) -> None:
    """Enter a data set with its limit.

    Example:
        privmix ledger open --ledger ledger.db --dataset-id customers --epsilon-limit 3 --delta 1e-6

    """
    book = Ledger(ledger).open_dataset(dataset_id, epsilon_limit=epsilon_limit, delta=delta)
    _print_balances([book.balance(dataset_id)], as_json)


@ledger_app.command("show", no_args_is_help=True)
def ledger_show_command(
    ledger: LedgerFile,
    dataset_id: Annotated[str | None, typer.Option(help="One data set only.")] = None,
    as_json: Json = False,
) -> None:
    """Show what has been spent; with --json, export everything.

    Example:
        privmix ledger show --ledger ledger.db

    """
    if not ledger.is_file():
        _validate.fail("--ledger", "an existing ledger", str(ledger))
    book = Ledger(ledger)
    names = book.dataset_ids() if dataset_id is None else [dataset_id]
    _print_balances([book.balance(name) for name in names], as_json)


@ledger_app.command("charge", no_args_is_help=True)
def ledger_charge_command(
    ledger: LedgerFile,
    dataset_id: DatasetId,
    folder: Annotated[Path, typer.Option("--release", help="A release made without the ledger.")],
    as_json: Json = False,
) -> None:
    """Charge a release that was made without the ledger.

    Example:
        privmix ledger charge --ledger ledger.db --dataset-id customers --release january/

    """
    if not ledger.is_file():
        _validate.fail("--ledger", "an existing ledger", str(ledger))
    balance = Ledger(ledger).charge(dataset_id, combine([folder]), note=printable(str(folder)))
    _print_balances([balance], as_json)


def _print_balances(balances: list[Balance], as_json: bool) -> None:
    if as_json:
        print_json({"datasets": [balance.to_dict() for balance in balances]})
        return
    table = Table("data set", "epsilon spent", "limit", "delta", "charges", title="privmix ledger")
    for b in balances:
        numbers = (f"{b.epsilon_spent:.6g}", f"{b.epsilon_limit:g}", f"{b.delta:g}")
        table.add_row(b.dataset_id, *numbers, str(len(b.charges)))
    OUT.print(table)

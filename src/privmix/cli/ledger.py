"""``privmix ledger``."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from privmix import _validate
from privmix.accounting.guarantee import number
from privmix.cli._common import OUT, Json, app, print_json, read_text, status_line, write_text
from privmix.cli._plots import Plot, check_plot, draw
from privmix.planning.plan import ReleasePlan
from privmix.running.ledger import Balance, Charge, Draw, Ledger, read_export
from privmix.running.ledger_account import PLANNED_RULE, RULE, shown

ledger_app = typer.Typer(
    no_args_is_help=True, help="Keep account of what data sets have spent. Private to their holder."
)
app.add_typer(ledger_app, name="ledger")
LedgerFile = Annotated[Path, typer.Option("--ledger", help="Ledger file (SQLite).")]
DatasetId = Annotated[str, typer.Option(help="The data set's declared name.")]
_MOST_PLOTTED = 6
Who = Annotated[str | None, typer.Option(help="By whom, in free text [the login name].")]


@ledger_app.command("open", no_args_is_help=True)
def ledger_open_command(
    ledger: LedgerFile,
    dataset_id: DatasetId,
    epsilon_limit: Annotated[float, typer.Option(help="Most that all charges may cost together.")],
    delta: Annotated[float, typer.Option(help="The delta it is stated at.")],
    who: Who = None,
    as_json: Json = False,
) -> None:
    """Enter a data set with its limit.

    Example:
        privmix ledger open --ledger ledger.db --dataset-id customers --epsilon-limit 3 --delta 1e-6

    """
    book = Ledger(ledger).open_dataset(
        dataset_id, epsilon_limit=epsilon_limit, delta=delta, who=who
    )
    _print_balances([book.balance(dataset_id)], book.head(), as_json)


@ledger_app.command("show", no_args_is_help=True)
def ledger_show_command(
    ledger: LedgerFile,
    dataset_id: Annotated[str | None, typer.Option(help="One data set only.")] = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Show what has been spent: every charge, what it costs alone and with those before it.

    Example:
        privmix ledger show --ledger ledger.db --plot budget.svg

    """
    check_plot(plot)
    book = _existing(ledger)
    shown_balances = (
        list(book.balances().values()) if dataset_id is None else [book.balance(dataset_id)]
    )
    _print_balances(shown_balances, book.head(), as_json)
    if plot is not None:
        from privmix.plotting import plot_budget

        if not shown_balances:
            _validate.fail("--plot", "a ledger with a data set", "an empty one")
        if len(shown_balances) > _MOST_PLOTTED:
            allowed = f"--dataset-id, or at most {_MOST_PLOTTED} data sets"
            _validate.fail("--plot", allowed, len(shown_balances))
        draw(plot, *(partial(plot_budget, balance) for balance in shown_balances))


@ledger_app.command("charge", no_args_is_help=True)
def ledger_charge_command(
    ledger: LedgerFile,
    dataset_id: DatasetId,
    folders: Annotated[
        list[Path], typer.Option("--release", help="A release or a model that is there already.")
    ],
    who: Who = None,
    as_json: Json = False,
) -> None:
    """Record releases and models that were made without the ledger, past the limit too.

    What the ledger knows by its certificate is not charged again. Nothing new is admitted past the
    limit.

    Example:
        privmix ledger charge --ledger ledger.db --dataset-id customers --release january/

    """
    from privmix.spending import read_spent

    book = _existing(ledger)
    found = [read_spent(folder) for folder in folders]
    for one in found:
        if not one.private:
            allowed = "what was made without a test seed and not for research"
            _validate.fail(one.folder, allowed, f"a {one.kind} that protects nobody")
    news = []
    for one in found:
        receipt = book.record(
            dataset_id, one.event, digest=one.digest, name=one.folder, kind=one.kind, who=who
        )
        news.append({"folder": one.folder, "entry": receipt.number, "news": receipt.news})
        if not as_json:
            OUT.print(receipt.told(one.folder))
    _print_balances([book.balance(dataset_id)], book.head(), as_json, recorded=news)


@ledger_app.command("reserve", no_args_is_help=True)
def ledger_reserve_command(
    ledger: LedgerFile,
    dataset_id: DatasetId,
    plans: Annotated[
        list[Path], typer.Option("--plan", help="A plan of privmix plan; several times.")
    ],
    name: Annotated[str, typer.Option(help="The holder's name for the reservation.")] = "",
    who: Who = None,
    as_json: Json = False,
) -> None:
    """Charge several plans together, before any of them runs.

    Plans that are fixed in advance cost less than the same plans chosen one after the other. A release of a
    reserved plan, given the ledger, draws on the reservation at no new charge.

    Example:
        privmix ledger reserve --ledger ledger.db --dataset-id customers --plan a.json --plan b.json

    """
    from privmix.engine import recheck_plan

    book = _existing(ledger)
    made = [ReleasePlan.from_json(read_text(plan), position=str(plan)) for plan in plans]
    for plan in made:
        recheck_plan(plan)
    named = name or ", ".join(str(plan) for plan in plans)
    book.reserve(dataset_id, [plan.event for plan in made], name=named, who=who)
    _print_balances([book.balance(dataset_id)], book.head(), as_json)


@ledger_app.command("export", no_args_is_help=True)
def ledger_export_command(
    ledger: LedgerFile,
    out: Annotated[
        Path | None, typer.Option(help="File to write; must not exist [standard output].")
    ] = None,
) -> None:
    """Write all entries as JSON, with their hashes.

    Example:
        privmix ledger export --ledger ledger.db --out ledger.json

    """
    book = _existing(ledger)
    text = book.to_json() + "\n"
    if out is None:
        typer.echo(text, nl=False)
        return
    write_text(out, text, new=True, mode=0o600)
    OUT.print(f"wrote {out}: {len(book.balances())} data sets, head {book.head()}")


@ledger_app.command("import", no_args_is_help=True)
def ledger_import_command(
    ledger: LedgerFile,
    source: Annotated[
        Path, typer.Argument(metavar="EXPORT", help="Made by privmix ledger export.")
    ],
) -> None:
    """Take over the entries of an export that goes on from this ledger, or make a ledger of it.

    An export that is older than the ledger changes nothing; one that differs is refused, and so is
    one whose entries state less than they cost.

    Example:
        privmix ledger import ledger.json --ledger restored.db

    """
    with status_line("accounting for all charges anew"):
        links = read_export(read_text(source), str(source))  # before a ledger is made for it
    book = Ledger(ledger)
    count = book.go_on(links, str(source))
    last = len(book.balances())
    told = f"{count} new entries" if count else "nothing new: the ledger has all of these entries"
    OUT.print(f"{told}; {last} data sets, head {book.head()}")


@ledger_app.command("verify", no_args_is_help=True)
def ledger_verify_command(
    ledger: LedgerFile,
    folders: Annotated[
        list[Path] | None,
        typer.Option("--release", help="A release or a model that the ledger should know."),
    ] = None,
    expect_head: Annotated[
        str | None, typer.Option(help="A head that was noted earlier (see ledger show).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that no entry was edited, removed or moved, and that no charge says less than it cost.

    A ledger whose last entries are gone is sound by itself: a noted head, or releases that it
    recorded, tell. Exit status 1 if anything is wrong.

    Example:
        privmix ledger verify --ledger ledger.db --release january/ --release model/

    """
    from privmix.spending import read_spent

    book = _existing(ledger)
    made = [read_spent(folder) for folder in folders or ()]
    nobody = [f"{one.folder}: protects nobody, no ledger has it" for one in made if not one.private]
    asked = [(one.folder, one.digest, one.event) for one in made if one.private]
    with status_line("accounting for all charges anew"):
        problems = [*nobody, *book.problems(asked, expect_head=expect_head)]
    head = book.head()
    if as_json:
        print_json({"valid": not problems, "head": head, "problems": problems})
    elif problems:
        OUT.print("NOT valid:")
        for problem in problems:
            OUT.print(f"- {problem}")
    else:
        OUT.print(f"valid: head {head}")
        if expect_head is None and not made:
            OUT.print("name releases, or a head noted earlier, to find entries gone from the end")
    if problems:
        raise typer.Exit(1)


def _existing(ledger: Path) -> Ledger:
    if not ledger.is_file():
        _validate.fail("--ledger", "an existing ledger", str(ledger))
    return Ledger(ledger)


def _print_balances(balances: Iterable[Balance], head: str, as_json: bool, **more: Any) -> None:
    if as_json:
        told = {"rule": RULE, "planned_rule": PLANNED_RULE, "head": head, **more}
        print_json(told | {"datasets": [balance.to_dict() for balance in balances]})
        return
    for balance in balances:
        _print_balance(balance)
    OUT.print(f"head {head}")


def _print_balance(balance: Balance) -> None:
    OUT.print(
        f"data set {balance.dataset_id}: epsilon {shown(balance.epsilon_spent)} of the limit "
        f"{number(balance.epsilon_limit)} is used, at delta {number(balance.delta)}"
    )
    OUT.print(f"  by {RULE}")
    OUT.print(f"  {shown(balance.epsilon_planned)} by {PLANNED_RULE}: not held against the limit")
    if balance.refusal is not None:
        OUT.print(f"  NOTHING MORE is admitted: {balance.refusal}")
    for charge in balance.charges:
        later = ", recorded later" if charge.existing else ""
        made = "" if charge.kind == "reservation" else f" ({_sealed(charge.digest)}{later})"
        _print_entry(charge.number, charge.charged_at, charge, made)
        OUT.print(
            f"    epsilon {shown(charge.epsilon_alone)} alone, {shown(charge.epsilon_spent)} composed, "
            f"{shown(charge.epsilon_planned)} if planned: {charge.mechanism}"
        )
        for drawn in charge.draws:
            made = f" ({_sealed(drawn.digest)}), plan {drawn.place + 1} of entry {charge.number}"
            _print_entry(drawn.number, drawn.drawn_at, drawn, made)


def _print_entry(number: int, at: str, entry: Charge | Draw, made: str) -> None:
    who = f", by {entry.who}" if entry.who else ""
    what = f"{entry.kind} {entry.name}" if entry.name else entry.kind
    OUT.print(f"  {number}  {at}  {what}{made}{who}")


def _sealed(digest: str | None) -> str:
    return "not sealed" if digest is None else f"digest {digest[:16]}"

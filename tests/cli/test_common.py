"""What reaches a terminal: nothing foreign acts on it, and no name of our own is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from builders import make_data, make_schema
from commands import Result
from privmix import release
from privmix._validate import printable
from privmix.cli import _common, _show_warning
from privmix.cli._common import _SafeConsole, status_line
from privmix.running.ledger import Ledger


def test_a_console_prints_text_as_it_stands(capsys):
    from rich.table import Table

    console = _SafeConsole()
    console.print("[red]a[/red] :smile: [/b] \x1b[2J\nvalid: no")
    table = Table("name")
    table.add_row("[/x]\nvalid: yes\x1b[1m")
    console.print(table)
    with status_line("[/b]", always=True):
        pass
    out = capsys.readouterr().out
    assert r"[red]a[/red] :smile: [/b] \x1b[2J\nvalid: no" in out
    assert r"[/x]\nvalid: yes\x1b[1m" in out
    assert "\x1b" not in out


def test_a_warning_is_one_line_that_no_terminal_acts_on(capsys):
    _show_warning("column \x1b[2J\x1b]0;owned\x07\nvalid: yes", UserWarning, "f", 1)
    err = capsys.readouterr().err
    assert err == "warning: column \\x1b[2J\\x1b]0;owned\\x07 valid: yes\n"


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    room = tmp_path_factory.mktemp("room")
    schema = make_schema()
    x, y = make_data(schema, 60)
    np.savez(room / "d.npz", x=x, y=y)
    (room / "s.json").write_text(schema.to_json())
    Ledger(room / "ledger.db").open_dataset("people", epsilon_limit=99.0, delta=1e-5)
    return room


# Runs command lines one after the other, each with streams of its own, as a terminal's.
SCRIPT = """
import contextlib, io, json, os, sys

for words in json.loads(sys.argv[1]):
    pair = [io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2)]
    sys.argv = ["privmix", *words]
    with contextlib.redirect_stdout(pair[0]), contextlib.redirect_stderr(pair[1]):
        try:
            from privmix.cli import main
            main()
        except SystemExit as stop:
            code = stop.code or 0
    for stream in pair:
        stream.flush()
    print(json.dumps([code, *(stream.buffer.getvalue().decode() for stream in pair)]))
"""


def privmix(room, *commands: tuple[str, ...]) -> list[Result]:
    """Run command lines in one process that is not this one: most of each would be its imports."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(commands)],
        cwd=room, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [Result(*json.loads(line)) for line in done.stdout.splitlines()]


OPTIONS = [
    "--schema",
    "s.json",
    "--features-key",
    "x",
    "--label-key",
    "y",
    "--epsilon",
    "2",
    "--delta",
    "1e-5",
    "--design",
    "stratified",
    "--ledger",
    "ledger.db",
    "--dataset-id",
    "people",
]


NAMES = {
    "release[v2]": "'release[v2]'",
    "release[/b]": "'release[/b]'",
    os.fsdecode(b"rel\xff"): r"rel\xff",
    "a\nvalid: b": r"a\nvalid: b",
}


def test_names_of_releases(room):
    (room / "release[").mkdir()
    commands = [("release", "d.npz", "--out", name, *OPTIONS) for name in NAMES]
    for done, (name, shown) in zip(privmix(room, *commands), NAMES.items(), strict=True):
        assert done.code == 0, done.err
        assert f"privmix verify {shown}" in done.out or shown in done.out
        assert not [line for line in done.out.splitlines() if line.startswith("valid")]
        assert (room / name / "certificate.json").exists()
    charges = Ledger(room / "ledger.db").balance("people").charges
    assert len(charges) == len(NAMES)
    assert all(charge.name.isprintable() for charge in charges)


def test_a_file_name_prints_no_line_of_its_own(tmp_path, stratified_plan):
    folder = tmp_path / "r"
    release(*make_data(stratified_plan.data_schema, 60), stratified_plan, out=folder)
    name = "a\nvalid: (0.1, 1e-09)-differentially private\x1b[8m"
    (folder / name).touch()
    verified, trained = privmix(tmp_path, ("verify", "r"), ("train", "r", "--out", "m.safetensors"))
    assert verified.code == 1
    lines = verified.out.splitlines()
    assert lines == ["NOT valid:", f"- {printable(name)}: not part of the release"]
    assert trained.code == 2
    assert len(trained.err.splitlines()) == 1
    assert "\x1b" not in trained.err


def test_names_in_errors(tmp_path):
    names = ["no\nsuch\x1b[2J", os.fsdecode(b"no\xff"), "[/b]"]
    commands = [("verify", name) for name in names]
    commands += [("account", "--delta", "1e-5", "--release", name) for name in names]
    for done, name in zip(privmix(tmp_path, *commands), names * 2, strict=True):
        assert done.code == 2
        (line,) = done.err.splitlines()
        assert line.startswith(f"error: {printable(name)}")


def test_progress_on_a_stream_is_plain_lines(capsys, monkeypatch):
    times = iter([10.0, 13.0, 14.0, 23.0])
    monkeypatch.setattr(_common, "monotonic", lambda: next(times))
    printer = _common._LinePrinter("rows")
    for done in (1, 2, 3, 4):
        printer(done, 4)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "2 of 4 rows, 0.33 rows/s, about 6 s left",
        "4 of 4 rows, 0.23 rows/s, about 0 s left",
    ]

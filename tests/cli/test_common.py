"""What reaches a terminal: nothing foreign acts on it, and no name of our own is lost."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from builders import make_data, make_schema
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


def privmix(room, *words: str | bytes) -> subprocess.CompletedProcess[str]:
    code = "from privmix.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words], cwd=room, capture_output=True, text=True, check=False
    )


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


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"release[v2]", "'release[v2]'"),
        (b"release[/b]", "'release[/b]'"),
        (b"rel\xff", r"rel\xff"),
        (b"a\nvalid: b", r"a\nvalid: b"),
    ],
)
def test_names_of_releases(room, name, shown):
    before = len(Ledger(room / "ledger.db").balance("people").charges)
    out = room / os.fsdecode(name)
    out.parent.mkdir(exist_ok=True)
    done = privmix(room, "release", "d.npz", "--out", name, *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert f"privmix verify {shown}" in done.stdout or shown in done.stdout
    assert not [line for line in done.stdout.splitlines() if line.startswith("valid")]
    assert (out / "certificate.json").exists()
    charges = Ledger(room / "ledger.db").balance("people").charges
    assert len(charges) == before + 1
    assert charges[-1].name.isprintable()


def test_a_file_name_prints_no_line_of_its_own(tmp_path, stratified_plan):
    folder = tmp_path / "r"
    release(*make_data(stratified_plan.data_schema, 60), stratified_plan, out=folder)
    name = "a\nvalid: (0.1, 1e-09)-differentially private\x1b[8m"
    (folder / name).touch()
    done = privmix(tmp_path, "verify", "r")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines == ["NOT valid:", f"- {printable(name)}: not part of the release"]
    done = privmix(tmp_path, "train", "r", "--out", "m.safetensors")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize("name", ["no\nsuch\x1b[2J", os.fsdecode(b"no\xff"), "[/b]"])
def test_names_in_errors(tmp_path, name):
    for words in (["verify", name], ["account", "--delta", "1e-5", "--release", name]):
        done = privmix(tmp_path, *words)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
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

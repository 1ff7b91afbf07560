"""Processes that are killed, disks that are full: nothing is sealed, nothing is lost or paid twice."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from builders import make_data, make_plan, make_schema
from privmix import InvalidInputError, cli, release, verify
from privmix.accounting import account
from privmix.cli._stopping import Stopped, _is_stopping
from privmix.publishing import folder as store
from privmix.running import journal
from privmix.running.ledger import Ledger

KILLS = 20


def plan_and_data() -> tuple:
    plan = make_plan(make_schema(num_features=100), "poisson", 5.0, mix_size=20, num_mixtures=8_000)
    return plan, make_data(plan.data_schema, 60)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def open_ledger(path: Path, plan) -> Ledger:
    """A ledger with budget for one release."""
    cost = account(plan.event, 1e-6).epsilon
    return Ledger(path).open_dataset("d", epsilon_limit=1.2 * cost, delta=1e-6)


def same_secret() -> bytes:
    """A key that is the same each time, of runs that are private by name: a ledger takes no others."""
    return bytes(32)


def run_and_kill(work, after: float | None) -> bool:
    """Run in a process of its own, killed after some seconds; whether it was."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            os._exit(1)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    killed = os.WIFSIGNALED(status)
    assert killed or os.waitstatus_to_exitcode(status) == 0
    return killed


def kill_at_random_points(folder: Path) -> None:
    """Kill runs of one release until 20 were cut off; each must end as the one that was left alone.

    A warm process forks, so that a run is not mostly the import of libraries.
    """
    store._PART_BYTES = 1_000_000
    journal.fresh_secret = same_secret
    plan, data = plan_and_data()
    whole = files(release(*data, plan, out=folder / "whole", threads=1).folder)
    started = time.monotonic()
    run_and_kill(lambda: release(*data, plan, out=folder / "timed", threads=2), None)
    duration = time.monotonic() - started
    cuts = 0
    for seed in range(20 * KILLS):
        chance = random.Random(seed)
        place = folder / f"run{seed}"
        place.mkdir()
        out, run = place / "out", place / ".out.run"
        book = open_ledger(place / "ledger.db", plan)

        def work(out=out, run=run, book=book) -> None:
            options = {"ledger": book.path, "dataset_id": "d", "threads": 2}
            resume = (run / "journal.json").exists() or (run / "release").exists()
            release(*data, plan, out=out, resume=resume, **options)

        cut = 0
        while not out.exists():
            after = None if cut == 2 else chance.uniform(0, 1.2 * duration)
            killed = run_and_kill(work, after)
            cut += killed
            print(f"seed {seed}: {'killed' if killed else 'done'} after {after}", flush=True)
            if not out.exists():
                assert not list(place.rglob("part-*.parquet")) or (run / "release").exists()
                if (run / "journal.json").exists():
                    assert (run / "journal.json").stat().st_mode & 0o777 == 0o600
        assert files(out) == whole
        assert len(book.balance("d").charges) == 1
        shutil.rmtree(place)
        cuts += cut
        if cuts >= KILLS:
            break
    print(f"cut off {cuts} times", flush=True)


def test_a_process_killed_at_random_points(tmp_path):
    """SIGKILL 20 times, at times uniform over the run: same bytes, one charge."""
    script = (
        "import pathlib, sys, test_crashes as t; t.kill_at_random_points(pathlib.Path(sys.argv[1]))"
    )
    told = subprocess.run(
        [sys.executable, "-c", script, tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    cuts = int(told.stdout.split("cut off ")[1].split()[0])
    assert cuts >= KILLS


class Stop(BaseException):
    """Stands for the end of the process."""


class TestBetweenChargeAndKey:
    def begun(self, tmp_path, monkeypatch) -> tuple:
        plan, data = plan_and_data()
        book = open_ledger(tmp_path / "l.db", plan)

        def stop():
            raise Stop

        with monkeypatch.context() as patch, pytest.raises(Stop):
            patch.setattr(journal, "fresh_secret", stop)
            release(*data, plan, out=tmp_path / "r", ledger=book.path, dataset_id="d")
        assert len(book.balance("d").charges) == 1
        return plan, data, book

    def test_the_charge_is_not_lost(self, tmp_path, monkeypatch):
        plan, data, book = self.begun(tmp_path, monkeypatch)
        release(*data, plan, out=tmp_path / "r", resume=True, ledger=book.path, dataset_id="d")
        assert len(book.balance("d").charges) == 1
        assert verify(tmp_path / "r").valid

    def test_it_is_not_evaded(self, tmp_path, monkeypatch):
        plan, data, _ = self.begun(tmp_path, monkeypatch)
        with pytest.raises(InvalidInputError, match="the ledger it was begun with"):
            release(*data, plan, out=tmp_path / "r", resume=True)
        assert not (tmp_path / "r").exists()

    def test_a_ledger_in_trouble_does_not_lose_the_run(self, tmp_path, monkeypatch):
        plan, data, book = self.begun(tmp_path, monkeypatch)
        content = book.path.read_bytes()
        book.path.write_bytes(b"damaged" * 1000)
        options = {"resume": True, "ledger": book.path, "dataset_id": "d"}
        with pytest.raises(InvalidInputError, match="a ledger that can be opened"):
            release(*data, plan, out=tmp_path / "r", **options)
        book.path.write_bytes(content)
        release(*data, plan, out=tmp_path / "r", **options)
        assert len(book.balance("d").charges) == 1

    def test_a_ledger_named_later_is_charged_once(self, tmp_path):
        plan, data = plan_and_data()
        book = open_ledger(tmp_path / "l.db", plan)

        def stop(done, total):
            raise Stop

        with pytest.raises(Stop):
            release(*data, plan, out=tmp_path / "r", progress=stop)
        options = {"resume": True, "ledger": book.path, "dataset_id": "d"}
        with pytest.raises(Stop):
            release(*data, plan, out=tmp_path / "r", progress=stop, **options)
        release(*data, plan, out=tmp_path / "r", **options)
        assert len(book.balance("d").charges) == 1


class TestBetweenKeyAndName:
    """The key is gone, the certificate is there, and the folder has no name yet."""

    def begun(self, tmp_path, **options) -> tuple:
        plan, data = plan_and_data()
        book = open_ledger(tmp_path / "l.db", plan)

        def stop(self):
            raise Stop

        with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop):
            patch.setattr(journal.RunFolder, "publish", stop)
            release(*data, plan, out=tmp_path / "r", **options)
        return (*data, plan), {"resume": True, "ledger": book.path, "dataset_id": "d"}, book

    def test_a_ledger_named_later_is_charged_and_told_the_digest(self, tmp_path):
        run, options, book = self.begun(tmp_path)
        made = release(*run, out=tmp_path / "r", **options)
        (charge,) = book.balance("d").charges
        assert charge.digest == made.certificate.digest()

    def test_a_ledger_named_later_may_refuse(self, tmp_path):
        run, options, book = self.begun(tmp_path)
        book.charge("d", run[-1].event)
        with pytest.raises(InvalidInputError, match="of which .* is spent"):
            release(*run, out=tmp_path / "r", **options)
        assert not (tmp_path / "r").exists() and (tmp_path / ".r.run").exists()
        assert len(book.balance("d").charges) == 1

    def test_a_ledger_named_at_first_is_not_charged_again_nor_left_out(self, tmp_path):
        book = {"ledger": tmp_path / "l.db", "dataset_id": "d"}
        run, options, book = self.begun(tmp_path, **book)
        with pytest.raises(InvalidInputError, match="the ledger it was begun with"):
            release(*run, out=tmp_path / "r", resume=True)
        release(*run, out=tmp_path / "r", **options)
        assert len(book.balance("d").charges) == 1

    def test_a_run_with_a_test_seed_is_charged_to_none(self, tmp_path):
        run, options, book = self.begun(tmp_path, test_seed=1)
        with pytest.raises(InvalidInputError, match="test seed"):
            release(*run, out=tmp_path / "r", **options)
        assert not book.balance("d").charges


@pytest.fixture
def holder(tmp_path, monkeypatch) -> list[object]:
    """The words of a release command, with a plan, records and a ledger in the folder."""
    monkeypatch.setattr(journal, "fresh_secret", same_secret)
    plan, (x, y) = plan_and_data()
    (tmp_path / "plan.json").write_text(plan.to_json())
    np.savez(tmp_path / "train.npz", x=x, y=y)
    open_ledger(tmp_path / "l.db", plan)
    words: list[object] = ["release", tmp_path / "train.npz", "--features-key", "x"]
    words += ["--label-key", "y", "--plan", tmp_path / "plan.json"]
    return words


def in_process(capsys, monkeypatch, *words: object) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["privmix", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(str(stop.value.code)), (capsys.readouterr().err.splitlines() or [""])[-1]


@pytest.fixture
def run(capsys, monkeypatch):
    return lambda *words: in_process(capsys, monkeypatch, *words)


# Bytes that a file may have: 1 (the journal fails), a few kB (the ledger), more (the first part).
@pytest.mark.parametrize("limit", [1, 4096, 1_000_000])
def test_a_full_disk(tmp_path, holder, run, limit):
    """The operating system refuses to let files grow; afterwards the run goes on, paid once."""
    ledger = ["--ledger", tmp_path / "l.db", "--dataset-id", "d"]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == 1:
        ledger = []  # it would be the first to fail
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        code, line = run(*holder, "--out", tmp_path / "r", *ledger)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 1
    assert re.match("error: O.*Error: .*(File too large|disk)", line)
    if (tmp_path / ".r.run").exists():
        assert f"the run is kept in {tmp_path / '.r.run'}" in line
    assert not (tmp_path / "r").exists()
    assert not list(tmp_path.rglob("certificate.json"))
    resume = ["--resume"] if (tmp_path / ".r.run").exists() else []
    assert run(*holder, "--out", tmp_path / "r", *ledger, *resume)[0] == 0
    assert run(*holder, "--out", tmp_path / "whole")[0] == 0
    assert files(tmp_path / "r") == files(tmp_path / "whole")
    assert not (tmp_path / ".r.run").exists()
    if ledger:
        assert len(Ledger(tmp_path / "l.db").balance("d").charges) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to the superuser")
def test_a_folder_that_is_read_only(tmp_path, holder, run):
    (tmp_path / "shut").mkdir(mode=0o555)
    code, line = run(*holder, "--out", tmp_path / "shut" / "r")
    assert code == 2
    assert "a path in a writable folder" in line


def test_a_file_system_that_is_read_only(tmp_path, holder, run, monkeypatch):
    """As it looks to a process that may write everywhere: making the run folder fails."""
    honest = Path.mkdir

    def mkdir(self, *arguments, **options):
        if self.name == ".r.run":
            raise OSError(30, "Read-only file system")
        honest(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", mkdir)
        code, line = run(
            *holder, "--out", tmp_path / "r", "--ledger", tmp_path / "l.db", "--dataset-id", "d"
        )
    assert code == 2
    assert "expected a path in a writable folder, got Read-only file system" in line
    assert Ledger(tmp_path / "l.db").balance("d").charges == ()
    assert run(*holder, "--out", tmp_path / "r")[0] == 0


def table(tmp_path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    _, (x, y) = plan_and_data()
    columns = {f"x{j}": x[:, j] for j in range(x.shape[1])}
    pq.write_table(pa.table({**columns, "y": y}), tmp_path / "train.parquet")
    return tmp_path / "train.parquet"


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_truncated_input(tmp_path, holder, run, kind, share):
    """Refused before anything is written; nothing is charged."""
    if kind == "parquet":
        holder[1:6] = [table(tmp_path), "--label", "y"]
    path = Path(str(holder[1]))
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    ledger = ["--ledger", tmp_path / "l.db", "--dataset-id", "d"]
    before = sorted(tmp_path.iterdir())
    code, line = run(*holder, "--out", tmp_path / "r", *ledger)
    assert (code, str(path) in line) == (2, True)
    assert sorted(tmp_path.iterdir()) == before
    assert Ledger(tmp_path / "l.db").balance("d").charges == ()
    path.write_bytes(content)
    assert run(*holder, "--out", tmp_path / "r", *ledger)[0] == 0


def test_input_truncated_between_two_runs(tmp_path, holder, run):
    """A run that was cut off is not resumed on a damaged file; it is once the file is whole."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        assert run(*holder, "--out", tmp_path / "r")[0] == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    path = Path(str(holder[1]))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert run(*holder, "--out", tmp_path / "r", "--resume")[0] == 2
    path.write_bytes(content)
    assert run(*holder, "--out", tmp_path / "r", "--resume")[0] == 0
    assert json.loads((tmp_path / "r" / "certificate.json").read_text())["private"] is True


MAIN = "sys.argv[0] = 'privmix'; main()"


def command(*words: object, before: str = "", reached: Path = Path()) -> subprocess.Popen:
    """A command line in a process of its own; code before it knows a file that says how far it has come."""
    code = "\n".join(["import sys", "from privmix.cli import _common, main", before, MAIN])
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        env={**os.environ, "PYTHONPATH": path, "REACHED": str(reached)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stopped(process: subprocess.Popen, signum: int, ready) -> tuple[int, str]:
    """Send a signal as soon as something is there; return the exit status and the last line."""
    deadline = time.monotonic() + 120
    while not ready():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signum)
    try:
        _, told = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, told.splitlines()[-1]


SIGNALS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
NOTHING = "nothing was begun, and what an earlier run has left stays as it was"
PLAN = ["plan", "--schema", "schema.json", "--epsilon", "1", "--delta", "1e-5"]


class TestSignals:
    """Ctrl-C and SIGTERM: one line says what is left and how to go on."""

    @pytest.fixture(autouse=True)
    def heard(self):
        """Let children hear Ctrl-C: a shell has commands in the background ignore it, and these pass that on."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.signal(signal.SIGINT, before)

    @pytest.mark.parametrize(("signum", "status", "word"), SIGNALS)
    def test_release(self, tmp_path, capsys, monkeypatch, signum, status, word):
        schema = make_schema(num_features=400)
        plan = make_plan(schema, "poisson", 5.0, mix_size=20, num_mixtures=100_000)
        (tmp_path / "plan.json").write_text(plan.to_json())
        x, y = make_data(schema, 60)
        np.savez(tmp_path / "train.npz", x=x, y=y)
        words: list[object] = ["release", tmp_path / "train.npz", "--features-key", "x"]
        words += ["--label-key", "y", "--plan", tmp_path / "plan.json", "--test-seed", 1]
        words += ["--threads", 1]
        run = tmp_path / ".r.run"
        process = command(*words, "--out", tmp_path / "r")
        parts = run / "release" / "data"
        code, line = stopped(process, signum, lambda: list(parts.glob("*.parquet")))
        assert code == status
        assert line.startswith(f"error: {word}: the run is kept in {run}")
        assert "--resume" in line
        assert not (tmp_path / "r").exists()
        assert in_process(capsys, monkeypatch, *words, "--out", tmp_path / "r", "--resume")[0] == 0
        assert not run.exists()

    @pytest.mark.parametrize(("signum", "status", "word"), SIGNALS)
    def test_fit(self, tmp_path, signum, status, word):
        pytest.importorskip("torch")
        x, y = make_data(make_schema(), 60)
        np.savez(tmp_path / "train.npz", x=x, y=y)
        words: list[object] = ["fit", tmp_path / "train.npz", "--features-key", "x"]
        words += ["--label-key", "y", "--classes", "0,1,2", "--num-records", 60]
        words += ["--batch-size", 6, "--epochs", 10_000, "--epsilon", 5, "--delta", 1e-5]
        words += ["--test-seed", 1, "--out", tmp_path / "m"]
        run = tmp_path / ".m.run"
        begun = (run / "journal.json").exists
        code, line = stopped(command(*words), signum, begun)
        assert code == status
        assert line.startswith(f"error: {word}: the run is kept in {run}")
        assert not (tmp_path / "m").exists()

    @pytest.mark.parametrize(("signum", "status", "word"), SIGNALS)
    def test_extract(self, tmp_path, signum, status, word):
        image = pytest.importorskip("PIL.Image")
        (tmp_path / "photos" / "a").mkdir(parents=True)
        for i in range(1500):
            image.new("L", (64, 64), i % 256).save(tmp_path / "photos" / "a" / f"{i}.png")
        words = ["extract", tmp_path / "photos", "--extractor", "pixels:size=64"]
        parts = tmp_path / ".f.parquet.parts"
        process = command(*words, "--out", tmp_path / "f.parquet")
        code, line = stopped(process, signum, lambda: list(parts.glob("00000000")))
        assert code == status
        assert line.startswith(f"error: {word}: private features")
        assert f"are kept in {parts}" in line
        assert not (tmp_path / "f.parquet").exists()

    @pytest.mark.parametrize(("signum", "status", "word"), SIGNALS)
    def test_before_anything_is_begun(self, tmp_path, signum, status, word):
        before = """
import os, pathlib, time

def wait(*_):
    pathlib.Path(os.environ["REACHED"]).touch()
    time.sleep(100)

_common.read_text = wait
"""
        process = command(*PLAN, before=before, reached=tmp_path / "x")
        found, line = stopped(process, signum, (tmp_path / "x").exists)
        assert found == status
        assert line == f"error: {word}: {NOTHING}"

    @pytest.mark.parametrize(("signum", "status", "word"), SIGNALS)
    def test_where_what_the_signal_raises_is_swallowed(self, tmp_path, signum, status, word):
        """Python does so in callbacks of weak references, and each import runs one."""
        before = """
import os, pathlib, time, weakref

REACHED = pathlib.Path(os.environ["REACHED"])

class Referent:
    pass

def swallow(*_):
    REACHED.touch()
    time.sleep(100)

def work(*_):
    referent = Referent()
    reference = weakref.ref(referent, swallow)
    del referent
    REACHED.with_suffix(".swallowed").touch()
    try:
        while True:
            time.sleep(0.01)
    finally:
        time.sleep(2.5)  # longer than it takes to be told again
        REACHED.with_suffix(".ended").touch()

_common.read_text = work
"""
        process = command(*PLAN, before=before, reached=tmp_path / "x")
        found, line = stopped(process, signum, (tmp_path / "x").exists)
        assert found == status
        assert line == f"error: {word}: {NOTHING}"
        assert {path.name for path in tmp_path.iterdir()} == {"x", "x.swallowed", "x.ended"}


def test_no_signal_is_raised_again_while_something_ends():
    """Whatever has come up meanwhile; a generator that is closed knows nothing of why."""
    found = [_is_stopping()]

    def ending():
        try:
            yield
        finally:
            found.append(_is_stopping())

    generator = ending()
    next(generator)
    generator.close()
    with suppress(Stopped):
        try:
            raise Stopped(signal.SIGTERM)
        finally:
            found.append(_is_stopping())
            try:
                raise ValueError
            except ValueError:
                found.append(_is_stopping())
    assert found == [False, True, True, True]
    assert not _is_stopping()


def test_a_full_disk_leaves_no_half_plan(tmp_path, run):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    (tmp_path / "schema.json").write_text(make_schema().model_dump_json())
    words = ["plan", "--schema", tmp_path / "schema.json", "--epsilon", 1, "--delta", 1e-5]
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        code, line = run(*words, "--out", tmp_path / "plan.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (code, "File too large" in line) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["schema.json"]

"""A run that is cut off at any point goes on to the same bits; its key is gone once it is sealed."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from builders import make_data, make_plan, make_schema
from privmix import InvalidInputError, engine, release, verify
from privmix.publishing import folder as store
from privmix.rng import MasterKey, guessable_secret
from privmix.running import journal
from privmix.sampling import row_blocks


@pytest.fixture
def plan(monkeypatch):
    monkeypatch.setattr(store, "_PART_BYTES", 8000)
    made = make_plan(make_schema(num_features=40), "poisson", 5.0, mix_size=60, num_mixtures=100)
    monkeypatch.setattr(type(made.mechanism), "blocks", property(small_blocks))
    return made


def small_blocks(config):
    return row_blocks(config.num_mixtures, 16, config.rows_per_class)


def tree(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


class CutOff(BaseException):
    """Stands for the end of the process: nothing of the library catches it."""


@contextmanager
def disk_calls_end_after(limit: int, below: Path):
    """Let the process end, as it were, before the change number ``limit`` to files below a folder."""
    calls = 0

    def counted(real):
        def call(*arguments, **options):
            nonlocal calls
            if below.as_posix() in str(arguments[0]):
                calls += 1
                if calls > limit:
                    raise CutOff
            return real(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("rename", "unlink", "mkdir", "open"):
            patch.setattr(os, name, counted(getattr(os, name)))
        yield


def test_resuming_at_every_point_gives_the_same_bits(tmp_path, plan):
    data = make_data(plan.data_schema, 60)
    whole = tree(release(*data, plan, out=tmp_path / "whole", test_seed=1).folder)
    assert len(whole) == 5  # three parts, the card, the certificate
    out = tmp_path / "cut" / "whole"
    run = out.parent / ".whole.run"
    for limit in range(10_000):
        shutil.rmtree(out.parent, ignore_errors=True)
        out.parent.mkdir()
        try:
            with disk_calls_end_after(limit, out.parent):
                release(*data, plan, out=out, test_seed=1, threads=1)
        except CutOff:
            pass
        else:
            break
        if out.exists():  # published, but the run folder is still to be removed
            assert not (run / "journal.json").exists()
        else:
            resume = (run / "journal.json").exists() or (run / "release").exists()
            release(*data, plan, out=out, test_seed=1, resume=resume)
            assert [path.name for path in out.parent.iterdir()] == ["whole"]
        assert tree(out) == whole
    assert limit > 20


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import numpy as np
from builders import make_data, make_plan, make_schema
from privmix import release
from privmix.publishing import folder as store
store._PART_BYTES = 200_000
plan = make_plan(make_schema(num_features=400), "poisson", 5.0, mix_size=20, num_mixtures=8000)
print("ready", flush=True)
release(*make_data(plan.data_schema, 60), plan, out={out!r}, test_seed=1, resume={resume})
"""


def run_script(out: Path, resume: bool) -> subprocess.Popen:
    script = SCRIPT.format(tests=str(Path(__file__).parent), out=str(out), resume=resume)
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    )


def test_a_killed_process_is_resumed(tmp_path):
    """SIGKILL in the middle of a run."""
    out = tmp_path / "r"
    process = run_script(tmp_path / "w", False)
    process.communicate()
    assert process.returncode == 0
    process = run_script(out, False)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    parts = tmp_path / ".r.run" / "release" / "data"
    while not parts.exists() or len(list(parts.glob("*.parquet"))) < 3:
        assert process.poll() is None, "the run ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not out.exists()
    process = run_script(out, True)
    process.communicate()
    assert process.returncode == 0
    assert tree(out) == tree(tmp_path / "w")


def test_resume_belongs_to_one_plan_and_one_input(tmp_path, plan):
    data = make_data(plan.data_schema, 60)

    def stop(done, total):
        if done > 40:
            raise CutOff

    with pytest.raises(CutOff):
        release(*data, plan, out=tmp_path / "r", progress=stop)
    other = data[0].copy()
    other[5, 0] /= 2
    louder = make_plan(plan.data_schema, "poisson", 6.0, mix_size=60, num_mixtures=100)
    for changed in ((other, data[1], plan), (*data, louder), (data[0][:-1], data[1][:-1], plan)):
        with pytest.raises(InvalidInputError, match="the plan and the records it was begun with"):
            release(*changed, out=tmp_path / "r", resume=True)
    path = tmp_path / ".r.run" / "journal.json"
    path.write_text(path.read_text().replace('"format_version":3', '"format_version":1'))
    with pytest.raises(
        InvalidInputError,
        match=r"version of privmix that began it, of format 1, which can finish it",
    ):
        release(*data, plan, out=tmp_path / "r", resume=True)


def test_a_sealed_run_is_published_under_its_own_plan_only(tmp_path, plan, monkeypatch):
    data = make_data(plan.data_schema, 60)

    def cut(self):
        raise CutOff

    with monkeypatch.context() as patch, pytest.raises(CutOff):
        patch.setattr(journal.RunFolder, "publish", cut)
        release(*data, plan, out=tmp_path / "r")
    louder = make_plan(plan.data_schema, "poisson", 6.0, mix_size=60, num_mixtures=100)
    with pytest.raises(InvalidInputError, match="the plan it was begun with"):
        release(*data, louder, out=tmp_path / "r", resume=True)
    release(*data, plan, out=tmp_path / "r", resume=True)
    assert verify(tmp_path / "r").valid


def test_nothing_to_resume(tmp_path, plan):
    with pytest.raises(InvalidInputError, match="a run that was cut off, to resume"):
        release(*make_data(plan.data_schema, 60), plan, out=tmp_path / "r", resume=True)
    assert list(tmp_path.iterdir()) == []


def test_one_run_at_a_time(tmp_path, plan):
    with (
        journal.RunFolder(tmp_path / "r"),
        pytest.raises(InvalidInputError, match="one run at a time"),
    ):
        release(*make_data(plan.data_schema, 60), plan, out=tmp_path / "r")


def test_a_full_disk_is_survived(tmp_path, plan, monkeypatch):
    data = make_data(plan.data_schema, 60)
    honest, calls = engine.write_part, 0

    def full(*arguments):
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(28, "No space left on device")
        honest(*arguments)

    monkeypatch.setattr(engine, "write_part", full)
    with pytest.raises(OSError, match="No space"):
        release(*data, plan, out=tmp_path / "r")
    assert not (tmp_path / "r").exists()
    release(*data, plan, out=tmp_path / "r", resume=True)
    assert verify(tmp_path / "r").valid


def test_the_key_is_overwritten_and_never_shown(tmp_path):
    run = journal.RunFolder(tmp_path / "r")
    entry = journal.Journal(secret="ab" * 32, context="cd" * 32, private=True)
    assert "abab" not in repr(entry) + str(entry)
    with run:
        run.begin(entry)
        assert isinstance(run.read("cd" * 32).key, MasterKey)
        path = run.folder / "journal.json"
        os.link(path, tmp_path / "copy")  # what an undelete would find
        run.destroy_journal()
        assert not path.exists()
        assert set((tmp_path / "copy").read_bytes()) == {0}
        shutil.rmtree(run.release_folder)
    assert not run.folder.exists()


def test_the_sealed_folder_holds_no_key(tmp_path, plan):
    made = release(*make_data(plan.data_schema, 60), plan, out=tmp_path / "r", test_seed=5)
    secret = journal.Journal(secret=guessable_secret(5).hex(), context="", private=False).secret
    assert all(secret.encode() not in content for content in tree(made.folder).values())
    assert np.isfinite(made.features).all()


def test_the_journal_is_for_its_owner_alone(tmp_path):
    """It holds the key: nobody else may read it, nor look into the folder that it stands in."""
    with journal.RunFolder(tmp_path / "out") as run:
        run.begin(journal.Journal.model_construct(context="", secret=None))
        assert stat.S_IMODE((run.folder / journal.JOURNAL_NAME).stat().st_mode) == 0o600
        assert stat.S_IMODE(run.folder.stat().st_mode) == 0o700

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
from warnings import catch_warnings

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from builders import make_data, make_plan, make_schema
from privmix import InvalidInputError, dpsgd, plan_release, release, verify
from privmix.accounting import ComposedEvent, account, format_epsilon
from privmix.backends import parts
from privmix.preprocess import FILE_NAME as PREPROCESSING_NAME
from privmix.preprocess import Center, UnitNorm
from privmix.publishing import folder as store
from privmix.rng import MasterKey, guessable_secret
from privmix.running import journal
from privmix.running.finished import DamagedFileWarning
from privmix.running.ledger import Ledger
from privmix.running.unrecorded import UnrecordedSpendingWarning
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
    script = SCRIPT.format(tests=str(Path(__file__).parents[1]), out=str(out), resume=resume)
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


def sealed_and_cut_off(tmp_path, plan, data) -> Path:
    """Release, cut off where the key is gone and the folder has no name yet; return the run folder."""

    def cut(self):
        raise CutOff

    with pytest.MonkeyPatch.context() as patch, pytest.raises(CutOff):
        patch.setattr(journal.RunFolder, "publish", cut)
        release(*data, plan, out=tmp_path / "r")
    return tmp_path / ".r.run"


def test_a_sealed_run_is_published_under_its_own_plan_and_records_only(tmp_path, plan):
    data = make_data(plan.data_schema, 60)
    sealed_and_cut_off(tmp_path, plan, data)
    louder = make_plan(plan.data_schema, "poisson", 6.0, mix_size=60, num_mixtures=100)
    for changed in ((*data, louder), (-data[0], data[1], plan), (data[0][1:], data[1][1:], plan)):
        with pytest.raises(InvalidInputError, match="the plan and the records it was begun with"):
            release(*changed, out=tmp_path / "r", resume=True)
        assert not (tmp_path / "r").exists()
    release(*data, plan, out=tmp_path / "r", resume=True)
    assert verify(tmp_path / "r").valid


def test_what_is_kept_of_a_sealed_run_is_private_and_has_no_key(tmp_path, plan):
    data = make_data(plan.data_schema, 60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "fresh_secret", lambda: b"\xab" * 32)
        folder = sealed_and_cut_off(tmp_path, plan, data)
    kept = folder / journal.SEALED_NAME
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert all(b"abab" * 8 not in content for content in tree(folder).values())


def test_a_sealed_run_of_an_earlier_version_is_refused(tmp_path, plan):
    """It does not say which records and which ledger are its own."""
    data = make_data(plan.data_schema, 60)
    (sealed_and_cut_off(tmp_path, plan, data) / journal.SEALED_NAME).unlink()
    with pytest.raises(InvalidInputError, match="the version of privmix that began it"):
        release(*data, plan, out=tmp_path / "r", resume=True)
    assert not (tmp_path / "r").exists()


def cut_off(tmp_path, plan, data) -> Path:
    """Begin a release, cut off after two of three parts; return its run folder."""

    def stop(done, total):
        if done > 96:
            raise CutOff

    with pytest.raises(CutOff):
        release(*data, plan, out=tmp_path / "r", progress=stop, test_seed=1, threads=1)
    return tmp_path / ".r.run"


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def one_bit_flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def linked(path: Path) -> None:
    """The same content, behind a link."""
    outside = path.parents[3] / "outside.parquet"
    path.rename(outside)
    path.symlink_to(outside)


DAMAGES = [emptied, cut_short, one_bit_flipped, linked]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_part_damaged_before_resuming_is_made_again(tmp_path, plan, damage):
    data = make_data(plan.data_schema, 60)
    whole = tree(release(*data, plan, out=tmp_path / "whole", test_seed=1).folder)
    part = cut_off(tmp_path, plan, data) / "release" / "data" / "part-00001.parquet"
    damage(part)
    with pytest.warns(DamagedFileWarning, match="part-00001.parquet was damaged"):
        release(*data, plan, out=tmp_path / "r", test_seed=1, resume=True)
    assert tree(tmp_path / "r") == whole
    assert not any(path.is_symlink() for path in (tmp_path / "r").rglob("*"))


def test_a_file_that_a_link_leads_to_is_not_touched(tmp_path, plan):
    """A half-written part whose name was made a link."""
    data = make_data(plan.data_schema, 60)
    outside = tmp_path / "outside"
    outside.write_text("precious")
    parts = cut_off(tmp_path, plan, data) / "release" / "data"
    half = parts / "part-00002.parquet.tmp"
    half.unlink(missing_ok=True)
    half.symlink_to(outside)
    (parts.parent / "README.md").symlink_to(outside)
    release(*data, plan, out=tmp_path / "r", test_seed=1, resume=True)
    assert outside.read_text() == "precious"
    assert not any(path.is_symlink() for path in (tmp_path / "r").rglob("*"))


@pytest.mark.parametrize("damage", DAMAGES[:3])
def test_results_damaged_before_resuming_are_made_again(tmp_path, damage):
    steps = (Center(budget_share=0.1), UnitNorm())
    plan = plan_release(
        make_schema(),
        target_epsilon=5.0,
        target_delta=1e-5,
        design="poisson",
        mix_size=20,
        num_mixtures=60,
        preprocessing=steps,
    )
    data = make_data(plan.data_schema, 60)
    whole = tree(release(*data, plan, out=tmp_path / "whole", test_seed=1).folder)

    def stop(done, total):
        raise CutOff

    with pytest.raises(CutOff):
        release(*data, plan, out=tmp_path / "r", test_seed=1, progress=stop)
    damage(tmp_path / ".r.run" / "release" / PREPROCESSING_NAME)
    with pytest.warns(DamagedFileWarning, match=f"{PREPROCESSING_NAME} was damaged"):
        release(*data, plan, out=tmp_path / "r", test_seed=1, resume=True)
    assert tree(tmp_path / "r") == whole


def test_a_part_made_again_with_other_bits_is_refused(tmp_path, plan, monkeypatch):
    data = make_data(plan.data_schema, 60)
    folder = cut_off(tmp_path, plan, data)
    (folder / "release" / "data" / "part-00001.parquet").unlink()
    path = folder / "journal.json"
    path.write_text(path.read_text().replace(guessable_secret(1).hex(), "ab" * 32))
    with pytest.raises(InvalidInputError, match=r"part-00001.parquet: .*when it was made first"):
        release(*data, plan, out=tmp_path / "r", resume=True)
    assert not (tmp_path / "r").exists()


def test_a_file_damaged_between_sealing_and_publishing_is_refused(tmp_path, plan, monkeypatch):
    """The key is gone by then: nothing can be made again."""
    data = make_data(plan.data_schema, 60)

    def cut(self):
        raise CutOff

    with monkeypatch.context() as patch, pytest.raises(CutOff):
        patch.setattr(journal.RunFolder, "publish", cut)
        release(*data, plan, out=tmp_path / "r")
    part = tmp_path / ".r.run" / "release" / "data" / "part-00001.parquet"
    whole = part.read_bytes()
    for damage in DAMAGES[:3]:
        damage(part)
        with pytest.raises(InvalidInputError, match=r"part-00001.parquet.*as it was sealed"):
            release(*data, plan, out=tmp_path / "r", resume=True)
        part.write_bytes(whole)
    release(*data, plan, out=tmp_path / "r", resume=True)
    assert verify(tmp_path / "r").valid


def test_a_file_that_is_not_the_runs_is_not_sealed(tmp_path, plan):
    data = make_data(plan.data_schema, 60)
    (cut_off(tmp_path, plan, data) / "release" / "extra.txt").write_text("mine")
    with pytest.raises(InvalidInputError, match=r"extra.txt: .*a file as this run wrote it"):
        release(*data, plan, out=tmp_path / "r", test_seed=1, resume=True)


@pytest.mark.parametrize("damage", [one_bit_flipped, cut_short])
def test_results_damaged_after_they_were_written_are_not_certified(tmp_path, damage):
    plan = plan_release(
        make_schema(), target_epsilon=5.0, target_delta=1e-5, design="poisson", mix_size=20,
        num_mixtures=60, preprocessing=(Center(budget_share=0.1), UnitNorm()),
    )  # fmt: skip
    data = make_data(plan.data_schema, 60)
    options = {"out": tmp_path / "r", "test_seed": 1}

    def spoil(done, total):
        damage(tmp_path / ".r.run" / "release" / PREPROCESSING_NAME)

    with pytest.raises(InvalidInputError, match=f"{PREPROCESSING_NAME}: .*as this run wrote it"):
        release(*data, plan, **options, progress=spoil)
    assert not list(tmp_path.rglob("certificate.json"))
    with pytest.warns(DamagedFileWarning, match=f"{PREPROCESSING_NAME} was damaged"):
        release(*data, plan, **options, resume=True)
    whole = release(*data, plan, out=tmp_path / "whole", test_seed=1).folder
    assert tree(tmp_path / "r") == tree(whole)


def test_a_signature_that_was_cut_off_leaves_nothing_behind(tmp_path, plan, monkeypatch):
    """Resumed without the key: what was left of the signature would make the release invalid."""
    data = make_data(plan.data_schema, 60)
    key = Ed25519PrivateKey.generate()
    rename = Path.rename

    def cut(self, target):
        if self.name == "certificate.json.sig.tmp":
            raise CutOff
        return rename(self, target)

    with monkeypatch.context() as patch, pytest.raises(CutOff):
        patch.setattr(Path, "rename", cut)
        release(*data, plan, out=tmp_path / "r", sign_key=key)
    assert list(tmp_path.rglob("certificate.json.sig.tmp"))
    release(*data, plan, out=tmp_path / "r", resume=True)
    assert verify(tmp_path / "r").valid


class TestUnrecordedSpending:
    def test_a_second_release_without_a_ledger_warns_with_what_both_cost(self, tmp_path, plan):
        data = make_data(plan.data_schema, 60)
        both = account(ComposedEvent(events=(plan.event, plan.event)), plan.delta).epsilon
        told = f"all 2 times cost epsilon {format_epsilon(both)} at"
        with catch_warnings(action="error"):
            release(*data, plan, out=tmp_path / "one")
            release(*data, plan, out=tmp_path / "seeded", test_seed=1)
            with pytest.raises(UnrecordedSpendingWarning, match=told):
                release(*data, plan, out=tmp_path / "two")
        assert not (tmp_path / "two").exists()

    def test_models_and_releases_count_together(self, tmp_path, plan):
        data = make_data(plan.data_schema, 60)
        width = data[0].shape[1]
        classes = plan.data_schema.classes
        release(*data, plan, out=tmp_path / "r")
        model = dpsgd.DPMixClassifier(
            None, 2.0, classes=classes, num_records=60, batch_size=20, epochs=1
        )
        with pytest.warns(UnrecordedSpendingWarning, match="all 2 times"):
            model.fit(*data)
        training = dpsgd.plan_training(
            target_epsilon=2.0, target_delta=1e-5, epochs=1, classes=classes, input_shape=(width,),
            num_records=60, batch_size=20, augmentation=dpsgd.AugmentationPlan.plain(),
        )  # fmt: skip
        fitting = {"model": dpsgd.LinearHead(None)}
        with pytest.warns(UnrecordedSpendingWarning, match="all 3 times"):
            dpsgd.fit(*data, training, out=tmp_path / "m", **fitting)
        with catch_warnings(action="error"):  # protects nobody
            dpsgd.fit(*data, training, out=tmp_path / "research", research=True, **fitting)

    def test_a_ledger_and_a_resumed_run_do_not(self, tmp_path, plan):
        data = make_data(plan.data_schema, 60)
        book = Ledger(tmp_path / "l.db").open_dataset("d", epsilon_limit=99.0, delta=1e-5)

        def stop(done, total):
            raise CutOff

        with catch_warnings(action="error"):
            with pytest.raises(CutOff):
                release(*data, plan, out=tmp_path / "r", progress=stop)
            release(*data, plan, out=tmp_path / "r", resume=True)
            release(*data, plan, out=tmp_path / "s", ledger=book.path, dataset_id="d")

    def test_a_run_that_is_kept_counts_whatever_error_it_ended_in(self, tmp_path, plan):
        data = make_data(plan.data_schema, 60)

        def spoil(done, total):
            (tmp_path / ".r.run" / "release" / "extra.txt").write_text("x")

        with pytest.raises(InvalidInputError, match=r"extra\.txt"):
            release(*data, plan, out=tmp_path / "r", progress=spoil)
        with pytest.warns(UnrecordedSpendingWarning, match="all 2 times"):
            release(*data, plan, out=tmp_path / "s")


@pytest.mark.parametrize("library", ["numpy", "pyarrow"])
def test_other_versions_of_what_the_bits_depend_on(tmp_path, plan, library):
    data = make_data(plan.data_schema, 60)
    path = cut_off(tmp_path, plan, data) / "journal.json"
    entry = journal.Journal.from_json(path.read_bytes())
    libraries = entry.libraries | {library: "1.0"}
    path.write_text(entry.model_copy(update={"libraries": libraries}).model_dump_json())
    with pytest.raises(InvalidInputError, match=f"{library} 1.0, with which it was begun"):
        release(*data, plan, out=tmp_path / "r", test_seed=1, resume=True)


class TestFoldersOfOthers:
    """A run folder that another user has prepared, or that others can see into."""

    def refuse(self, tmp_path, plan, words: str, resume: bool = False) -> None:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(InvalidInputError, match=words):
            release(*make_data(plan.data_schema, 60), plan, out=tmp_path / "r", resume=resume)
        assert [p for p in sorted(tmp_path.rglob("*")) if p.name != "lock"] == [
            p for p in before if p.name != "lock"
        ]

    def test_a_link(self, tmp_path, plan):
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / ".r.run").symlink_to(tmp_path / "elsewhere")
        self.refuse(tmp_path, plan, "a folder of your own.*a symbolic link")

    def test_a_file(self, tmp_path, plan):
        (tmp_path / ".r.run").write_text("")
        self.refuse(tmp_path, plan, "a folder of your own.*a file")

    @pytest.mark.parametrize("mode", [0o777, 0o750, 0o701])
    def test_an_open_folder(self, tmp_path, plan, mode):
        (tmp_path / ".r.run").mkdir()
        (tmp_path / ".r.run").chmod(mode)
        self.refuse(tmp_path, plan, f"mode 700.*mode {mode:03o}, which lets others in")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give files away")
    def test_another_users_folder(self, tmp_path, plan):
        (tmp_path / ".r.run").mkdir(mode=0o700)
        os.chown(tmp_path / ".r.run", 65534, 65534)
        self.refuse(tmp_path, plan, "a folder of your own.*another user's")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give files away")
    def test_another_users_file(self, tmp_path, plan):
        folder = cut_off(tmp_path, plan, make_data(plan.data_schema, 60))
        os.chown(folder / "journal.json", 65534, 65534)
        self.refuse(tmp_path, plan, "journal.json, another user's", resume=True)

    @pytest.mark.parametrize("name", ["journal.json", "finished.json", "release", "release/data"])
    def test_links_inside(self, tmp_path, plan, name):
        path = cut_off(tmp_path, plan, make_data(plan.data_schema, 60)) / name
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
        self.refuse(tmp_path, plan, f"{path.name}, a link", resume=True)

    @pytest.mark.parametrize("name", ["lock", "journal.doomed"])
    def test_links_that_would_be_written_through(self, tmp_path, plan, name):
        outside = tmp_path / "outside"
        outside.write_text("precious")
        folder = tmp_path / ".r.run"
        folder.mkdir(mode=0o700)
        (folder / name).symlink_to(outside)
        self.refuse(tmp_path, plan, "a link|writable folder")
        assert outside.read_text() == "precious"


def test_nothing_to_resume(tmp_path, plan):
    with pytest.raises(
        InvalidInputError, match="nothing to resume; expected a run that was cut off"
    ):
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
    honest, calls = parts.write_part, 0

    def full(*arguments):
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(28, "No space left on device")
        honest(*arguments)

    monkeypatch.setattr(parts, "write_part", full)
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

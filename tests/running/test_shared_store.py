"""A store that parts are written to: claimed by one run, read back, completed last."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from builders import make_data, make_plan, make_schema
from privmix import InvalidInputError, Release, cli, engine, release, verify
from privmix.publishing import folder as store
from privmix.publishing.certificate import Certificate
from privmix.rng import guessable_secret
from privmix.running.ledger import Ledger
from privmix.running.shared_store import CLAIM_NAME, Folder, Objects, SharedStore, store_location
from privmix.sampling import row_blocks

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def plan(monkeypatch):
    """Three parts of a few blocks."""
    monkeypatch.setattr(store, "_PART_BYTES", 8000)
    made = make_plan(make_schema(num_features=40), "poisson", 5.0, mix_size=60, num_mixtures=100)
    blocks = property(lambda config: row_blocks(config.num_mixtures, 16, config.rows_per_class))
    monkeypatch.setattr(type(made.mechanism), "blocks", blocks)
    return made


@pytest.fixture(autouse=True)
def one_certificate(monkeypatch):
    """Account for each plan once, however many releases a test makes."""
    known: dict[bytes, Certificate] = {}
    honest = Certificate.for_plan

    def for_plan(plan, **facts):
        if plan.digest() not in known:
            known[plan.digest()] = honest(plan, **facts)
        return known[plan.digest()].model_copy(update=facts)

    monkeypatch.setattr(Certificate, "for_plan", for_plan)
    monkeypatch.setattr(engine, "recheck_plan", lambda plan: None)


@pytest.fixture(params=["folder", "memory://"])
def place(request, tmp_path):
    """Where the parts go; empty."""
    if request.param == "folder":
        yield str(tmp_path / "store")
        return
    yield f"memory://{tmp_path.name}/release"
    fsspec.filesystem("memory").rm("/", recursive=True)


def test_a_folder_by_its_url(tmp_path):
    assert store_location(f"file://{tmp_path}/s") == store_location(tmp_path / "s")
    assert store_location("s") == str(Path("s").absolute())


def files_at(place: str) -> dict[str, bytes]:
    location = store_location(place)
    files = (Objects if "://" in location else Folder)(location)
    return {name: files.get(name) for name in files.names()}


def tree(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


class CutOff(BaseException):
    """Stands for the end of the process."""


def test_the_store_holds_the_release_and_out_all_but_the_parts(tmp_path, plan, place):
    data = make_data(plan.data_schema, 60)
    whole = release(*data, plan, out=tmp_path / "whole", test_seed=1)
    counts = []
    made = release(
        *data,
        plan,
        out=tmp_path / "r",
        store=place,
        test_seed=1,
        progress=lambda done, total: counts.append((done, total)),
    )
    assert files_at(place) == tree(whole.folder)
    assert made.certificate_digest == whole.certificate_digest
    kept = {n: c for n, c in tree(whole.folder).items() if not n.startswith("data/")}
    assert tree(made.folder) == kept
    assert counts == [(48, 100), (96, 100), (100, 100)]
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []
    assert not verify(made.folder).valid  # what is elsewhere is not taken for granted
    if "memory" not in place:
        folder = tmp_path / "store"
        assert Release(folder).features.shape == (100, 40)
        mtimes = {path.stat().st_mtime for path in [*folder.rglob("*"), folder]}
        assert mtimes == {946684800.0}


def test_resuming_at_every_point_gives_the_same_bits(tmp_path, plan, place):
    """Cut off before each change to a file, here or in the store."""
    data = make_data(plan.data_schema, 60)
    whole = tree(release(*data, plan, out=tmp_path / "whole", test_seed=1).folder)
    kind = Objects if "memory" in place else Folder
    for limit in range(10_000):
        out = tmp_path / f"cut{limit}" / "r"
        out.parent.mkdir()
        at = f"{place}{limit}"
        calls = 0

        def counted(real):
            def call(*arguments, **named):
                nonlocal calls
                if str(arguments[0]).startswith(str(tmp_path)) or isinstance(arguments[0], kind):
                    calls += 1
                    if calls > limit:  # noqa: B023 - called within the loop
                        raise CutOff
                return real(*arguments, **named)

            return call

        options = {"store": at, "test_seed": 1, "threads": 1}
        try:
            with pytest.MonkeyPatch.context() as patch:
                for name in ("rename", "unlink", "mkdir", "open"):
                    patch.setattr(os, name, counted(getattr(os, name)))
                for name in ("put", "remove"):
                    patch.setattr(Objects, name, counted(getattr(Objects, name)))
                release(*data, plan, out=out, **options)
        except CutOff:
            pass
        else:
            break
        run = out.parent / ".r.run"
        assert ("certificate.json" in files_at(at)) <= (not (run / "journal.json").exists())
        if not out.exists():
            resume = (run / "journal.json").exists() or (run / "release").exists()
            release(*data, plan, out=out, resume=resume, **options)
        assert files_at(at) == whole
    assert limit > 20


@pytest.fixture
def begun(tmp_path, plan, place) -> tuple:
    """A run that was cut off after two parts."""
    data = make_data(plan.data_schema, 60)

    def stop(done, total):
        if done > 90:
            raise CutOff

    arguments = (*data, plan)
    with pytest.raises(CutOff):
        release(*arguments, out=tmp_path / "r", store=place, test_seed=1, progress=stop)
    assert len(files_at(place)) == 3
    return arguments, {"out": tmp_path / "r", "store": place, "test_seed": 1, "resume": True}


def put(place: str, name: str, content: bytes) -> None:
    location = store_location(place)
    (Objects if "://" in location else Folder)(location).put(name, content)


def test_parts_that_were_changed_are_made_again(tmp_path, begun, place):
    """A part counts by its digest: what is shorter, or another's, is found before anything is sealed."""
    arguments, options = begun
    name = "data/part-00001.parquet"
    content = files_at(place)[name]
    put(place, name, content[:-5])
    with pytest.raises(InvalidInputError, match="resume .*made again|others again") as error:
        release(*arguments, **options)
    assert name in str(error.value)
    assert not list(tmp_path.rglob("certificate.json"))
    release(*arguments, **options)
    assert files_at(place)[name] == content


def test_a_part_made_again_with_other_bits_is_refused(tmp_path, plan, place):
    """As of parts in the folder: rows of two versions under one noise do not make one release."""
    data = make_data(plan.data_schema, 60)

    def stop(done, total):
        if done > 90:
            raise CutOff

    with pytest.raises(CutOff):
        release(*data, plan, out=tmp_path / "r", store=place, test_seed=1, progress=stop)
    options = {"out": tmp_path / "r", "store": place, "resume": True}
    put(place, "data/part-00001.parquet", b"damaged")
    with pytest.raises(InvalidInputError, match="others again"):
        release(*data, plan, **options, test_seed=1)
    path = tmp_path / ".r.run" / "journal.json"  # another machine rounds otherwise, as it were
    path.write_text(path.read_text().replace(guessable_secret(1).hex(), "ab" * 32))
    with pytest.raises(InvalidInputError, match=r"part-00001.parquet: .*when it was made first"):
        release(*data, plan, **options)
    assert not (tmp_path / "r").exists()


def test_a_part_that_nobody_vouched_for_is_made_again(begun, place):
    """What a killed worker left under a part's name, or beside it, is no part."""
    arguments, options = begun
    put(place, "data/part-00002.parquet", b"half of a fi")
    put(place, "data/part-00002.parquet.0123.tmp", b"half of a fi")
    made = release(*arguments, **options)
    found = files_at(place)
    for name, digest in made.certificate.files.items():
        assert hashlib.sha256(found.pop(name)).hexdigest() == digest
    assert list(found) == ["certificate.json"]


@pytest.mark.parametrize("name", ["data/part-00003.parquet", "notes.txt"])
def test_files_of_others_are_refused(begun, place, name):
    arguments, options = begun
    put(place, name, b"what is this?")
    with pytest.raises(InvalidInputError, match=f"files of this run alone, got {name}"):
        release(*arguments, **options)


def test_a_run_belongs_to_its_store(tmp_path, begun, place):
    arguments, options = begun
    for other in (None, str(tmp_path / "other")):
        with pytest.raises(InvalidInputError, match="as it was begun"):
            release(*arguments, **options | {"store": other})
    put(place, CLAIM_NAME, b"another run")
    with pytest.raises(InvalidInputError, match="an empty store, or that of the run to resume"):
        release(*arguments, **options)


def test_no_key_is_in_the_state_of_the_parts(tmp_path, begun):
    run = tmp_path / ".r.run"
    secret = json.loads((run / "journal.json").read_text())["secret"]
    assert secret
    assert secret not in (run / "parts.json").read_text()


class TestRefusals:
    """Before anything is charged, and leaving nothing behind."""

    def refuse(self, tmp_path, plan, words, **options) -> None:
        book = Ledger(tmp_path / "l.db").open_dataset("d", epsilon_limit=9.0, delta=1e-6)
        named = {"ledger": book.path, "dataset_id": "d"}
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(InvalidInputError, match=words):
            release(*make_data(plan.data_schema, 60), plan, out=tmp_path / "r", **named | options)
        assert book.balance("d").charges == ()
        assert sorted(tmp_path.rglob("*")) == before

    @pytest.mark.parametrize(
        ("place", "words"),
        [
            ("sftp://host/release", "a folder, or an object store"),
            ("s3://key:word@bucket/release", "a URL without a password"),
            ("none/store", "a path in an existing folder"),
        ],
    )
    def test_no_store(self, tmp_path, plan, place, words):
        self.refuse(tmp_path, plan, words, store=place)

    def test_a_store_with_something_in_it(self, tmp_path, plan):
        (tmp_path / "store").mkdir()
        (tmp_path / "store" / "old.txt").write_text("mine")
        self.refuse(tmp_path, plan, "old.txt and others", store=tmp_path / "store")

    def test_a_store_within_the_release(self, tmp_path, plan):
        (tmp_path / "r").mkdir()
        self.refuse(tmp_path, plan, "outside the release", store=tmp_path / "r" / "store")

    def test_a_store_that_fails(self, tmp_path, plan, monkeypatch):
        def full(self, name, content):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Objects, "put", full)
        self.refuse(tmp_path, plan, "read and written.*No space", store="memory://full")

    def test_a_library_that_is_not_installed(self, tmp_path, plan, monkeypatch):
        def missing(name):
            raise ImportError("Install s3fs to access S3")

        monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
        self.refuse(tmp_path, plan, "pip install.*Install s3fs", store="s3://bucket/release")

    def test_a_charge_that_is_refused_leaves_the_store_empty(self, tmp_path, plan, place):
        book = Ledger(tmp_path / "l.db").open_dataset("d", epsilon_limit=1e-3, delta=1e-6)
        arguments = (*make_data(plan.data_schema, 60), plan)
        options = {"out": tmp_path / "r", "store": place}
        with pytest.raises(InvalidInputError, match="is spent"):
            release(*arguments, **options, ledger=book.path, dataset_id="d")
        assert files_at(place) == {}
        release(*arguments, **options)


def test_a_place_of_that_name_elsewhere(tmp_path):
    """What a worker says that does not see the holder's folder, or may not write there."""
    here = SharedStore(Folder(str(tmp_path / "store")), "token")
    assert "another store" in str(here.problem())
    here.claim()
    assert here.problem() is None
    assert "another run's" in str(here._replace(token="other").problem())
    assert here.files.names() == [CLAIM_NAME]


def test_the_command(tmp_path, plan, monkeypatch, capsys):
    import numpy as np

    x, y = make_data(plan.data_schema, 60)
    np.savez(tmp_path / "train.npz", x=x, y=y)
    (tmp_path / "plan.json").write_text(plan.to_json())
    words = ["release", tmp_path / "train.npz", "--features-key", "x", "--label-key", "y"]
    words += ["--plan", tmp_path / "plan.json", "--out", tmp_path / "r"]
    words += ["--store", tmp_path / "store"]
    monkeypatch.setattr("sys.argv", ["privmix", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    told = capsys.readouterr()
    assert f"privmix verify {tmp_path / 'store'} --expect-digest" in told.out
    assert verify(tmp_path / "store").valid

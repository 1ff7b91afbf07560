"""Folders of strangers: links, pipes, devices, claims that their files do not bear out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders import make_data, make_plan, make_schema
from privmix import InvalidInputError, NoiseAwareClassifier, Release, plan_release, release, verify
from privmix.foreign.files import ForeignFolder, read_file
from privmix.learners import load_model, save_model
from privmix.publishing.certificate import Certificate
from privmix.publishing.folder import file_digests, write_part
from privmix.publishing.grid import PublishedGrid
from privmix.publishing.release import Parts
from tampering import reasons, rehash, rewrite

PART = "data/part-00000.parquet"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory, poisson_plan, stratified_plan):
    folder = tmp_path_factory.mktemp("sealed")
    schema = make_schema(num_features=4)
    hybrid = make_plan(schema, "hybrid", num_mixtures=50, mix_size=6)
    signed = make_plan(schema, "signed", num_mixtures=50, mix_size=6)
    for plan in (poisson_plan, stratified_plan, hybrid, signed):
        release(*make_data(plan.data_schema, 60), plan, out=folder / plan.design)
    return folder


@pytest.fixture
def folder(sealed, tmp_path):
    shutil.copytree(sealed / "poisson", tmp_path / "r")
    return tmp_path / "r"


@pytest.fixture
def hybrid(sealed, tmp_path):
    shutil.copytree(sealed / "hybrid", tmp_path / "h")
    return tmp_path / "h"


def replace_by(kind: str, path: Path, elsewhere: Path) -> None:
    """Put something else where a file is."""
    if kind == "link":
        shutil.move(path, elsewhere)
        path.symlink_to(elsewhere)
        return
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()


class TestNothingButRegularFiles:
    SCRIPT = """
import resource, signal, sys
import privmix
from privmix import InvalidInputError
limit = 6 << 30
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for folder in sys.argv[1:]:
    signal.alarm(30)  # which ends the process
    try:
        outcome = privmix.verify(folder)
        assert not outcome.valid and outcome.reasons, folder
        print(folder, "reasons:", *outcome.reasons)
    except InvalidInputError as error:
        print(folder, "refused:", error)
    try:
        privmix.NoiseAwareClassifier().fit(folder)
    except InvalidInputError as error:
        pass
    else:
        assert "README" in folder, f"learnt from {folder}"
"""

    def test_in_place_of_a_file(self, sealed, tmp_path):
        """All in a process of its own, which a pipe would stop for ever."""
        names = ("README.md", PART, "certificate.json")
        folders = {}
        for kind in ("link", "pipe", "device", "folder"):
            for name in names:
                last = name.rpartition("/")[2]
                copy = tmp_path / f"{kind}-{last}"
                shutil.copytree(sealed / "poisson", copy)
                folders[str(copy)] = last
                path = copy / "certificate.json"
                document = json.loads(path.read_text())
                if name != "certificate.json":
                    # The words that once stood for a digest are no digest.
                    document["files"][name] = "no regular file"
                    path.write_text(json.dumps(document, indent=2) + "\n")
                replace_by(kind, copy / name, tmp_path / f"elsewhere-{kind}-{last}")
        done = subprocess.run(
            [sys.executable, "-c", self.SCRIPT, *folders],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout
        lines = done.stdout.splitlines()
        assert len(lines) == len(folders)
        for line, (folder, name) in zip(lines, folders.items(), strict=True):
            assert line.startswith(folder)
            assert name in line.removeprefix(folder)

    def test_a_linked_folder_of_parts(self, folder, tmp_path):
        shutil.move(folder / "data", tmp_path / "elsewhere")
        (folder / "data").symlink_to(tmp_path / "elsewhere")
        assert "data: no regular file" in reasons(folder)
        with pytest.raises(InvalidInputError):
            NoiseAwareClassifier().fit(folder)

    def test_a_folder_may_itself_be_named_by_a_link(self, folder, tmp_path):
        (tmp_path / "link").symlink_to(folder)
        assert verify(tmp_path / "link").valid

    def test_a_file_that_changes_while_it_is_open(self, folder):
        opened = Release(folder)
        assert len(opened.features) == 40
        with (folder / PART).open("r+b") as file:
            file.seek(40)
            file.write(b"\0\0")
        os.utime(folder / PART, (0, 0))
        assert opened.files.changed() == [PART]
        with pytest.raises(InvalidInputError, match="opened first"):
            list(opened.iter_rows())

    def test_files_are_read_up_to_their_size(self, tmp_path):
        (tmp_path / "f").write_bytes(b"x" * 100)
        with pytest.raises(InvalidInputError, match="at most 99 bytes, got 100"):
            ForeignFolder(tmp_path).read("f", 99)
        with pytest.raises(InvalidInputError, match="at most 99 bytes, got 100"):
            read_file(tmp_path / "f", 99)
        assert ForeignFolder(tmp_path).read("f", 100) == b"x" * 100
        if Path("/proc/self/mem").exists():  # of a kernel: no size, and no end
            with pytest.raises(InvalidInputError):
                ForeignFolder("/proc/self").read("smaps", 1 << 20)
            with pytest.raises(InvalidInputError):
                ForeignFolder("/proc/self").digest("smaps")

    def test_names_that_are_none(self, folder):
        opened = ForeignFolder(folder)
        for name in ("..", "../r/README.md", "data", "a\0b", "", "data/../README.md", "x" * 300):
            with pytest.raises(InvalidInputError):
                opened.read(name, 100)

    @pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
    def test_in_place_of_a_model_file(self, folder, tmp_path, kind):
        path = tmp_path / "m.safetensors"
        save_model(NoiseAwareClassifier().fit(folder), path)
        replace_by(kind, path, tmp_path / "elsewhere")
        with pytest.raises(InvalidInputError, match="existing model file"):
            load_model(path)


class TestClaims:
    """What a certificate says of sizes is held against its files before anything is spent on it."""

    def test_more_rows_than_there_are(self, folder):
        path = folder / "certificate.json"
        document = json.loads(path.read_text())
        document["mechanism"]["num_mixtures"] = 10**8
        path.write_text(json.dumps(document, indent=2) + "\n")
        found = reasons(folder)
        assert f"at least {4 * 8 * 10**8} bytes" in found
        assert "event.count" not in found  # it was not accounted for
        with pytest.raises(InvalidInputError, match="bytes, which the certificate's rows take"):
            NoiseAwareClassifier().fit(folder)

    def test_wider_rows_than_there_are(self, folder):
        path = folder / "certificate.json"
        document = json.loads(path.read_text())
        for part in ("mechanism", "schema"):
            document[part]["num_features"] = 1_000_000
        path.write_text(json.dumps(document, indent=2) + "\n")
        with pytest.raises(InvalidInputError, match="bytes, which the certificate's rows take"):
            NoiseAwareClassifier().fit(folder)
        assert "bytes, which the certificate's rows take" in reasons(folder)

    def test_a_part_that_unpacks_to_more(self, folder):

        part = folder / PART
        kind = pq.read_schema(part)
        width, classes = (field.type.list_size for field in kind)
        rows = 4_000_000
        columns = [
            pa.FixedSizeListArray.from_arrays(
                pa.array(np.zeros(rows * size, np.float32)), type=field.type
            )
            for size, field in zip((width, classes), kind, strict=True)
        ]
        pq.write_table(pa.Table.from_arrays(columns, schema=kind), part, compression="zstd")
        rehash(folder)
        assert "bytes, where the certificate implies" in reasons(folder)
        with pytest.raises(InvalidInputError, match="a part of"):
            list(Release(folder).iter_rows())

    def test_a_certificate_of_hundreds_of_megabytes(self, folder):
        with (folder / "certificate.json").open("r+b") as file:
            file.truncate(400 << 20)
        assert "at most 16777216 bytes, got 419430400" in reasons(folder)

    @pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"epsilon": 1e999}'])
    def test_a_certificate_that_goes_deep(self, folder, text):
        (folder / "certificate.json").write_text(text)
        assert "not a certificate" in reasons(folder)

    @pytest.mark.parametrize(
        "number", ["1" + "0" * 400, "9" * 5000, "-1", "1e400", "9223372036854775808"]
    )
    def test_numbers_beyond_all_bounds(self, folder, number):
        path = folder / "certificate.json"
        text = path.read_text().replace('"num_records": 60', f'"num_records": {number}')
        path.write_text(text)
        assert "not a certificate" in reasons(folder)


class TestBytesOfParts:
    """A part is what the plan's writer makes of its rows, byte by byte."""

    def part_problem(self, folder) -> str:
        rehash(folder)
        found = reasons(folder)
        assert found
        with pytest.raises(InvalidInputError):  # a learner sees the same
            for table in Release(folder).tables:
                list(table.iter_rows())
        return found

    def test_text_before_the_footer(self, folder):
        part = folder / PART
        content = part.read_bytes()
        start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        for text in (b"x", b"records: 59. " * 100):
            part.write_bytes(content[:start] + text + content[start:])
            assert "between the pages and the footer" in self.part_problem(folder)
            part.write_bytes(content[:4] + text + content[4:])
            self.part_problem(folder)
            part.write_bytes(content[:-8] + text + content[-8:])
            self.part_problem(folder)

    def test_metadata_of_a_field_and_of_the_file(self, folder):

        part = folder / PART
        table = pq.read_table(part)
        options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
        field = table.schema.field(0).with_metadata({"records": "59"})
        for changed in (
            table.replace_schema_metadata({"records": "59"}),
            pa.Table.from_arrays(table.columns, schema=table.schema.set(0, field)),
        ):
            pq.write_table(changed, part, **options)
            assert "other columns" in self.part_problem(folder)

    @pytest.mark.parametrize(
        "options", [{"compression": "snappy"}, {"use_dictionary": True}, {"write_statistics": True},
                    {"data_page_version": "2.0"}, {"write_page_index": True}, {"row_group_size": 3},
                    {"use_byte_stream_split": True}, {"write_page_checksum": True}]
    )  # fmt: skip
    def test_another_way_to_write_it(self, folder, options):

        part = folder / PART
        plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
        pq.write_table(pq.read_table(part), part, **(plain | options))
        self.part_problem(folder)

    def test_labels_where_the_design_has_none(self, hybrid):

        part = hybrid / PART
        table = pq.read_table(part)
        labels = pa.array(np.arange(table.num_rows) % 3, pa.int64())
        options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
        groups = [pq.ParquetFile(part).metadata.row_group(i).num_rows for i in range(4)]
        changed = table.set_column(2, table.schema.field(2), labels)
        with pq.ParquetWriter(part, table.schema, **options) as writer:
            start = 0
            for rows in groups:
                writer.write_table(changed.slice(start, rows))
                start += rows
        assert "nulls, or vectors of another length" in self.part_problem(hybrid)

    def test_rows_of_two_tables_that_change_places(self, hybrid):
        def swap(part):
            opened = Release(hybrid)
            pieces = [(1 - table, rows) for table, rows in part]
            write_part(hybrid / PART, opened.certificate.mechanism, pieces)

        opened = Release(hybrid)
        swap([(n, rows) for n, table in enumerate(opened.tables) for rows in table.iter_rows()])
        self.part_problem(hybrid)

    def test_every_flipped_byte_outside_the_numbers(self, folder):
        """A part with one byte changed is refused, or the change is in a published number."""
        part, opened = folder / PART, Release(folder)
        before = opened.features.copy(), opened.label_weights.copy()
        content = part.read_bytes()
        silent = 0
        for place in range(len(content)):
            changed = bytearray(content)
            changed[place] ^= 1 << place % 8
            part.write_bytes(bytes(changed))
            parts = Parts(ForeignFolder(folder), opened.certificate.mechanism)
            try:
                read = pa.concat_tables(table for _, table in parts.read(0))
            except InvalidInputError:
                continue
            after = [read.column(i).combine_chunks().flatten().to_numpy() for i in range(2)]
            silent += all(np.array_equal(a.ravel(), b) for a, b in zip(before, after, strict=True))
        # The digits of the version of pyarrow in the footer, and the kinds of integers.
        assert silent < 40


class TestNumbers:
    @pytest.mark.parametrize("design", ["poisson", "signed"])
    def test_label_weights_times_a_thousand(self, sealed, tmp_path, design):
        def times(values, grid):
            integers = np.rint(values.astype(float) * grid.divisor) * 1000
            return (integers / grid.divisor).astype(np.float32)

        shutil.copytree(sealed / design, tmp_path / "r")
        opened = Release(tmp_path / "r")
        grid = PublishedGrid.of(opened.config, opened.schema, "label", 1e-6)
        rewrite(
            tmp_path / "r",
            lambda rows: rows._replace(label_weights=times(rows.label_weights, grid)),
        )
        assert "larger than records and noise make them" in reasons(tmp_path / "r")

    @pytest.mark.parametrize("part", ["features", "label_weights"])
    def test_off_the_grid(self, folder, part):
        rewrite(
            folder,
            lambda rows: rows._replace(**{part: np.nextafter(getattr(rows, part), np.float32(9))}),
        )
        assert "not on the grid" in reasons(folder)

    def test_a_zero_with_a_sign(self, folder):
        def change(rows):
            features = rows.features.copy()
            features[0, 0] = -0.0
            return rows._replace(features=features)

        rewrite(folder, change)
        assert "not on the grid" in reasons(folder)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_no_numbers(self, folder, value):
        def change(rows):
            features = rows.features.copy()
            features[0, 0] = value
            return rows._replace(features=features)

        rewrite(folder, change)
        assert "finite" in reasons(folder)
        with pytest.raises(InvalidInputError, match="finite"):
            NoiseAwareClassifier().fit(folder)

    def test_all_that_a_release_publishes_is_on_its_grid(self, tmp_path):
        """Widths of noise from below one step to far beyond float32's places."""
        for number, noise in enumerate((1e-3, 1.0, 1e6)):
            schema = make_schema(num_features=3)
            plan = make_plan(schema, "poisson", noise, num_mixtures=64, mix_size=7)
            release(*make_data(schema, 60), plan, out=tmp_path / str(number))
            found = reasons(tmp_path / str(number))
            assert "grid" not in found, noise
            assert "larger" not in found, noise


def test_parts_written_by_other_versions_of_pyarrow_are_sound(poisson_plan, tmp_path):
    """Bytes of pyarrow 17, 19 and 22; see ``parts/README.md``."""
    folder = Path(__file__).parent / "parts"
    schema = make_schema(num_features=5, num_records=60)
    plan = plan_release(
        schema,
        target_epsilon=2.0,
        target_delta=1e-5,
        design="poisson",
        mix_size=6,
        num_mixtures=40,
        preprocessing=(),
    )
    assert plan.mechanism == poisson_plan.mechanism
    parts = sorted(folder.glob("*.parquet"))
    assert len(parts) == 3
    out = tmp_path / "r"
    release(*make_data(schema, 60), plan, out=out)
    for part in parts:
        shutil.copy(part, out / PART)
        rehash(out)
        assert reasons(out) == ""
        assert len(Release(out).features) == 40


def test_files_beside_a_model_are_refused(tmp_path, folder):
    path = tmp_path / "m.safetensors"
    save_model(NoiseAwareClassifier().fit(folder), path)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["coef"]["dtype"] = "BF16"
    text = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    with pytest.raises(InvalidInputError, match="a tensor of F64.*got BF16"):
        load_model(path)
    header["coef"] |= {"dtype": "F64", "shape": [10**15, 10**15]}
    text = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    with pytest.raises(InvalidInputError, match="a tensor that the file holds"):
        load_model(path)


def test_a_plan_whose_certificate_nobody_would_read_is_refused(tmp_path, monkeypatch, poisson_plan):
    from privmix import engine

    monkeypatch.setattr(engine, "MOST_JSON_BYTES", 1000)
    with pytest.raises(InvalidInputError, match="whose certificate has at most 1000 bytes"):
        release(*make_data(poisson_plan.data_schema, 60), poisson_plan, out=tmp_path / "r")
    assert list(tmp_path.iterdir()) == []


def test_reasons_end(folder):
    path = folder / "certificate.json"
    document = json.loads(path.read_text())
    document["files"] |= {f"data/{'x' * 5000}{number}": "0" for number in range(300)}
    path.write_text(json.dumps(document, indent=2) + "\n")
    outcome = verify(folder)
    assert len(outcome.reasons) == 201
    assert max(map(len, outcome.reasons)) < 2100


def test_digits_of_other_scripts_name_no_part(folder):
    from privmix.publishing.folder import is_part_name

    assert is_part_name("data/part-00000.parquet")
    assert not is_part_name("data/part-٠٠٠٠٠.parquet")
    assert not is_part_name("data/part-00000.parquet\n")


def test_a_certificate_enters_digests_of_regular_files_only(folder, tmp_path):
    os.mkfifo(folder / "pipe")
    with pytest.raises(InvalidInputError, match="regular file"):
        file_digests(folder)
    assert isinstance(Release(folder).certificate, Certificate)

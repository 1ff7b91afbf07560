from __future__ import annotations

import hashlib
import stat
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from builders import fed_pipe
from extractors import make_images
from privmix import InvalidInputError
from privmix.features import extraction as extraction_module
from privmix.features import make_extractor
from privmix.features.base import BaseExtractor, make_identity
from privmix.features.extraction import extract, parts_folder, transform_records
from privmix.inputs.extractor import FeaturesHeader
from privmix.inputs.raw import open_records
from privmix.inputs.readers import read_labelled
from privmix.running.finished import DamagedFileWarning


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(extraction_module, "PART_RECORDS", 4)


@dataclass(frozen=True, eq=False)
class Counting(BaseExtractor):
    """Grey level of an image; dies after so many records."""

    calls: list
    dies_after: int = 1 << 30
    name = "counting"
    kind = "image"
    num_features = 2

    @property
    def identity(self):
        return make_identity(self.name, {})

    def _features(self, records):
        if sum(self.calls) + len(records) > self.dies_after:
            raise KeyboardInterrupt
        self.calls.append(len(records))
        return np.array([[r.mean() / 255, r.std() / 255] for r in records], dtype=np.float32)


def source(count: int = 10, bad: tuple[int, ...] = (), policy: str = "error", seed: int = 0):
    images = make_images(count, (4, 4), seed=seed)
    for i in bad:
        images[i] = "no image"
    return open_records(
        images,
        kind="image",
        labels=list(range(count)),
        on_bad_record=policy,
        max_bad_share=1.0,
    )


def digest(path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_file_holds_features_labels_and_identity(tmp_path):
    extractor, out = make_extractor("pixels", size=4), tmp_path / "features.parquet"
    seen = []
    counts = extract(source(), extractor, out, label="kind", progress=lambda *n: seen.append(n))
    assert counts == (10, 0)
    assert seen == [(0, 10), (4, 10), (4, 10), (8, 10), (8, 10), (10, 10)]
    data = read_labelled(out, label="kind")
    np.testing.assert_array_equal(data.features, extractor.transform(make_images(10, (4, 4))))
    assert data.labels.tolist() == list(range(10))
    assert FeaturesHeader.of_file(out) == FeaturesHeader(extractor=extractor.identity)
    assert pq.read_metadata(out).num_row_groups == 3
    assert not parts_folder(out).exists()
    assert [path.name for path in tmp_path.iterdir()] == ["features.parquet"]
    features, labels = transform_records(source(), extractor)
    np.testing.assert_array_equal(features, data.features)
    assert labels.tolist() == list(range(10))


@pytest.mark.parametrize("dies_after", [0, 3, 4, 9])
def test_a_run_that_was_cut_off_goes_on_to_the_same_bytes(tmp_path, dies_after):
    whole, out = tmp_path / "whole.parquet", tmp_path / "features.parquet"
    extract(source(), Counting([]), whole)
    with pytest.raises(KeyboardInterrupt) as stop:
        extract(source(), Counting([], dies_after), out)
    assert not out.exists()
    notes = getattr(stop.value, "__notes__", [])
    if dies_after < 4:  # before the first part
        assert not parts_folder(out).exists() and not notes
    else:
        assert stat.S_IMODE(parts_folder(out).stat().st_mode) == 0o700
        assert f"kept in {parts_folder(out)}, and extracting to the same file goes on" in notes[0]
    extractor = Counting([])
    extract(source(), extractor, out)
    assert sum(extractor.calls) == 10 - dies_after // 4 * 4
    assert digest(out) == digest(whole)
    assert not parts_folder(out).exists()


def test_parts_of_other_records_are_made_again(tmp_path):
    out = tmp_path / "features.parquet"
    extract(source(), Counting([]), out, keep_parts=True)
    again = Counting([])
    extract(source(), again, out, keep_parts=True)
    assert again.calls == []
    # A damaged part, and another input, of which the file must hold nothing old.
    part = parts_folder(out) / "00000001"
    whole = part.read_bytes()
    flipped = bytearray(whole)
    flipped[-3] ^= 1
    for damaged in (whole[:-1], b"", bytes(flipped)):
        again.calls.clear()
        part.write_bytes(damaged)
        with pytest.warns(DamagedFileWarning, match="00000001 was damaged"):
            extract(source(), again, out, keep_parts=True)
        assert sum(again.calls) == 4
        assert part.read_bytes() == whole
    other = tmp_path / "other.parquet"
    extract(source(seed=1), Counting([]), other)
    extract(source(seed=1), again, out)
    assert digest(out) == digest(other)


@pytest.mark.parametrize("library", ["pillow", "transformers", "tokenizers", "kymatio", "timm"])
def test_parts_of_other_libraries_are_made_again(tmp_path, monkeypatch, library):
    out, again = tmp_path / "f.parquet", []
    extract(source(), Counting([]), out, keep_parts=True)
    extract(source(), Counting(again), out, keep_parts=True)
    assert not again
    known = extraction_module.version
    monkeypatch.setattr(
        extraction_module, "version", lambda name: "99" if name == library else known(name)
    )
    extract(source(), Counting(again), out, keep_parts=True)
    assert again


def test_one_record_less_leaves_the_others_bits(tmp_path):
    images = make_images(9, (4, 4))
    for name, kept in (("all", images), ("less", images[:3] + images[4:])):
        records = open_records(kept, kind="image")
        extract(records, make_extractor("pixels", size=4), tmp_path / f"{name}.parquet")
    tables = [pq.read_table(tmp_path / f"{n}.parquet")["features"] for n in ("all", "less")]
    rows = [table.to_pylist() for table in tables]
    assert rows[0][:3] + rows[0][4:] == rows[1]


def test_a_bad_record_stops_or_is_blanked(tmp_path):
    out = tmp_path / "features.parquet"
    with pytest.raises(ValueError, match=r"images\[7\].*--on-bad-record zero"):
        extract(source(bad=(7,)), Counting([]), out)
    assert not out.exists()
    counts = extract(source(bad=(1, 7), policy="zero"), Counting([]), out)
    assert counts == (10, 2)
    table = pq.read_table(out)
    assert table["label"].to_pylist() == [0, None, 2, 3, 4, 5, 6, None, 8, 9]
    clean = tmp_path / "clean.parquet"
    extract(source(), Counting([]), clean)
    found, due = (np.stack(pq.read_table(p)["features"].to_numpy()) for p in (out, clean))
    due[[1, 7]] = 0
    np.testing.assert_array_equal(found, due)


def test_what_cannot_be_extracted_is_refused(tmp_path):
    extractor = make_extractor("pixels", size=4)
    for place, allowed in (("a.csv", "a .parquet file"), ("no/a.parquet", "existing folder")):
        with pytest.raises(ValueError, match=allowed):
            extract(source(), extractor, tmp_path / place)
    with pytest.raises(ValueError, match="records of kind vector"):
        extract(source(), make_extractor("identity", width=2), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="none of them features"):
        extract(source(), extractor, tmp_path / "a.parquet", label="features")
    with pytest.raises(ValueError, match="at least one record"):
        extract(source(0), extractor, tmp_path / "a.parquet")
    assert not (tmp_path / "a.parquet").exists()


@pytest.mark.parametrize("labels", [[1, "1"], [1, 0.5], [1, True]])
def test_labels_of_several_types_are_matched_or_refused(tmp_path, labels):
    out, extractor = tmp_path / "a.parquet", make_extractor("pixels", size=4)
    images = make_images(2, (4, 4))
    with pytest.raises(ValueError, match="labels: expected labels of one type.* and int|int and"):
        extract(open_records(images, kind="image", labels=labels), extractor, out)
    records = open_records(
        images, kind="image", labels=labels, classes=[0, 1], on_bad_record="zero", max_bad_share=1.0
    )
    extract(records, extractor, out)
    assert pq.read_table(out)["label"].to_pylist() == [1, 1 if labels[1] is True else None]


def test_one_extraction_at_a_time(tmp_path):
    out = tmp_path / "features.parquet"
    with (
        extraction_module._parts_folder(out),
        pytest.raises(ValueError, match="another one in progress") as refused,
    ):
        extract(source(), Counting([]), out)
    assert not getattr(refused.value, "__notes__", [])  # what is there is the other one's


def test_a_file_without_a_header_has_none(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"nothing")
    for name in ("a.parquet", "b.parquet", "c.csv"):
        assert FeaturesHeader.of_file(tmp_path / name) is None


@pytest.mark.parametrize("large", [2**64, -(2**63) - 1, 2**70])
def test_labels_beyond_64_bits_are_named(tmp_path, large):
    records = open_records(make_images(2, (4, 4)), kind="image", labels=[1, large])
    with pytest.raises(InvalidInputError, match=r"labels\[1\]: .*64 bits, or classes"):
        extract(records, make_extractor("pixels", size=4), tmp_path / "a.parquet")


def test_a_file_that_appears_meanwhile_is_left_alone(tmp_path):
    out = tmp_path / "a.parquet"

    def appear(done: int, total: int | None) -> None:
        out.write_text("theirs")

    with pytest.raises(InvalidInputError, match="expected a new file, got one that exists"):
        extract(source(), make_extractor("pixels", size=4), out, replace=False, progress=appear)
    assert out.read_text() == "theirs"
    out.unlink()
    extract(source(), make_extractor("pixels", size=4), out, replace=False)
    assert len(pq.read_table(out)) == 10
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_records_that_run_together_have_other_keys():
    def key(*texts):
        return extraction_module._key(SimpleNamespace(records=list(texts)), b"context")

    found = [key("ab", "c"), key("a", "bc"), key("abc"), key("a", None, "bc"), key("1;text 1;a")]
    assert len(set(found)) == len(found)


def test_parts_are_for_their_owner_alone(tmp_path):
    made = SimpleNamespace(num_features=2, transform=lambda records, progress: np.ones((1, 2)))
    block = SimpleNamespace(records=["a"], bad=np.zeros(1, dtype=bool))
    part = tmp_path / "0"
    extraction_module._make_part(part, block, made, b"context", lambda done, total: None)
    assert part.stat().st_mode & 0o777 == 0o600


def test_a_pipe_is_not_replaced(tmp_path):
    pipe = fed_pipe(tmp_path / "features.parquet")
    with pytest.raises(InvalidInputError, match=r"a \.parquet file in an existing folder"):
        extract(source(), Counting([]), pipe)
    assert pipe.is_fifo()

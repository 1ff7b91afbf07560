from __future__ import annotations

import json
import os
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders import make_data, make_plan, make_schema
from privmix import InvalidInputError, Release, engine, mixer, release, verify
from privmix.publishing.certificate import Certificate
from privmix.publishing.folder import file_digests
from tampering import reasons, rehash, rewrite


@pytest.fixture(scope="module")
def sealed(tmp_path_factory, poisson_plan, stratified_plan):
    folder = tmp_path_factory.mktemp("sealed")
    for plan in (poisson_plan, stratified_plan):
        release(*make_data(plan.data_schema, 60), plan, out=folder / plan.design)
    return folder


@pytest.fixture(params=["poisson", "stratified"])
def folder(request, sealed, tmp_path):
    shutil.copytree(sealed / request.param, tmp_path / "r")
    return tmp_path / "r"


def edit(folder, **changes) -> None:
    """Edit the certificate; nested fields as a__b."""
    path = folder / "certificate.json"
    document = json.loads(path.read_text())
    for name, value in changes.items():
        place = document
        *outer, last = name.split("__")
        for part in outer:
            place = place[part]
        place[last] = value
    path.write_text(json.dumps(document, indent=2) + "\n")


def test_a_sound_release_is_valid(folder):
    digest = Release(folder).certificate_digest
    outcome = verify(folder, expect_digest=digest)
    assert outcome.valid
    assert outcome.reasons == ()
    assert outcome.digest == digest
    assert outcome.epsilon == Release(folder).certificate.epsilon
    assert outcome.delta == 1e-5


def test_a_flipped_byte(folder):
    for name in ("data/part-00000.parquet", "README.md"):
        path = folder / name
        original = path.read_bytes()
        for place in (0, len(original) // 2, len(original) - 1):
            changed = bytearray(original)
            changed[place] ^= 1
            path.write_bytes(bytes(changed))
            assert f"{name}: changed" in reasons(folder)
        path.write_bytes(original)
    assert verify(folder).valid


def test_missing_and_added_files(folder):
    (folder / "data" / "part-00001.parquet").write_bytes(b"x")
    (folder / ".hidden").write_bytes(b"x")
    found = reasons(folder)
    assert "data/part-00001.parquet: not part" in found
    assert ".hidden: not part" in found
    (folder / "data" / "part-00000.parquet").unlink()
    assert "data/part-00000.parquet: missing" in reasons(folder)


def test_a_link_in_place_of_a_file(folder, tmp_path):
    part = folder / "data" / "part-00000.parquet"
    shutil.move(part, tmp_path / "elsewhere")
    part.symlink_to(tmp_path / "elsewhere")
    assert "data/part-00000.parquet: no regular file" in reasons(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": 1.0}, "epsilon is 1.0"),
        ({"epsilon": 2.5}, "epsilon is 2.5"),
        ({"delta": 1e-6}, "epsilon is"),
        ({"mechanism__num_mixtures": 60}, "num_mixtures|event|rows"),
        ({"event__noise_multiplier": 9.0}, "event.noise_multiplier"),
        ({"event__count": 1}, "event.count"),
        ({"tables": []}, "tables"),
        ({"sampler_error": 1}, "not a certificate"),
        ({"neighboring_relation": "replace_one"}, "neighboring_relation"),
        ({"schema__num_features": 6}, "num_features"),
        ({"schema__feature_clip_norm": 0.5}, "tables"),
        ({"epsilon_by_delta": {}}, "epsilon_by_delta"),
        ({"tradeoff_curve__false_negative_rate": []}, "tradeoff_curve"),
        ({"mechanism__sampling_prob": 0.01}, "mix_size|sampling_prob"),
        ({"private": False}, "private is false"),
        ({"files": {}}, "not part of the release"),
        ({"num_records_actual": 60}, "not a certificate"),
    ],
)
def test_an_edited_certificate(folder, changes, words):
    edit(folder, **changes)
    assert re.search(words, reasons(folder)), reasons(folder)


def test_a_garbled_certificate_is_invalid_and_no_certificate_is_an_error(folder):
    (folder / "certificate.json").write_text("{")
    assert "not a certificate" in reasons(folder)
    (folder / "certificate.json").unlink()
    with pytest.raises(InvalidInputError, match="sealed release folder"):
        verify(folder)


def test_a_test_seed_is_rejected(tmp_path, poisson_plan):
    data = make_data(poisson_plan.data_schema, 60)
    opened = release(*data, poisson_plan, out=tmp_path / "r", test_seed=0)
    assert opened.certificate.private is False
    assert "protects nobody" in reasons(tmp_path / "r")


def test_a_consistent_forgery_needs_the_digest(folder):
    """More noise claimed than drawn, everything else consistent: only the digest tells."""
    true = Release(folder)
    plan = make_plan(
        true.certificate.data_schema,
        true.design,
        true.certificate.event.noise_multiplier * 1.02,
        **(
            {"mix_size": 6, "num_mixtures": 40}
            if true.design == "poisson"
            else {"rows_per_class": 10}
        ),
    )
    (folder / "README.md").write_text(
        engine.dataset_card(Certificate.for_plan(plan, private=True, files={}))
    )
    forged = Certificate.for_plan(plan, private=True, files=file_digests(folder))
    (folder / "certificate.json").write_bytes(forged.to_bytes())
    assert verify(folder).valid
    assert "digest is" in reasons(folder, expect_digest=true.certificate_digest)


class TestDressedUpReleases:
    """Whatever is added to a release is found, even when its digest is entered as well."""

    def rehash(self, folder) -> None:
        rehash(folder)

    def test_an_added_column_or_metadata(self, folder):
        part = folder / "data" / "part-00000.parquet"
        table = pq.read_table(part)
        for other in (
            table.append_column("raw", pa.array(range(table.num_rows))),
            table.replace_schema_metadata({"records": "59"}),
        ):
            pq.write_table(other, part)
            self.rehash(folder)
            assert "other columns" in reasons(folder)

    def test_another_card(self, folder):
        card = folder / "README.md"
        card.write_text(card.read_text().replace("differentially private", "anonymous"))
        self.rehash(folder)
        assert "not the card" in reasons(folder)

    def test_a_part_in_another_place(self, folder):
        (folder / "data" / "sub").mkdir()
        shutil.copy(folder / "data" / "part-00000.parquet", folder / "data" / "sub" / "x.parquet")
        self.rehash(folder)
        assert "files are not a README.md and parts" in reasons(folder)

    def test_an_added_part(self, folder):
        shutil.copy(folder / "data" / "part-00000.parquet", folder / "data" / "part-00001.parquet")
        self.rehash(folder)
        assert "data/part-00001.parquet: not part of the release" in reasons(folder)

    def test_no_regular_files(self, folder, tmp_path):
        (folder / "empty").mkdir()
        (folder / "data" / "dangling").symlink_to(tmp_path / "nowhere")
        os.mkfifo(folder / "pipe")
        found = reasons(folder)
        assert "empty: not part of the release" in found
        for name in ("data/dangling", "pipe"):
            assert f"{name}: no regular file" in found

    def test_a_linked_certificate(self, folder, tmp_path):
        shutil.move(folder / "certificate.json", tmp_path / "c.json")
        (folder / "certificate.json").symlink_to(tmp_path / "c.json")
        assert "not behind a link, got a symbolic link" in reasons(folder)

    def test_a_certificate_with_two_values_for_one_name(self, folder):
        path = folder / "certificate.json"
        path.write_text(path.read_text().replace("{", '{\n  "epsilon": 0.1,', 1))
        assert "each field once" in reasons(folder)

    def test_words_among_the_versions(self, folder):
        edit(folder, library_versions={"evil": "records=59"})
        assert "versions of known libraries" in reasons(folder)

    def test_values_off_the_grid(self, folder):
        rewrite(folder, lambda rows: rows._replace(features=rows.features * np.float32(1.01)))
        assert "not on the grid" in reasons(folder)


@pytest.mark.parametrize("design", ["poisson", "stratified"])
class TestRows:
    """Rows that vary less than the certificate says are flagged."""

    def publish(self, tmp_path, monkeypatch, design, factor):
        """Release records along one direction, with noise scaled by ``factor`` behind our back."""
        options = (
            {"mix_size": 30, "num_mixtures": 3000}
            if design == "poisson"
            else {"rows_per_class": 1000}
        )
        plan = make_plan(make_schema(num_features=8), design, 50.0, **options)
        honest = mixer.rounded_gaussian

        def scaled(stream, extra, stddev, size, **options):
            return (honest(stream, extra, stddev, size, **options) * factor).astype(np.int64)

        monkeypatch.setattr(mixer, "rounded_gaussian", scaled)
        x = np.zeros((60, 8))
        x[:, 0] = 1
        release(x, np.arange(60) % 3, plan, out=tmp_path / "r")
        return reasons(tmp_path / "r")

    def test_true_noise_passes(self, tmp_path, monkeypatch, design):
        assert self.publish(tmp_path, monkeypatch, design, 1.0) == ""

    def test_absent_noise(self, tmp_path, monkeypatch, design):
        found = self.publish(tmp_path, monkeypatch, design, 0.0)
        assert "columns vary less" in found
        if design == "stratified":  # there the rows' own signal lies below the noise
            assert "rows vary less" in found

    def test_noise_too_small_by_half_as_much_again(self, tmp_path, monkeypatch, design):
        found = self.publish(tmp_path, monkeypatch, design, 1 / 1.5)
        assert "columns vary less" in found
        assert "direction" in found

    def test_noise_missing_along_one_direction(self, tmp_path, monkeypatch, design):
        """Every column varies enough, their sum does not."""
        options = (
            {"mix_size": 30, "num_mixtures": 3000}
            if design == "poisson"
            else {"rows_per_class": 1000}
        )
        plan = make_plan(make_schema(num_features=8), design, 50.0, **options)
        honest = mixer.rounded_gaussian

        def flattened(stream, extra, stddev, size, **options):
            drawn = honest(stream, extra, stddev, size, **options)
            if size % 8 == 0:
                table = 2 * drawn.reshape(-1, 8).astype(float)
                drawn = (table - table.mean(axis=1, keepdims=True)).astype(np.int64).ravel()
            return drawn

        monkeypatch.setattr(mixer, "rounded_gaussian", flattened)
        x = np.zeros((60, 8))
        x[:, 0], x[:, 1] = 0.5, -0.5
        release(x, np.arange(60) % 3, plan, out=tmp_path / "r")
        # What is drawn twice as large may make single rows larger than is due: then that is told too.
        assert "data: some direction varies less than the stated noise" in reasons(tmp_path / "r")


def test_reordered_labels_are_flagged(tmp_path, stratified_plan, monkeypatch):
    honest = mixer.Mixer.rows
    monkeypatch.setattr(
        mixer.Mixer,
        "rows",
        lambda self, block: honest(self, block)._replace(labels=np.full(10, 2 - block.class_index)),
    )
    data = make_data(stratified_plan.data_schema, 60)
    release(*data, stratified_plan, out=tmp_path / "r")
    assert "classes, or names of tables, other than those" in reasons(tmp_path / "r")

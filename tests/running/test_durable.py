"""A file is there whole, or not at all."""

from __future__ import annotations

import errno
import os

import pytest

from privmix.running.durable import remove_unfinished, write_durably


def test_a_file_replaces_another_one_whole(tmp_path, monkeypatch):
    path, order = tmp_path / "a", []
    path.write_bytes(b"before")

    def noting(handle):
        order.append("synced before the name" if path.read_bytes() == b"before" else "synced")

    monkeypatch.setattr(os, "fsync", noting)
    write_durably(path, b"after", mode=0o600)
    assert path.read_bytes() == b"after"
    assert path.stat().st_mode & 0o777 == 0o600
    assert order == ["synced before the name", "synced"]  # the file, then the folder's entry
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"before")

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_durably(path, b"after")
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_what_was_cut_off_is_removed_and_written_over(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("a.tmp", "sub/b.tmp", "kept"):
        (tmp_path / name).write_bytes(b"half")
    write_durably(tmp_path / "a", b"whole")
    assert not (tmp_path / "a.tmp").exists()
    remove_unfinished(tmp_path)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "kept", "sub"]

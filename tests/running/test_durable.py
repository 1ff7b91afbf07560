"""A file is there whole, or not at all."""

from __future__ import annotations

import errno
import os
import uuid

import pytest

from privmix.running.durable import put_in_place, remove_unfinished, write_durably


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


@pytest.mark.parametrize("new", [False, True])
def test_what_is_put_in_place_touches_no_other_file(tmp_path, monkeypatch, new):
    """Not even through a link that has the name of the unfinished file."""
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=0))
    (tmp_path / "victim").write_bytes(b"precious")
    link = tmp_path / f".a.{'0' * 12}.tmp"
    link.symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError), put_in_place(tmp_path / "a", new=new) as file:
        file.write(b"whole")
    assert (tmp_path / "victim").read_bytes() == b"precious" and link.is_symlink()
    link.unlink()
    with put_in_place(tmp_path / "a", new=new, mode=0o600) as file:
        file.write(b"whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "victim"]
    assert (tmp_path / "a").read_bytes() == b"whole"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("links", [True, False])
def test_a_name_that_is_taken_meanwhile_is_left_alone(tmp_path, monkeypatch, links):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    path = tmp_path / "a"
    if not links:
        monkeypatch.setattr("pathlib.Path.hardlink_to", refuse)
    with pytest.raises(FileExistsError), put_in_place(path, new=True) as file:
        file.write(b"whole")
        path.symlink_to("nowhere")
    assert [p.name for p in tmp_path.iterdir()] == ["a"] and path.is_symlink()
    path.unlink()
    with put_in_place(path, new=True) as file:
        file.write(b"whole")
    assert path.read_bytes() == b"whole" and [p.name for p in tmp_path.iterdir()] == ["a"]


def test_what_fails_half_way_leaves_what_was_there(tmp_path):
    (tmp_path / "a").write_bytes(b"before")
    with pytest.raises(ZeroDivisionError), put_in_place(tmp_path / "a") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert (tmp_path / "a").read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_what_was_cut_off_is_removed_and_written_over(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("a.tmp", "sub/b.tmp", "kept"):
        (tmp_path / name).write_bytes(b"half")
    write_durably(tmp_path / "a", b"whole")
    assert not (tmp_path / "a.tmp").exists()
    remove_unfinished(tmp_path)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "kept", "sub"]

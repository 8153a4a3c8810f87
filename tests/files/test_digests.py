"""Digests of files: every change is found, and a large file is hashed once."""

from __future__ import annotations

import os
import time

import pytest

from vlcpctl.core.errors import BadInput, Incompatible
from vlcpctl.files import digests
from vlcpctl.files.digests import changed_files, digests_of, verify_files


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one.bin").write_bytes(b"1" * 100)
    (tmp_path / "a" / "b" / "two.bin").write_bytes(b"2" * 100)
    return tmp_path / "a"


def test_files_as_they_were_recorded_pass(tree):
    recorded = digests_of(tree)
    assert list(recorded) == ["b/two.bin", "one.bin"]
    assert recorded["one.bin"]["bytes"] == 100
    verify_files(tree, recorded)


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        (lambda path: path.write_bytes(b"1" * 99 + b"0"), "its xxh3_128 differs"),
        (lambda path: path.write_bytes(b"1" * 99), "it has 99 bytes and had 100"),
        (lambda path: path.unlink(), "is missing"),
        (lambda path: (path.unlink(), path.mkdir()), "bytes and had 100"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "it has 0 bytes and had 100"),
    ],
)
def test_a_changed_file_is_named(tree, change, phrase):
    recorded = digests_of(tree)
    change(tree / "one.bin")
    with pytest.raises(Incompatible, match=phrase) as caught:
        verify_files(tree, recorded, error=Incompatible, advice="; --force starts over")
    assert str(tree / "one.bin") in str(caught.value)
    assert str(caught.value).endswith("; --force starts over")


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "nul\0"])
def test_a_recorded_name_that_leaves_the_directory_is_refused(tree, name):
    with pytest.raises(BadInput, match="outside"):
        verify_files(tree, {name: {"bytes": 0, "xxh3_128": ""}})


@pytest.mark.parametrize("entry", [{}, {"bytes": 100}, [], None, {"bytes": "100"}])
def test_a_damaged_record_is_a_problem(tree, entry):
    assert list(changed_files(tree, {"one.bin": entry}))


def test_a_large_file_is_hashed_once_until_it_changes(tree, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "_CACHED_FROM", 50)
    monkeypatch.setattr(digests, "_SETTLED_SECONDS", 0)
    recorded = digests_of(tree)
    hashed = []
    real = digests.file_digest
    monkeypatch.setattr(
        digests, "file_digest", lambda path, *name: hashed.append(path) or real(path, *name)
    )

    assert not list(changed_files(tree, recorded))
    assert len(hashed) == 2
    assert not list(changed_files(tree, recorded))
    assert len(hashed) == 2
    assert not list(changed_files(tree, recorded, use_cache=False))
    assert len(hashed) == 4

    before = (tree / "one.bin").stat()
    time.sleep(0.02)
    (tree / "one.bin").write_bytes(b"1" * 99 + b"0")
    os.utime(tree / "one.bin", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [str(tree / "one.bin") in text for text in changed_files(tree, recorded)] == [True]


def test_a_file_that_has_just_changed_is_not_cached(tree, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "_CACHED_FROM", 50)
    assert not list(changed_files(tree, digests_of(tree)))
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_cannot_be_written_is_no_error(tree, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(digests, "_CACHED_FROM", 50)
    monkeypatch.setattr(digests, "_SETTLED_SECONDS", 0)
    assert not list(changed_files(tree, digests_of(tree)))

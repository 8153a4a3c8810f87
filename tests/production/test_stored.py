"""Weeks whose data, guards and reference are in an object store, through the cache of the state."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.object_store import put_in_memory, remove_from_memory
from support.production import PASSES, bodies, killed_at, tree
from support.program import ProgramResult, check_refused

from vlcpctl import cli
from vlcpctl.files.manifest import SEAL
from vlcpctl.files.stores import use_cache
from vlcpctl.production.records import write_record
from vlcpctl.testing.tiny_stream import make_pair

Run = Callable[..., ProgramResult]


@pytest.fixture(autouse=True)
def _store(monkeypatch: pytest.MonkeyPatch, place: Path) -> Iterator[None]:
    monkeypatch.setattr("vlcpctl.files.stores._DEADLINE", 1.0)
    put_all(place)
    yield
    os.environ.pop("_VLCPCTL_STORE_CACHE", None)


URL = "memory://shop"


def put_all(place: Path) -> None:
    """Copy the data of all weeks, and the guards, into the store."""
    for name in ("week-2.parquet", "earlier.parquet", "golden", "silver"):
        put_in_memory(place / name, f"shop/{name}")


def in_week_2(data: object, guard: object, state: Path) -> list[object]:
    """The second week with this data and guard."""
    given = ("update", data, "--guard", guard, "--small-guard", "--state", state)
    return [*given, *PASSES, "-q"]


def copy_of(after_one: Path, name: str) -> Path:
    """A copy of the state beside it, so that relative paths stay right."""
    shutil.rmtree(after_one.with_name(name), ignore_errors=True)
    return Path(shutil.copytree(after_one, after_one.with_name(name), symlinks=True))


def results(state: Path) -> dict[str, object]:
    """Every file of a state, without where its data are."""
    found = tree(state)
    found["history.ndjson"] = [{**one, "settings": None} for one in bodies(state)]
    return {name: _without_places(content) for name, content in found.items()}


def _without_places(content: Any) -> Any:
    if isinstance(content, dict):
        left_out = {"cache", "path", "buffer_from"}
        return {name: _without_places(one) for name, one in content.items() if name not in left_out}
    if isinstance(content, list):
        return [_without_places(one) for one in content]
    if isinstance(content, bytes):
        return re.sub(rb"(place[0-9]+|shop)/week-2", b"week-2", content)
    is_name = isinstance(content, str)
    return re.sub("(place[0-9]+|shop)/week-2", "week-2", content) if is_name else content


def make_week_2(words: list[object]) -> None:
    """Run the words of the second week."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.argv", ["vlcpctl", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
    assert not stop.value.code


@pytest.fixture(scope="module")
def local(place: Path, after_one: Path) -> dict[str, object]:
    """What the second week makes of local copies."""
    state = copy_of(after_one, "local")
    make_week_2(in_week_2(place / "week-2.parquet", place / "golden" / "00-golden", state))
    return results(state)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of `after_two`."""
    return tmp_path_factory.mktemp("objects") / "cache"


@pytest.fixture(scope="module")
def after_two(place: Path, after_one: Path, cache: Path) -> Path:
    """A state after the second week, whose data and guard are in the store."""
    put_all(place)
    state = copy_of(after_one, "stored")
    words = in_week_2(f"{URL}/week-2.parquet", f"{URL}/golden/00-golden", state)
    make_week_2([*words, "--cache", cache])
    return state


def test_a_week_has_the_bytes_of_one_from_local_copies(
    after_two: Path,
    local: dict[str, object],
    cache: Path,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    state = after_two
    assert results(state) == local
    settings = json.loads((state / "state.json").read_text())["settings"]
    assert settings["guards"][0]["path"] == f"{URL}/golden/00-golden"
    assert settings["cache"] == str(cache)
    again = in_week_2(f"{URL}/week-2.parquet", f"{URL}/golden/00-golden", state)
    assert "already accepted as week 2" in run(*again[:-1]).err
    third = ("update", f"{URL}/earlier.parquet", "--state", state)
    silver = f"{URL}/silver/00-silver"
    more = ("--guard-classes", silver, "--distractors", silver, "--drop-leaks")
    planned = run(*third, *more, "--dry-run")
    assert planned.code == 0, planned.err
    lines = [line.split() for line in planned.out.splitlines() if not line.startswith("#")]
    read = [words for words in lines if any(word.startswith(URL) for word in words)]
    assert {words[1] for words in read} == {"split", "eval-retrieval", "eval-zeroshot"}
    assert all(silver in words for words in read)
    assert f"{cache}/tree" not in planned.out
    for words in read:
        assert words[words.index("--cache") + 1] == str(cache)
    usual = run(*third, *more, "--cache", "none", "--dry-run")
    assert usual.code == 0, usual.err
    assert f"--cache {tmp_path}/home/vlcpctl/objects\n" in usual.out
    remove_from_memory("shop/golden")
    moved = f"{URL}/golden/00-golden does not exist in the store, or nothing is in it; --guard "
    check_refused(run(*third), "update", 3, moved)


@pytest.mark.slow
def test_a_killed_week_goes_on(
    after_one: Path, local: dict[str, object], tmp_path: Path, run: Run
) -> None:
    state = copy_of(after_one, "killed")
    words = in_week_2(f"{URL}/week-2.parquet", f"{URL}/golden/00-golden", state)
    first, second = (("--cache", tmp_path / name) for name in ("first", "second"))
    for at, cache in (
        ("started", first),
        ("after line 1", first),
        ("step=2", first),
        ("moved", second),
    ):
        assert killed_at(at, [*words, *cache], tmp_path / "log") == -signal.SIGKILL, at
    done = run(*words, *second)
    assert done.code == 0, done.err
    assert results(state) == local


def test_a_store_that_gives_nothing_is_one_line(
    after_one: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, cache = copy_of(after_one, "refused"), ("--cache", tmp_path / "cache")
    before = results(state)
    missing = ("update", f"{URL}/week-9.parquet", "--state", state, *cache)
    check_refused(run(*missing), "update", 3, f"{URL}/week-9.parquet does not exist in the store")

    def cat_file(*_: object, **__: object) -> None:
        raise PermissionError("Forbidden")

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.cat_file", cat_file)
    forbidden = ("update", f"{URL}/week-2.parquet", "--state", state, *cache)
    check_refused(run(*forbidden), "update", 1, f"{URL}/week-2.parquet", "PermissionError")
    init = ("update", f"{URL}/week-2.parquet", "--state", tmp_path / "new", "--init", f"{URL}/run")
    check_refused(run(*init), "update", 2, "is a URL, not a local path")
    assert results(state) == before


def kept(cache: Path) -> int:
    """The bytes on the disk of what a cache has read."""
    return sum(path.stat().st_blocks * 512 for path in (cache / "data").iterdir())


def test_forget_empties_the_cache_that_a_state_has_recorded(
    after_two: Path, cache: Path, tmp_path: Path, run: Run
) -> None:
    state = copy_of(after_two, "forgetful")
    record = json.loads((state / "state.json").read_text())
    recorded = {name: record[name] for name in record.keys() - {"schema", SEAL, "made_by"}}
    recorded["settings"]["cache_size"] = "1kB"  # as a state of 0.3
    write_record(state / "state.json", record["schema"], recorded)
    again = ("update", f"{URL}/week-2.parquet", "--state", state, "--dry-run")
    assert run(*again).code == 0
    image = make_pair(2003, size=16).image or b""
    request = ("forget", state, "--sha256", hashlib.sha256(image).hexdigest())
    planned = run(*request, "--dry-run", "-q")
    assert f"  empty the cache {cache}" in planned.out.splitlines()
    other = use_cache(tmp_path / "other")
    below = run(*request[:2], tmp_path, *request[2:], "--dry-run", "-q")
    added = set(below.out.splitlines()) - set(planned.out.splitlines())
    assert added == {f"  empty the cache {other}"}
    done = run(*request)
    assert done.code == 0, done.err
    assert f"emptied the cache {cache}" in done.err
    assert "object store behind a cache" in done.err
    assert not kept(cache)
    assert json.loads((state / done.out.strip()).read_text())["caches"] == [str(cache)]
    # The source has the pair still, and so has the cache when the source is read again.
    assert run(*again).code == 0
    assert kept(cache)
    done = run(*request)
    assert done.code == 0
    assert "nothing is left to remove" in done.err
    assert not kept(cache)

"""Whatever is done to the files of artifacts, inspect and check end in lines, not tracebacks."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import write_checkpoint_manifest
from support.commands import buffer, forgetting_report
from support.eval_rows import own_rows, write_rows

from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import printable_json
from vlcpctl.files.manifest import MANIFESTS, write_manifest
from vlcpctl.inspection.check import check, findings
from vlcpctl.inspection.lineage import describe, lines
from vlcpctl.testing.tiny_stream import make_stream, make_task

DEEP = "DEEP"  # stands for a value that json.dumps would refuse
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 10**9, 2**70, 1e308, float("nan"), "", "x", "\0", "../x", "/etc/passwd"),
    *("\ud800", "\x1b[31m\n", "y" * 5000, [], {}, [[]], [None], {"": None}, {"path": 1}, DEEP),
)
KINDS = ("stream", "stream/00-part-0", "buffer", "runs/one", "report")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One artifact of most kinds, made from each other."""
    root = tmp_path_factory.mktemp("artifacts")
    make_stream(root / "stream", 2, 6, test=4)
    buffer(root / "stream/00-part-0", root / "buffer", policy="ring", size="4", quiet=True)
    tasks = [json.loads((root / "stream/00-part-0/task.json").read_text())["content"]]
    for name, parent in (("zero", None), ("one", "0" * 32)):
        (root / "runs" / name).mkdir(parents=True)
        content = str(int(parent is not None)) * 32
        write_checkpoint_manifest(root / "runs" / name, content, tasks=tasks, parent=parent)
    rows = write_rows(root / "rows.ndjson", own_rows())
    forgetting_report([rows], out=root / "report", quiet=True)
    return root


def places_in(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every value inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inside in items:
        yield (*at, name)
        if isinstance(inside, dict | list):
            yield from places_in(inside, (*at, name))


def change_value(path: Path, draw: random.Random) -> None:
    """Remove a value of a JSON file, or replace it."""
    manifest = json.loads(path.read_text())
    *at, last = draw.choice(list(places_in(manifest)))
    inside = manifest
    for name in at:
        inside = inside[name]
    if draw.random() < 0.2:
        del inside[last]
    else:
        inside[last] = draw.choice(VALUES)
    path.write_text(json.dumps(manifest).replace(f'"{DEEP}"', "[" * 9000 + "]" * 9000))


def change_bytes(path: Path, draw: random.Random) -> None:
    """Flip, remove or repeat some bytes of a file."""
    data = bytearray(path.read_bytes())
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(max(len(data), 1))
        size = draw.choice((1, 1, 1, 8, 100))
        what = draw.choice((b"", os.urandom(size), data[at : at + size] * 2, b"[" * 5000))
        data[at : at + size] = what
    path.write_bytes(data)


def check_ends_in_lines(root: Path, *, deep: bool) -> None:
    for kind in KINDS:
        path = root / kind
        try:
            shown = list(lines(describe(path)))
            json.dumps(describe(path))
        except BadInput as error:
            shown = [str(error)]
        shown += check(path, deep=deep)
        for line in shown:
            assert len(printable_json(line)) < 20_000
    list(findings([root / kind for kind in KINDS]))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("change", [change_value, change_bytes])
def test_changed_files_are_described_or_reported(
    change: Callable[[Path, random.Random], None], seed: int, whole: Path, tmp_path: Path
) -> None:
    draw, root = random.Random(seed), tmp_path / "changed"
    shutil.copytree(whole, root, copy_function=os.link)
    names = list(MANIFESTS.values())
    files = sorted(path for path in root.rglob("*") if path.is_file())
    for _ in range(draw.choice((1, 1, 3))):
        path = draw.choice([one for one in files if one.name in names or change is change_bytes])
        data = path.read_bytes()
        path.unlink()  # a link to the whole one
        path.write_bytes(data)
        with suppress(ValueError, RecursionError):  # no longer JSON, or too deep for Python
            change(path, draw)
    check_ends_in_lines(root, deep=bool(seed % 2))


BOMBS = {
    "deep object": '{"a":' * 100_000,
    "huge integer": '{"schema": 1' + "0" * 5000 + "}",
    "surrogate": '{"schema": "vlcpctl.task/1", "content": "\\ud800", "identity": {}}',
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_beside_an_artifact_do_not_stop_its_description(bomb: str, tmp_path: Path) -> None:
    task = make_task(tmp_path / "task", 4, stream="ab" * 16)
    for kind, name in MANIFESTS.items():
        neighbour = tmp_path / "neighbour" / kind
        (neighbour / name).parent.mkdir(parents=True)
        (neighbour / name).write_text(BOMBS[bomb])
        assert any(name in one for one in check(neighbour, deep=False))
        with pytest.raises(BadInput, match=name):
            describe(neighbour)
    assert describe(task)["kind"] == "task"


def test_a_damaged_parent_is_named_in_the_description(tmp_path: Path) -> None:
    stream = make_stream(tmp_path / "stream", 1, 4)
    manifest = json.loads((stream / "stream.json").read_text())
    (stream / "stream.json").write_text(json.dumps(manifest | {"tasks": "none"}))
    (parent,) = describe(stream / "00-part-0")["parents"]
    assert parent["note"].startswith(f"cannot be described: {stream}/stream.json")
    assert any("cannot be described" in line for line in lines(describe(stream / "00-part-0")))


@pytest.mark.parametrize(("count", "parents"), [(40, 2), (230, 1)])
def test_a_long_lineage_is_described_in_bounded_time(
    tmp_path: Path, count: int, parents: int
) -> None:
    """One of averages of averages, and a chain of checkpoints."""
    for number in range(count):
        place = tmp_path / "runs" / f"{number:04d}"
        place.mkdir(parents=True)
        before = [f"{number - 1:032x}"] * parents if number else None
        write_checkpoint_manifest(place, f"{number:032x}", alpha=0.5, parents=before)
    text = list(lines(describe(place)))
    assert len(text) < 10_000
    assert "too many parents" in "\n".join(text)
    json.dumps(describe(place))


@pytest.mark.parametrize("files", [{"x": 1}, {"../x": "0"}, {"\0": "0"}, ["x"], "x"])
def test_a_checkpoint_with_odd_files_is_a_problem(tmp_path: Path, files: Any) -> None:
    write_manifest(tmp_path, "checkpoint", {}, "0" * 32, {"files": files, "tasks": []})
    assert list(check(tmp_path, deep=True))

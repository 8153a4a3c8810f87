"""A killed export leaves nothing that passes for finished; the same command then writes it all."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from support.marks import mostly_slow
from support.processes import exit_code_of, run_line, start_child
from support.program import run_program

from vlcpctl.data.tasks.facts import EXPORT_MANIFEST
from vlcpctl.export import data_sets
from vlcpctl.export.pairs import Selection
from vlcpctl.testing.tiny_stream import make_task

FORMS = ("clip-benchmark", "hf")
# Before the first and the sixth pair, the manifest, and the renames that put the output in place.
WRITING = ("pair 1", "pair 6", "manifest")
CASES = [
    *((form, point, force) for form in FORMS for point in WRITING for force in (False, True)),
    ("hf", "rename 1", False),
]
KEPT = [*((form, "pair 6", form == "hf") for form in FORMS), ("hf", "rename 1", False)]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("inputs")
    make_task(root / "task", 9)
    make_task(root / "old", 3, first=100)
    return root


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def export_and_die(words: list[object], out: Path, point: str) -> None:
    """Be the program in this process, which kills itself at a point."""
    counts, pairs, replace = {"pair": 0, "rename": 0}, Selection.pairs, os.replace

    def reach(what: str) -> None:
        counts[what] += 1
        if point == f"{what} {counts[what]}":
            kill()

    def read(selection: Selection) -> Any:
        for pair in pairs(selection):
            reach("pair")
            yield pair

    def renamed(source: Any, target: Any) -> None:
        if Path(source).is_dir():
            reach("rename")
        replace(source, target)

    patch = pytest.MonkeyPatch()  # never undone: the process ends here
    patch.setattr(Selection, "pairs", read)
    patch.setattr(os, "replace", renamed)
    if point == "manifest":
        patch.setattr(data_sets, "write_manifest", lambda *_: kill())
    run_line(words, out.with_name("log"))


def contents(out: Path) -> dict[str, Any]:
    """Every file; of the manifest what is no time."""
    found: dict[str, Any] = {}
    for path in out.rglob("*"):
        if path.is_file():
            found[path.relative_to(out).as_posix()] = path.read_bytes()
    manifest = json.loads(found.pop(EXPORT_MANIFEST))
    return {**found, "content": manifest["content"], "digests": sorted(manifest["digests"])}


@pytest.mark.parametrize("case", mostly_slow(CASES, KEPT), ids=str)
def test_the_same_command_makes_a_killed_export_whole(
    inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], case: tuple[str, str, bool]
) -> None:
    form, point, force = case
    out, words = tmp_path / "out", ["export", inputs / "task", "--to", form, "-q", "-o"]
    assert run_program(capfd, *words, tmp_path / "uninterrupted").code == 0
    if force:
        old = ("export", inputs / "old", "--to", form, "-q", "-o", out)
        assert run_program(capfd, *old).code == 0
    words = [*words, out, *(["--force"] if force else [])]
    pid = start_child(lambda _: export_and_die(words, out, point))
    assert exit_code_of(pid) == -signal.SIGKILL
    if force:
        assert run_program(capfd, "check", out).code == 0  # the old one
    else:
        assert not out.exists()
    ended = run_program(capfd, *words)
    assert (ended.code, ended.out) == (0, f"{out}\n"), ended.err
    assert contents(out) == contents(tmp_path / "uninterrupted")
    assert (tmp_path / ".out.vlcpctl").exists() == force  # the old one is kept there
    assert not list(tmp_path.glob(".out.vlcpctl/writing-*"))

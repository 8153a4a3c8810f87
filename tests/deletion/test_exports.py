"""`forget` deletes exported data sets of tasks with the pairs, but nothing that people wrote."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.deletion_world import pair_at, traces
from support.marks import mostly_slow
from support.processes import exit_code_of, start_child
from support.program import run_program

from vlcpctl.data.tasks.export_manifest import CARD
from vlcpctl.deletion.request import DeletionRequest, forget
from vlcpctl.deletion.selectors import parse
from vlcpctl.files import staging
from vlcpctl.testing.tiny_stream import make_task

TEMPLATES = "zeroshot_classification_templates.txt"


@pytest.fixture
def task(tmp_path: Path) -> Path:
    return make_task(tmp_path / "all" / "task", 6, splits={"train": 6, "test": 2})


@pytest.fixture
def program(capfd: pytest.CaptureFixture[str]) -> Any:
    """Runs a command that succeeds; what it printed on stderr."""

    def run(*words: object) -> str:
        ended = run_program(capfd, *words)
        assert ended.code == 0, ended.err
        return ended.err

    return run


def export(program: Any, task: Path, to: str, *more: object) -> Path:
    out = task.parent / "out"
    program("export", task, "--to", to, "-o", out, "-q", *more)
    return out


def names_in(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*")}


def added(out: Path) -> None:
    (out / "LICENSE").write_text("mine")
    (out / ".vlcpctl/added").touch()  # in a directory of ours
    (out / "notes").mkdir()
    (out / "notes" / "link").symlink_to("nowhere")


def filled_in(out: Path) -> None:
    (out / CARD).write_text((out / CARD).read_text().replace("unknown", "cc0-1.0"))


def written(out: Path) -> None:
    (out / CARD).write_text("mine")


def changed(out: Path) -> None:
    for name in (TEMPLATES, "classnames.txt"):
        with (out / name).open("a") as file:
            file.write("a sketch of a {c}.\n")


@pytest.mark.parametrize(
    ("to", "edit", "left"),
    [
        *((to, None, set()) for to in ("hf", "clip-benchmark")),
        ("hf", added, {"LICENSE", "notes", "notes/link"}),
        ("hf", filled_in, {CARD}),
        ("hf", written, {CARD}),
        ("clip-benchmark", changed, {TEMPLATES}),
    ],
)
def test_what_people_wrote_stays(
    task: Path, program: Any, to: str, edit: Any, left: set[str]
) -> None:
    out = export(program, task, to)
    if edit is not None:
        edit(out)
    if edit is not changed:
        program("check", out)  # is no damage
    pair = pair_at(task, 3)
    said = program("forget", "--key", pair.key, task.parent)
    assert f"'vlcpctl export {task} --to {to} -o {out} -q' makes it again" in said
    assert (names_in(out) if out.exists() else set()) == left
    assert out.exists() == bool(left)
    assert traces(task.parent, pair) == []


def test_an_export_of_tasks_that_are_elsewhere_is_named(
    task: Path, program: Any, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    task_of_other = make_task(tmp_path / "elsewhere", 2, first=50)
    program("export", task_of_other, "--to", "hf", "-o", other, "-q")
    said = program("forget", "--key", pair_at(task, 3).key, task.parent, other)
    assert f"1 export of data that is not under the given paths, such as {other}" in said
    receipt = json.loads((task.parent / "receipts/0001.json").read_text())
    assert [one["path"] for one in receipt["unknown"]] == [str(other)]


def test_an_export_from_before_a_deletion_is_deleted_by_the_next(
    task: Path, program: Any, tmp_path: Path
) -> None:
    """It was elsewhere, and its task does not have the pair any more."""
    out, pair = export(program, task, "hf"), pair_at(task, 3)
    away = out.rename(tmp_path / "away")
    program("forget", "--key", pair.key, task.parent)
    away.rename(out)
    assert traces(task.parent, pair) != []
    said = program("forget", "--key", pair.key, task.parent)
    assert "--to hf" in said
    assert not out.exists()
    assert traces(task.parent, pair) == []


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def forget_and_die(root: Path, key: str, point: str) -> None:
    """Forget in this process, which kills itself at a point or before its n-th change of names."""
    changes = [0]

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            changes[0] += 1
            if point == f"rename {changes[0]}":
                kill()
            return change(*given)

        return call

    patch = pytest.MonkeyPatch()  # never undone: the process ends here
    patch.setattr(os, "rename", counted(os.rename))
    patch.setattr(staging, "_exchange", counted(staging._exchange))
    request = DeletionRequest(conditions=parse([key]), paths=[root])
    forget(request, lambda name: kill() if name == point else None)


POINTS = ("pending", "deleting out", "deleted out", "removed", "finished")
CASES = [
    *((point, edited) for point in POINTS for edited in (False, True)),
    *((f"rename {number}", edited) for number in range(1, 7) for edited in (False, True)),
]
KEPT = [("deleted out", True), ("rename 3", False), ("rename 4", True)]


@pytest.mark.parametrize("case", mostly_slow(CASES, KEPT), ids=str)
def test_a_killed_deletion_is_completed_by_the_same_command(
    task: Path, program: Any, case: tuple[str, bool]
) -> None:
    point, is_edited = case
    out, pair = export(program, task, "hf"), pair_at(task, 3)
    if is_edited:
        (out / CARD).write_text("mine")
    pid = start_child(lambda _: forget_and_die(task.parent, pair.key, point))
    assert exit_code_of(pid) == -signal.SIGKILL
    program("forget", "--key", pair.key, task.parent)
    assert (names_in(out) if out.exists() else set()) == ({CARD} if is_edited else set())
    assert traces(task.parent, pair) == []
    assert not list(task.parent.glob(".*"))
    receipt = json.loads((task.parent / "receipts/0001.json").read_text())
    assert (receipt["state"], receipt["keys"]) == ("finished", [pair.key])
    (entry,) = (one for one in receipt["artifacts"] if one["kind"] == "export")
    assert (entry["action"], entry["removed"]) == ("deleted", {"train": 1})
    assert "data/train-00000-of-00001.parquet" in entry["before"]["files"]

"""`forget` on exported data sets: what people wrote stays, and a kill at any point is completed."""

from __future__ import annotations

import json
import os
import signal
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.deletion_world import pair_at, traces
from support.marks import mostly_slow
from support.processes import exit_code_of, start_child
from support.program import check_refused, run_program

from vlcpctl.data.tasks.exported import CARD
from vlcpctl.deletion.request import DeletionRequest, forget
from vlcpctl.deletion.selectors import Selectors
from vlcpctl.testing.tiny_stream import make_task

TEMPLATES = "zeroshot_classification_templates.txt"


@pytest.fixture
def task(tmp_path: Path) -> Path:
    return make_task(tmp_path / "inputs" / "task", 6)


@pytest.fixture
def program(capfd: pytest.CaptureFixture[str]) -> Any:
    """Runs a command that succeeds; what it printed on stderr."""

    def run(*words: object) -> str:
        ended = run_program(capfd, *words)
        assert ended.code == 0, ended.err
        return ended.err

    return run


def export(program: Any, task: Path, to: str) -> Path:
    out = task.parents[1] / "out"
    program("export", task, "--to", to, "-o", out, "-q")
    return out


def names_in(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*")}


def test_added_files_stay(task: Path, program: Any) -> None:
    out = export(program, task, "imagefolder")
    (out / "LICENSE").write_text("mine")
    (out / ".vlcpctl/added").touch()  # in a directory of ours
    (out / "notes").mkdir()
    (out / "notes" / "link").symlink_to(out / "nowhere")
    said = program("forget", "--key", pair_at(task, 3).key, out)
    assert f"deleted the data set in {out}; left files that were added or changed: LICENSE, n" in (
        said
    )
    assert names_in(out) == {"LICENSE", "notes", "notes/link"}


@pytest.mark.parametrize("added", [False, True])
def test_the_data_set_is_named_as_it_was_given(
    task: Path, program: Any, monkeypatch: pytest.MonkeyPatch, added: bool
) -> None:
    out, key = export(program, task, "imagefolder"), pair_at(task, 3).key
    if added:
        (out / "LICENSE").write_text("mine")
    monkeypatch.chdir(out.parent)
    said = program("forget", "--key", key, out.name)
    what = "the data set in out; left files" if added else "out; export it again"
    assert f"deleted {what}" in said
    assert str(out) not in said


@pytest.mark.parametrize("to", ["imagefolder"])
def test_a_card_stays_if_it_was_filled_in(task: Path, program: Any, to: str) -> None:
    out, key = export(program, task, to), pair_at(task, 3).key
    card = out / CARD
    text = card.read_text().replace("unknown", "cc0-1.0")
    card.write_text(text + f"The image {key} is the best.\n")
    program("check", out)  # is no damage
    said = program("forget", "--key", key, out)
    assert f"left files that were added or changed: {CARD}\n" in said
    assert f"a key is still named in 1 file, such as {card}" in said
    assert names_in(out) == {CARD}


def test_a_readme_stays_if_the_export_did_not_write_it(task: Path, program: Any) -> None:
    out = export(program, task, "img2dataset")
    (out / CARD).write_text("mine")
    program("forget", "--key", pair_at(task, 3).key, out)
    assert names_in(out) == {CARD}


def test_changed_templates_stay_but_nothing_with_pairs(task: Path, program: Any) -> None:
    out = export(program, task, "clip-benchmark")
    for name in (TEMPLATES, "classnames.txt"):
        with (out / name).open("a") as file:
            file.write("a sketch of a {c}.\n")
    said = program("forget", "--key", pair_at(task, 3).key, out)
    assert f"left files that were added or changed: {TEMPLATES}\n" in said
    assert names_in(out) == {TEMPLATES}


def test_nothing_stays_of_an_export_as_it_was_written(task: Path, program: Any) -> None:
    for to in ("hf", "imagefolder", "clip-benchmark", "img2dataset"):
        out = export(program, task, to)
        said = program("forget", "--key", pair_at(task, 3).key, out)
        assert f"deleted {out}; export it again from its tasks" in said
        assert not out.exists()
        (out.parent / "receipts/0001.json").unlink()


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def forget_and_die(out: Path, key: str, point: str) -> None:
    """Forget in this process, which kills itself at a point or at its n-th rename in the export."""
    renames, rename = [0], os.rename

    def renamed(source: Any, target: Any) -> None:
        is_ours = str(source).startswith(str(out))
        renames[0] += is_ours
        if is_ours and point == f"before rename {renames[0]}":
            kill()
        rename(source, target)
        if is_ours and point == f"after rename {renames[0]}":
            kill()

    pytest.MonkeyPatch().setattr(os, "rename", renamed)  # never undone: the process ends here
    request = DeletionRequest(selectors=Selectors(keys=frozenset({key})), paths=[out])
    forget(request, lambda name: kill() if name == point else None)


POINTS = ("pending", "before rename 1", "after rename 1", "removed", "finished")
IN_FILES = ("deleting images", "emptied out")


CASES = [*product((*POINTS, *IN_FILES), [True]), *product(POINTS, [False])]
KEPT = [("deleting images", True), *product(["after rename 1"], [True, False])]


@pytest.mark.parametrize("case", mostly_slow(CASES, KEPT), ids=str)
def test_a_killed_deletion_is_completed_by_the_same_command(
    task: Path, program: Any, capfd: pytest.CaptureFixture[str], case: tuple[str, bool]
) -> None:
    point, is_edited = case
    out, pair = export(program, task, "imagefolder"), pair_at(task, 3)
    if is_edited:
        (out / CARD).write_text("mine")
    at = point.replace("images", f"train/task/{pair.key}.png")
    pid = start_child(lambda _: forget_and_die(out, pair.key, at))
    assert exit_code_of(pid) == -signal.SIGKILL
    if point in IN_FILES:
        assert run_program(capfd, "check", out, "-q").code == 3
        again = run_program(capfd, "export", task, "--to", "imagefolder", "-o", out, "-q")
        check_refused(again, "export", 4, "--force replaces it")
    program("forget", "--key", pair.key, out)
    found = names_in(out.parent) - {"inputs", *(f"inputs/{one}" for one in names_in(task.parent))}
    kept = {"out", f"out/{CARD}"} if is_edited else set()
    locks = {one for one in found if one.startswith("receipts/.")}  # of the process that was killed
    assert found - locks == kept | {"receipts", "receipts/0001.json"}
    assert traces(out.parent, pair) == [f"inputs/{one}" for one in traces(task.parent, pair)]
    receipt = json.loads((out.parent / "receipts/0001.json").read_text())
    assert (receipt["state"], receipt["keys"]) == ("finished", [pair.key])
    (entry,) = receipt["artifacts"]
    assert (entry["action"], entry["removed"]) == ("deleted", {"train": 1})
    assert f"train/task/{pair.key}.png" in entry["before"]["files"]

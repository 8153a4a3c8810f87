"""No command destroys what is not its own: every writer, and every place it must not write to."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.program import check_refused, run_program
from support.writers import NO_FORCE, SOME_WRITERS, lines

each_writer = pytest.mark.parametrize("writer", SOME_WRITERS)


def tree(root: Path) -> dict[str, object]:
    """Every path below a directory, with the content of files."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


@each_writer
def test_outputs_that_are_not_ours_are_refused_and_nothing_changes(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    writer: str,
) -> None:
    """An unset variable (an empty path), and everything else that a slip may name."""
    words = lines(place)[writer]
    force = [] if writer in NO_FORCE else ["--force"]
    project = tmp_path / "home" / "project"
    for name in ("here", "theirs", "theirs.old", ".theirs.new"):
        (project / name).mkdir(parents=True)
        (project / name / "summary.json").write_text('{"theirs": 1}')
    (project / "notes.txt").write_text("theirs")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(project / "here")
    before, inputs = tree(tmp_path), tree(place)
    refusals = {
        **dict.fromkeys(["", ".", "..", "/", str(tmp_path / "home")], 2),
        str(place): 4 if writer == "sample" else 2,  # it reads nothing there
        **dict.fromkeys(["../theirs", "../notes.txt"], 4),
    }
    for out, code in refusals.items():
        for again in ([], force, force):
            check_refused(run_program(capfd, *words, out, *again), str(words[0]), code)
    assert tree(tmp_path) == before
    assert tree(place) == inputs


@each_writer
def test_an_input_is_not_replaced(
    place: Path, capfd: pytest.CaptureFixture[str], writer: str
) -> None:
    words = lines(place)[writer]
    inputs = [word for word in words if isinstance(word, Path)]
    before = tree(place)
    for given in inputs:
        ended = run_program(capfd, *words, given)
        check_refused(ended, str(words[0]), 2, "is or contains the input")
    assert tree(place) == before

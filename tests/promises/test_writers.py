"""Every writer: what it plans, refuses and replaces, and that it writes where its path leads."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.marks import mostly_slow
from support.program import ProgramResult, check_refused, run_program
from support.writers import NO_FORCE, SOME_WRITERS, WRITERS, lines

from vlcpctl.commands import COMMANDS, command_class
from vlcpctl.core.options import options_of

Run = Callable[..., ProgramResult]
LIMIT = ("--limit 5", "other rows")
SHORT = ["split", "train-step", "eval-retrieval", "ranks", "forgetting-report", "export"]
# Of each writer, what to add to its line for another output, and the word that names it.
OTHER = {
    "sample": ("--seed 1", "seed was 0 and is now 1"),
    "split": ("--seed 1", "seed"),
    "buffer": ("--seed 1", "seed was 0 and is now 1"),
    "train-step": ("--lr 0.5", "settings.lr was"),
    "distill": ("--crop random", "crop"),
    "invert-texts": ("--seed 1", "seed was 0 and is now 1"),
    "merge": ("--rule ema", "rule"),
    "import-checkpoint": ("--run other", "run"),
    **dict.fromkeys(("eval-retrieval", "eval-zeroshot", "eval-probe", "spatial-report"), LIMIT),
    "embeddings": ("--limit 5", "limit"),
    "ranks": ("--limit 5", "limit was [None] and is now [5]"),
    "zero-shot ranks": ("--limit 5", "limit"),
    "forgetting-report": ("--metric rm", "settings"),
    "csv": ("--metric rm", "settings"),
    "latex": ("--metric rm", "settings"),
    "figures": ("--metric rm", "settings"),
    "export": ("--split test", "split"),
}


@pytest.mark.parametrize("writer", mostly_slow(OTHER, kept=SHORT))
def test_a_writer_plans_and_tells_and_refuses_other_settings(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], writer: str
) -> None:
    words, (change, said) = lines(place)[writer], OTHER[writer]
    options = options_of(command_class(str(words[0])))
    out = tmp_path / "out"
    if "dry_run" in options:
        plan = run_program(capfd, *words, out, "--dry-run")
        assert (plan.code, list(tmp_path.iterdir())) == (0, []), plan.err
    made = run_program(capfd, *words, out)
    assert made.code == 0, made.err
    other = run_program(capfd, *words, out, *change.split())
    check_refused(other, str(words[0]), 4, said, "--force")
    if "json" in options:
        (line,) = run_program(capfd, *words, out, "--json").out.splitlines()
        assert words[-1] != "-o" or str(out) in json.loads(line).values() or "schema" in line


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


NO_OUTPUT = {"batch", "check", "methods", "doctor"}
IN_PLACE = {"update", "forget"}  # they change what is there; their own tests have such places
KEEPS_NOTHING = {"junit", "contact sheet"}
SPELLINGS = (
    "on another file system",
    "through a link to another file system",
    "back from a link",
    "relative and with spaces",
    "with a leading dash",
)


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Path]:
    """A directory on another file system than that of `tmp_path`."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is not another file system that can be written to")
    with TemporaryDirectory(dir=memory) as directory:
        yield Path(directory) / "deep" / "er"


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """Runs command lines in `tmp_path/-here`, with a umask that nothing has by default."""
    (tmp_path / "-here").mkdir()
    monkeypatch.chdir(tmp_path / "-here")
    before = os.umask(0o027)
    yield lambda *words: run_program(capfd, *words)
    os.umask(before)


def spelled(tmp_path: Path, far: Path, spelling: str) -> tuple[Path, Path]:
    """A path as it is given, relative to `tmp_path/-here`, and where it really is."""
    far.mkdir(parents=True)
    (tmp_path / "a link").symlink_to(far)
    (tmp_path / "two words").mkdir()
    return {
        SPELLINGS[0]: (far / "out", far / "out"),
        SPELLINGS[1]: (tmp_path / "a link" / "out", far / "out"),
        SPELLINGS[2]: (Path("../a link/../out"), far.parent / "out"),
        SPELLINGS[3]: (Path("../two words/an output"), tmp_path / "two words" / "an output"),
        SPELLINGS[4]: (Path("./-out"), tmp_path / "-here" / "-out"),
    }[spelling]


def modes(made: Path) -> set[tuple[bool, str]]:
    """Whether it is a directory, and the mode, of all that was made: not of links to inputs."""
    found = [path.lstat() for path in (made, *made.rglob("*"))]
    own = {one.st_mode for one in found if stat.S_ISDIR(one.st_mode) or one.st_nlink == 1}
    return {(stat.S_ISDIR(mode), oct(stat.S_IMODE(mode))) for mode in own}


def check_place(run: Run, writer: str, words: list[object], out: Path, real: Path) -> None:
    """The output is there and nothing else is; it is found again, and replaced."""
    around = {path.name for path in real.parent.iterdir()}
    first = run(*words, out)
    assert first.code == 0, first.err
    if words[-1] == "-o":
        printed = first.out.splitlines()[-1]
        assert Path(printed).samefile(real)
        assert not printed.startswith("-")  # another command would take it for an option
    assert {path.name for path in real.parent.iterdir()} == {*around, real.name}
    assert modes(real) <= {(False, "0o640"), (True, "0o750")}
    inode = real.stat().st_ino
    if words[-1] == "-o":
        again = run(*words, out)
        assert (again.code, real.stat().st_ino) == (0, inode), again.err
        assert again.out == first.out
    force = [] if writer in NO_FORCE else ["--force"]
    if force:
        assert run(*words, out, *force).code == 0
        kept = real.parent / f".{real.name}.vlcpctl" / "replaced" / real.name
        assert kept.exists() == (writer not in KEEPS_NOTHING)
        assert real.stat().st_ino != inode


def through_a_link(place: Path, tmp_path: Path) -> Path:
    """The inputs by a relative path with a space, through a link."""
    (tmp_path / "in puts").symlink_to(place)
    return Path("../in puts")


KEPT = [
    *((writer, spelling) for writer in ("buffer", "sample") for spelling in SPELLINGS),
    ("split", SPELLINGS[1]),
    ("forgetting-report", SPELLINGS[1]),
]


@pytest.mark.parametrize(
    "case", mostly_slow([(one, how) for one in WRITERS for how in SPELLINGS], kept=KEPT), ids=str
)
def test_an_output_is_made_where_its_path_leads(
    place: Path, tmp_path: Path, far: Path, run: Run, case: tuple[str, str]
) -> None:
    writer, spelling = case
    words = lines(through_a_link(place, tmp_path))[writer]
    check_place(run, writer, words, *spelled(tmp_path, far, spelling))


def test_every_output_of_every_command_is_tried() -> None:
    wanted = {
        (command, row.short or f"--{name.replace('_', '-')}")
        for command in COMMANDS
        for name, (row, _) in options_of(command_class(command)).items()
        if row.writes
    }
    assert {(words[0], words[-1]) for words in lines(Path()).values()} == wanted
    assert {command for command, _ in wanted} == set(COMMANDS) - NO_OUTPUT - IN_PLACE
    assert {*WRITERS} - OTHER.keys() == {"timings", "junit", "contact sheet"}

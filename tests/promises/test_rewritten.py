"""A task without pairs that `vlcpctl forget` removed is the same task, and other data."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.program import MICRO, TINY, ProgramResult, check_refused, run_program
from support.rewritten import forget_pair

from vlcpctl.data.tasks.task import open_task
from vlcpctl.files.manifest import MANIFESTS, birth_id, read_manifest, rewrite_manifest
from vlcpctl.report.report import read_facts
from vlcpctl.testing.tiny_stream import make_stream

Program = Callable[..., ProgramResult]
Words = tuple[object, ...]

HOW: Words = ("--preset", "tiny", "--batch-size", 4, "--epochs", 1, "--run", "r", "-q")
RING: Words = ("--policy", "ring", "--size", 6, "-q")


@pytest.fixture
def program(capfd: pytest.CaptureFixture[str]) -> Program:
    """Runs a command line in this process."""
    return lambda *words: run_program(capfd, *words)


def tasks_in(place: Path) -> list[Path]:
    return sorted((place / "stream").glob("0*-*"))


def lines(place: Path) -> dict[str, Words]:
    """Command lines that make a chain of two tasks and all that goes with it, in their order."""
    first, second, _ = tasks_in(place)
    model, run, both = place / "00", place / "01", tasks_in(place)[:2]
    return {
        "train-step": ("train-step", first, "-o", model, "--method", "er", *MICRO, *HOW),
        "buffer": ("buffer", first, "-o", place / "buffer-00", *RING),
        "train-step --previous": (
            *("train-step", second, "-o", run, "--method", "modx", *HOW, "--previous", model),
            *("--buffer", place / "buffer-00"),
        ),
        "distill": (
            *("distill", second, "--buffer", place / "buffer-00", "--teacher", model),
            *("--preset", "tiny", "-o", place / "targets", "-q"),
        ),
        **{
            f"eval-retrieval {name}": (
                *("eval-retrieval", *both, "--checkpoint", place / name, "--gallery", "both"),
                *("-o", place / f"{name}.ndjson", "--save-ranks", place / f"{name}.parquet", "-q"),
            )
            for name in ("00", "01")
        },
    }


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command lines make."""
    from vlcpctl import cli

    place = tmp_path_factory.mktemp("before") / "whole"
    make_stream(place / "stream", 3, 12)
    for words in lines(place).values():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", ["vlcpctl", *map(str, words)])
            with pytest.raises(SystemExit) as stop:
                cli.main()
        assert not stop.value.code, words
    return place


def copied(before: Path, name: str, split: str, row: int) -> Path:
    """A copy of everything, from which a pair of the first task is removed."""
    place = before.with_name(name)
    if not place.exists():
        shutil.copytree(before, place)
        forget_pair(tasks_in(place)[0], place, split=split, row=row)
    return place


@pytest.fixture(scope="module")
def copies(before: Path) -> tuple[Path, Path]:
    """Two copies, another pair for tests deleted in each."""
    return copied(before, "a", "test", 0), copied(before, "b", "test", 1)


@pytest.mark.parametrize(
    ("split", "refused"),
    [
        ("train", {"train-step", "buffer", "train-step --previous"}),  # targets are made again
        ("test", {"train-step", "buffer", "eval-retrieval 00", "eval-retrieval 01"}),
    ],
)
def test_a_command_is_finished_if_what_it_reads_is_the_same(
    program: Program, before: Path, split: str, refused: set[str]
) -> None:
    place = copied(before, {"train": "t", "test": "a"}[split], split, 0)
    found = {name: program(*words) for name, words in lines(place).items()}
    codes = {name: one.code for name, one in found.items()}
    assert codes == {name: 4 if name in refused else 0 for name in found}


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def evaluated(program: Program, place: Path, name: str, *more: object) -> Path:
    """New rows of a checkpoint on the tasks of a copy."""
    out = place / f"{name}-again.ndjson"
    words = list(lines(place)[f"eval-retrieval {name}"])
    result = program(*words[: words.index("-o")], "-o", out, "--force", "-q", *more)
    assert result.code == 0, result.err
    return out


def test_nothing_takes_one_copy_for_another(
    program: Program, copies: tuple[Path, Path], tmp_path: Path
) -> None:
    one, other = ({"task": tasks_in(place)[0], "place": place} for place in copies)
    ids = [open_task(copy["task"]).ids for copy in (one, other)]
    assert ids[0][0] == ids[1][0] != ids[0][1] != ids[1][1]
    # Rows and the cache of embeddings: the second copy gets what it gets without a cache.
    cache = ("--embedding-cache", tmp_path / "cache")
    found = [evaluated(program, place, "00", *cache) for place in copies]
    alone = evaluated(program, copies[1], "00")
    assert rows_of(found[1]) == rows_of(alone)
    contents = [rows_of(path)[0]["data_content"] for path in found]
    assert contents[0] != contents[1]
    # Finished outputs.
    words = ("eval-retrieval", other["task"], "--checkpoint", other["place"] / "00", "-q")
    assert program(*words, "-o", tmp_path / "rows").code == 0
    words = ("eval-retrieval", one["task"], "--checkpoint", one["place"] / "00", "-q")
    check_refused(program(*words, "-o", tmp_path / "rows"), "eval-retrieval", 4, "--force")
    assert program("buffer", one["task"], "-o", tmp_path / "buffer", *RING).code == 0
    words = ("buffer", other["task"], "-o", tmp_path / "buffer", *RING)
    check_refused(program(*words), "buffer", 4, "task has other content")
    # A report: as one evaluation they contradict each other, and in one curve there is a note.
    report = ("-o", tmp_path / "report", "-q", "--force")
    refused = program("forgetting-report", *found, *report)
    check_refused(refused, "forgetting-report", 3, "contradicts")
    later = evaluated(program, copies[0], "01")
    assert program("forgetting-report", found[1], later, *report).code == 0
    notes = json.loads((tmp_path / "report" / "summary.json").read_text())["notes"]
    assert any("same samples" in note for note in notes)


def test_a_learned_task_is_not_learned_again(
    program: Program, before: Path, copies: tuple[Path, Path], tmp_path: Path
) -> None:
    """Whichever of its copies was learned."""
    first, out = tasks_in(copies[0])[0], tmp_path / "out"
    words = ("train-step", first, "-o", out, *TINY, "--previous", before / "01")
    check_refused(program(*words), "train-step", 2, "was already trained on", first)
    words = ("train-step", first, tasks_in(copies[1])[0], "-o", out, *TINY)
    check_refused(program(*words), "train-step", 2, "contains the same task as")
    words = ("train-step", first, "--buffer", before / "buffer-00", "-o", out, *TINY, *MICRO)
    check_refused(program(*words), "train-step", 2, "contains pairs of", first)
    words = ("buffer", first, "--previous", before / "buffer-00", "-o", out, *RING)
    check_refused(program(*words), "buffer", 3, "was already updated with", first)


def test_a_later_task_is_known_when_its_directory_is_gone(
    program: Program, before: Path, tmp_path: Path
) -> None:
    place = Path(shutil.copytree(before / "stream", tmp_path / "stream")).parent
    first, second, _ = tasks_in(place)
    assert program("buffer", second, "-o", tmp_path / "buffer", *RING).code == 0
    forget_pair(second)
    shutil.rmtree(second)
    words = ("train-step", first, "--buffer", tmp_path / "buffer", "-o", tmp_path / "out")
    said = "contains pairs of 01-part-1, later in the stream"
    check_refused(program(*words, *TINY, *MICRO), "train-step", 2, said)


@pytest.mark.parametrize("older", [False, True])
def test_a_chain_goes_on_without_warnings(
    program: Program, before: Path, tmp_path: Path, *, older: bool
) -> None:
    """With a model, a buffer and targets from before a deletion, and as version 0.3 wrote them."""
    place = Path(shutil.copytree(before, tmp_path / "place"))
    for task in tasks_in(place)[:2]:
        forget_pair(task)
    if older:
        for path, kind in ((place / "stream", "stream"), *((t, "task") for t in tasks_in(place))):
            as_0_3(path, kind)
    _, second, third = tasks_in(place)
    buffer = ("buffer", second, "-o", place / "buffer-01", "--previous", place / "buffer-00")
    made = program(*buffer, *RING)
    assert (made.code, made.err) == (0, "")
    words = ("train-step", third, "-o", place / "02", "--method", "modx", *HOW)
    given = ("--previous", place / "01", "--buffer", place / "buffer-01")
    made = program(*words, *given)
    assert (made.code, made.err) == (0, "")
    words = ("eval-retrieval", *tasks_in(place), "--checkpoint", place / "02", "-q")
    steps = [json.loads(line)["task_step"] for line in program(*words).out.splitlines()]
    assert steps == [0, 1, 2]
    assert program("check", place / "stream", place / "02", "-q").code == 0


def as_0_3(path: Path, kind: str) -> None:
    """Write a manifest as version 0.3 did: all earlier content ids in place of the first."""
    found = read_manifest(path, kind)
    own = birth_id(found, path)
    if own != found["content"]:
        body = {name: value for name, value in found.items() if name != "id"}
        for part in (
            *body.get("tasks", ()),
            *dict(body["splits"] if kind == "task" else {}).values(),
        ):
            part.pop("id", None)
        (path / MANIFESTS[kind]).unlink()
        rewrite_manifest(path, kind, {**body, "was": [own]})


def test_rows_before_and_after_make_one_report(
    program: Program, before: Path, copies: tuple[Path, Path], tmp_path: Path
) -> None:
    """Given together, an evaluation without the deleted pairs replaces the one with them."""
    after = [evaluated(program, copies[0], name) for name in ("00", "01")]
    old = [before / f"{name}.ndjson" for name in ("00", "01")]
    found: dict[str, Any] = {}
    facts: dict[str, str] = {}
    for name, rows in {"after": after, "both": [*old, *after], "mixed": [old[0], after[1]]}.items():
        result = program("forgetting-report", *rows, "-o", tmp_path / name, "-q")
        assert result.code == 0, result.err
        found[name] = json.loads((tmp_path / name / "summary.json").read_text())
        facts[name] = (tmp_path / name / "facts.csv").read_text()
    assert facts["both"] == facts["after"]
    assert found["after"]["notes"] == []
    assert ["same samples" in note for note in found["mixed"]["notes"]] == [True]
    scores = [one for one in read_facts(facts["mixed"]) if one["metric"] == "score"]
    assert {one["data"] for one in scores if one["gallery"] == "own"} == {"00-part-0", "01-part-1"}

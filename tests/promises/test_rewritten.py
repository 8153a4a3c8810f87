"""Data that `vlcpctl forget` has rewritten is still the data that was learned, for all commands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.evaluators import EVALUATORS, evaluation, files_besides
from support.program import MICRO, TINY, ProgramResult, check_refused, run_program
from support.rewritten import rewrite_pseudo_texts, rewrite_stream, rewrite_targets, rewrite_task

from vlcpctl.core.manifest import read_manifest
from vlcpctl.testing.tiny_stream import make_stream

Program = Callable[..., ProgramResult]
Words = tuple[object, ...]

HOW: Words = ("--preset", "tiny", "--batch-size", 4, "--epochs", 1, "--run", "r")
RING: Words = ("--policy", "ring", "--size", 6)


@pytest.fixture
def program(capfd: pytest.CaptureFixture[str]) -> Program:
    """Runs a command line in this process."""
    return lambda *words: run_program(capfd, *words)


def lines(place: Path) -> dict[str, Words]:
    """Command lines that make a chain of two tasks and all that goes with it, in their order."""
    first, second = place / "stream" / "00-part-0", place / "stream" / "01-part-1"
    model, buffer, run = place / "00", place / "buffer-00", place / "01"
    tasks, both = (first, second), ("--checkpoint", model, "--checkpoint", run)
    replay = ("--previous", model, "--buffer", buffer)
    targets, texts = place / "targets", place / "texts.parquet"
    return {
        "train-step": ("train-step", first, "-o", model, "--method", "modx", *MICRO, *HOW),
        "buffer": ("buffer", first, "-o", buffer, *RING),
        "stored features": (
            *("buffer", first, "-o", place / "features", *RING),
            *("--checkpoint", model, "--store-features"),
        ),
        "a share of the stream": (
            *("buffer", first, "-o", place / "share", "--size", "20%", "--of", "stream"),
        ),
        "distill": (
            *("distill", second, "--buffer", buffer, "--teacher", model),
            *("--preset", "tiny", "-o", targets),
        ),
        "invert-texts": (
            *("invert-texts", "--checkpoint", model, "--buffer", buffer),
            *("--count", 10, "--iterations", 1, "-o", texts),
        ),
        "train-step --targets": (
            *("train-step", second, "-o", run, "--method", "modx", *HOW),
            *(*replay, "--targets", targets),
        ),
        "train-step --pseudo-texts": (
            *("train-step", second, "-o", place / "inc", "--method", "incclip", *HOW),
            *(*replay, "--pseudo-texts", texts, "--set", "incclip.count=4", "--fresh-state"),
        ),
        "buffer --previous": (
            *("buffer", second, "-o", place / "buffer-01", "--previous", buffer, *RING),
        ),
        "interpolate": ("interpolate", model, run, "-o", place / "average"),
        "merge": ("merge", run, "-o", place / "merged", "--rule", "ties", "--base", model),
        **{
            name: (
                *evaluation(name, tasks, (model, run)),
                *("-o", place / f"{name}.ndjson", *files_besides(name, place / f"{name}.files")),
            )
            for name in EVALUATORS
        },
        "merged": (
            "eval-retrieval",
            *tasks,
            *both,
            "--gallery",
            "both",
            "-o",
            place / "rows.ndjson",
        ),
    }


LINES = tuple(lines(Path()))


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command lines make."""
    from vlcpctl import cli

    place = tmp_path_factory.mktemp("before")
    make_stream(place / "stream", 3, 12)
    for words in lines(place).values():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", ["vlcpctl", *map(str, words), "-q"])
            with pytest.raises(SystemExit) as stop:
                cli.main()
        assert not stop.value.code, words
    return place


@pytest.fixture(scope="module")
def place(before: Path) -> Path:
    """The same after one pair for training and one for tests were removed, wherever they are."""
    shutil.copytree(before, before / "as it was", ignore=lambda *_: ["as it was"])
    stream, buffers = before / "stream", ("buffer-00", "buffer-01", "features", "share")
    keys = [rewrite_stream(stream, stream / "00-part-0"), rewrite_task(before / "buffer-00")]
    rewrite_stream(stream, stream / "00-part-0", "test")
    rewrite_stream(stream, stream / "01-part-1", "test")
    for name in buffers[1:]:
        rewrite_task(before / name)
    rewrite_targets(before / "targets", keys[1])
    rewrite_pseudo_texts(before / "texts.parquet")
    return before


def as_it_was(place: Path) -> Path:
    return place / "as it was"


def written(place: Path) -> dict[str, int]:
    """When each file that the command lines make was written."""
    made = [one for path in place.iterdir() if path.name != "stream" for one in path.rglob("*")]
    files = [path for path in (*made, *place.glob("*.*")) if path.is_file()]
    return {str(path): path.stat().st_mtime_ns for path in files}


@pytest.mark.parametrize("name", LINES)
def test_a_finished_command_is_finished_when_its_data_were_rewritten(
    program: Program, place: Path, name: str
) -> None:
    times = written(place)
    for root in (place, as_it_was(place)):  # what was not rewritten is not affected
        result = program(*lines(root)[name])
        assert result.code == 0, result.err
    assert written(place) == times


def test_other_settings_are_still_refused(program: Program, place: Path) -> None:
    words = [*lines(place)["train-step --targets"], "--seed", 3]
    check_refused(program(*words, "-q"), "train-step", 4, "seed was 0 and is now 3")
    words = [*lines(place)["invert-texts"], "--images", 2]
    check_refused(program(*words, "-q"), "invert-texts", 4, "inversion.texts was 6 and is now 2")


def test_a_command_on_other_data_is_not_finished(program: Program, place: Path) -> None:
    """The task as it was does not know that the artifact here was made after it was rewritten."""
    old = as_it_was(place) / "stream" / "00-part-0"
    made = program("buffer", place / "stream" / "00-part-0", "-o", place / "later", *RING, "-q")
    assert made.code == 0
    words = ("buffer", old, "-o", place / "later", *RING, "-q")
    check_refused(program(*words), "buffer", 4, "task was")


def test_rewritten_artifacts_have_no_problems(program: Program, place: Path) -> None:
    made = ("stream", "buffer-00", "buffer-01", "features", "targets", "00", "01")
    result = program("check", "--deep", *(place / name for name in made), "-q")
    assert result.code == 0, result.out + result.err


def test_a_task_whose_stream_was_not_rewritten_is_the_one_it_lists(
    program: Program, place: Path, tmp_path: Path
) -> None:
    stream = shutil.copytree(as_it_was(place) / "stream", tmp_path / "stream")
    rewrite_task(stream / "00-part-0")
    assert program("check", stream, "-q").code == 0
    words = ("eval-zeroshot", stream / "01-part-1", "--checkpoint", place / "01", "-q")
    assert program(*words).code == 0


def test_an_old_copy_is_not_the_task_of_a_rewritten_stream(
    program: Program, place: Path, tmp_path: Path
) -> None:
    stream = shutil.copytree(place / "stream", tmp_path / "stream")
    shutil.rmtree(stream / "00-part-0")
    shutil.copytree(as_it_was(place) / "stream" / "00-part-0", stream / "00-part-0")
    result = program("check", stream, "-q")
    assert result.code == 3
    assert "is not the task listed in stream.json" in result.out + result.err


def trained(program: Program, task: Path, out: Path, *words: object) -> ProgramResult:
    result = program("train-step", task, "-o", out, *HOW, "--method", "er", *words)
    assert result.code == 0, result.err
    return result


def test_a_chain_goes_on_with_rewritten_data_without_warnings(
    program: Program, place: Path, tmp_path: Path
) -> None:
    third, model = place / "stream" / "02-part-2", place / "01"
    for buffer in (place / "buffer-01", as_it_was(place) / "buffer-01"):
        made = program(
            "buffer", third, "-o", tmp_path / buffer.parent.name, *RING, "--previous", buffer
        )
        assert (made.code, "warning" in made.err) == (0, False), made.err
        out = tmp_path / f"{buffer.parent.name} 02"
        words = ("--method", "modx", "--previous", model, "--buffer", buffer)
        result = trained(program, third, out, *words)
        assert "warning" not in result.err
        assert "data_was" not in read_manifest(out, "checkpoint"), "it learned the old ones"


def test_a_learned_task_is_not_learned_again(program: Program, place: Path, tmp_path: Path) -> None:
    first, out = place / "stream" / "00-part-0", tmp_path / "out"
    words = ("train-step", first, "-o", out, *TINY, "--previous", place / "01")
    check_refused(program(*words), "train-step", 2, "was already trained on", first)
    words = ("train-step", first, as_it_was(place) / "stream" / "00-part-0", "-o", out, *TINY)
    check_refused(program(*words), "train-step", 2, "contains the same task as")
    words = ("train-step", first, "--buffer", place / "buffer-01", "-o", out, *TINY, *MICRO)
    check_refused(program(*words), "train-step", 2, "contains pairs of", first)
    words = ("buffer", first, "--previous", place / "buffer-01", "-o", out, *RING, "-q")
    check_refused(program(*words), "buffer", 3, "was already updated with", first)


def test_a_later_task_is_known_by_its_new_id(program: Program, place: Path, tmp_path: Path) -> None:
    """Here the buffer has the id from before, and the stream lists the new one."""
    stream = shutil.copytree(as_it_was(place) / "stream", tmp_path / "stream")
    buffer = tmp_path / "buffer"
    assert program("buffer", stream / "01-part-1", "-o", buffer, *RING, "-q").code == 0
    rewrite_stream(stream, stream / "01-part-1")
    for name in ("01-part-1", "nowhere"):  # the stream itself records it, too
        words = ("train-step", stream / "00-part-0", "--buffer", buffer, "-o", tmp_path / "out")
        result = program(*words, *TINY, *MICRO)
        check_refused(result, "train-step", 2, "contains pairs of 01-part-1, later in the stream")
        words = ("buffer", stream / "00-part-0", "--previous", buffer, "-o", tmp_path / "out")
        result = program(*words, *RING, "--dry-run")
        assert "--previous contains pairs of 01-part-1, later in the stream" in result.err
        if name != "nowhere":
            (stream / name).rename(stream / "nowhere")


@pytest.fixture(scope="module")
def later(place: Path) -> Path:
    """A checkpoint and a buffer of the first task that were made after it was rewritten."""
    from vlcpctl.commands import buffer, train_step

    first, root = place / "stream" / "00-part-0", place / "made later"
    how = {"preset": "tiny", "model": "micro", "batch_size": 4, "epochs": 1, "quiet": True}
    train_step.run([first], root / "00", "er", run_name="r", **how)  # type: ignore[arg-type]
    buffer.run(first, root / "buffer", policy="ring", size="6", quiet=True)
    return root


def test_what_is_made_later_records_the_earlier_ids(place: Path, later: Path) -> None:
    task = read_manifest(place / "stream" / "00-part-0", "task")
    assert len(task["was"]) == 2
    for name, kind in (("00", "checkpoint"), ("buffer", "task")):
        assert read_manifest(later / name, kind)["data_was"] == {task["content"]: task["was"]}


@pytest.mark.parametrize("made", [("00", "buffer-00"), ("00", "made later/buffer")])
@pytest.mark.parametrize("model", ["00", "made later/00", "as it was/00"])
def test_a_model_and_a_buffer_of_different_versions_fit(
    program: Program, place: Path, later: Path, tmp_path: Path, model: str, made: tuple[str, str]
) -> None:
    second = place / "stream" / "01-part-1"
    given = ("--previous", place / model, "--buffer", place / made[1], "--dry-run")
    words = ("train-step", second, "-o", tmp_path / "01", "--method", "modx", *HOW, *given)
    result = program(*words)
    found = [line for line in result.err.splitlines() if "warning" in line and "run:" not in line]
    assert (result.code, found) == (0, []), result.err


def test_an_old_copy_of_a_task_that_was_learned_later_is_known(
    program: Program, place: Path, later: Path, tmp_path: Path
) -> None:
    old, out = as_it_was(place) / "stream" / "00-part-0", tmp_path / "out"
    words = ("train-step", old, "-o", out, *TINY, "--previous", later / "00")
    check_refused(program(*words), "train-step", 2, "was already trained on", old)
    words = ("buffer", old, "--previous", later / "buffer", "-o", out, *RING, "-q")
    check_refused(program(*words), "buffer", 3, "was already updated with", old)
    rows = program("eval-retrieval", old, "--checkpoint", later / "00", "-q")
    assert json.loads(rows.out)["task_step"] == 0
    average = tmp_path / "average"
    words = ("interpolate", later / "00", as_it_was(place) / "00", "-o", average, "-q")
    assert program(*words).code == 0
    found = read_manifest(average, "checkpoint")
    assert found["tasks"] == read_manifest(as_it_was(place) / "00", "checkpoint")["tasks"]
    assert program("check", average, "-q").code == 0


@pytest.mark.parametrize("made", ["", "as it was"])
@pytest.mark.parametrize("name", ["train-step --targets", "train-step --pseudo-texts"])
def test_what_was_computed_from_the_data_before_still_fits(
    program: Program, place: Path, tmp_path: Path, made: str, name: str
) -> None:
    words = list(lines(place)[name])
    words[words.index("-o") + 1] = tmp_path / "another"
    option = words.index(name.split()[1])
    words[option + 1] = place / made / words[option + 1].name  # type: ignore[attr-defined]
    result = program(*words, "--dry-run")
    assert (result.code, "finished" in result.err) == (0, False), result.err


def test_targets_of_fewer_pairs_than_the_data_say_why(
    program: Program, place: Path, tmp_path: Path
) -> None:
    old = as_it_was(place)
    words = ("--previous", place / "00", "--buffer", old / "buffer-00", "--dry-run")
    targets = ("--targets", place / "targets", "--method", "modx", *HOW)
    result = program(
        "train-step", place / "stream" / "01-part-1", "-o", tmp_path / "out", *words, *targets
    )
    assert result.code == 5
    assert "'vlcpctl forget' has removed pairs from the targets" in result.err


def test_rows_before_and_after_make_one_report(
    program: Program, place: Path, tmp_path: Path
) -> None:
    stream = place / "stream"
    evaluate = ("eval-retrieval", stream / "00-part-0", stream / "01-part-1", "--gallery", "both")
    after, rows = tmp_path / "after.ndjson", as_it_was(place) / "rows.ndjson"
    assert program(*evaluate, "--checkpoint", place / "01", "-o", after, "-q").code == 0
    early = tmp_path / "early.ndjson"
    texts = [line for line in rows.read_text().splitlines() if json.loads(line)["step"] == 0]
    early.write_text("\n".join(texts) + "\n")
    result = program("forgetting-report", early, after, "-o", tmp_path / "report", "-q")
    assert result.code == 0, result.err
    summary = json.loads((tmp_path / "report" / "summary.json").read_text())
    notes = [note for note in summary["notes"] if "vlcpctl forget" in note]
    assert len(notes) == 1
    assert not [note for note in summary["notes"] if "not the same" in note or "seeds" in note]
    (track,) = summary["tracks"]
    assert track["runs"][0]["tasks"] == ["00-part-0", "01-part-1"]
    # Given together with its rows of before, an evaluation of the rewritten data replaces them.
    both = program("forgetting-report", rows, after, "-o", tmp_path / "both", "-q")
    assert both.code == 0, both.err
    assert (tmp_path / "both" / "report.md").read_text() == (
        tmp_path / "report" / "report.md"
    ).read_text()


def test_a_run_is_inspected_together_with_its_rewritten_data(
    program: Program, place: Path, tmp_path: Path
) -> None:
    here = tmp_path / "far" / "from" / "the old copy"
    for name in ("00", "01", "stream"):
        shutil.copytree(place / name, here / name)
    result = program("inspect", here / "01")
    task = read_manifest(here / "stream" / "00-part-0", "task")
    assert f"rewritten by 'vlcpctl forget', was {task['was'][1]}, {task['was'][0]}" in result.out
    assert str(here / "stream" / "00-part-0") in result.out
    assert "not found nearby" not in result.out
    shutil.copy(place / "texts.parquet", here)
    facts = json.loads(program("inspect", here / "texts.parquet", "--json").out)
    assert len(facts["was"]) == 1

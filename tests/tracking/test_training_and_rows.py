"""--log in the program: points once, names as in metrics.jsonl, and the same bytes as without."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from support.processes import exit_code_of, run_line, start_child, wait_until
from support.program import MICRO, TINY, make_inputs, run_program
from support.wandb_file import OfflineRun, offline_runs

from vlcpctl.testing.battery import TrainingWorld, in_child, request
from vlcpctl.tracking.trackers import EVALUATION, TrackedRun
from vlcpctl.training.train_step import train_step

Points = dict[str, list[tuple[int, float]]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


def points(directory: Path) -> Points:
    """What TensorBoard shows of a directory of event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory), size_guidance={"scalars": 0}).Reload()
    return {
        name: [(one.step, one.value) for one in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def journal(checkpoint: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (checkpoint / "metrics.jsonl").read_text().splitlines()]


def test_a_resumed_run_writes_each_point_once_and_the_same_bytes(
    world: TrainingWorld, tmp_path: Path
) -> None:
    """EWC measures after it trained: its steps come after those of the training."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = (f"tensorboard:{tmp_path / 'board'}",)
    plain = request(world, "ewc", 0, tmp_path / "plain", buffered=False)
    step = request(world, "ewc", 0, tmp_path, buffered=False, log=log, save_every="3")

    def fail(point: str) -> None:
        if point == "step=3":
            raise KeyError(point)

    with pytest.raises(KeyError):
        train_step(step, fail)
    board = tmp_path / "board" / "ewc" / "00-part-0"
    assert [number for number, _ in points(board)["loss"]] == [0, 1, 2, 3]
    train_step(step)
    train_step(plain)
    for file in ("metrics.jsonl", "open_clip_model.safetensors"):
        assert (tmp_path / "00" / file).read_bytes() == (plain.out / file).read_bytes()
    found = points(board)
    rows = journal(step.out)
    trained = [row["loss"] for row in rows if row["phase"] == "train"]
    assert found["loss"] == [(n, pytest.approx(loss)) for n, loss in enumerate(trained)]
    (settings,) = EventAccumulator(str(board)).Reload().Tensors("settings/text_summary")
    assert b"    method = ewc\n" in settings.tensor_proto.string_val[0]  # once, not when it resumes
    measured = [number for number, _ in found["ewc/importance/loss"]]
    assert measured == list(range(len(trained), len(rows)))


@pytest.mark.slow
@pytest.mark.dist
def test_of_several_processes_only_the_first_logs(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As one event file with each point once."""
    log = ("--log", f"tensorboard:{tmp_path / 'board'}")
    words = (
        "train-step",
        place / "stream/00-part-0",
        "-o",
        tmp_path / "00",
        *TINY,
        *MICRO,
        "--nproc",
        2,
    )
    done = run_program(capfd, *words, *log)
    assert done.code == 0, done.err
    files = [one for one in (tmp_path / "board").rglob("*") if one.is_file()]
    assert len(files) == 1
    losses = [row["loss"] for row in journal(tmp_path / "00")]
    assert points(files[0].parent)["loss"] == [
        (number, pytest.approx(loss)) for number, loss in enumerate(losses)
    ]


def test_rows_are_logged_at_the_step_of_the_stream(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = place / "stream" / "01-part-1"
    words = ("eval-retrieval", task, "--checkpoint", place / "plain", "--json", "-q")
    log = ("--log", f"tensorboard:{tmp_path / 'board'}")
    plain = run_program(capfd, *words)
    assert run_program(capfd, *words, *log) == plain
    row = json.loads(plain.out)
    found = points(tmp_path / "board" / "seqf" / "eval")
    assert found == {
        f"retrieval/01-part-1/{name}": [(0, pytest.approx(value, rel=1e-6))]
        for name, value in row["metrics"].items()
        if value is not None
    }


def test_rows_are_on_disk_before_the_log_is_closed(tmp_path: Path) -> None:
    """A signal may end an evaluation after any row."""
    from vlcpctl.tracking.trackers import TensorBoardTracker

    run = TrackedRun(run="a", seed=0, part=EVALUATION, id="x")
    tracker = TensorBoardTracker(str(tmp_path), run)
    tracker.log({"rm": 50.0}, 1)
    assert points(tmp_path / "a" / "eval") == {"rm": [(1, 50.0)]}
    tracker.close(0)


def in_offline(words: tuple[object, ...], directory: Path) -> int:
    """The exit code of a command in a child whose W&B writes to the directory."""
    log = directory / "log"
    offline = {"WANDB_MODE": "offline", "WANDB_DIR": directory}
    return exit_code_of(start_child(lambda _: run_line(words, log), **offline))  # type: ignore[arg-type]


def ended_runs(directory: Path, count: int) -> list[OfflineRun]:
    """The offline runs, once W&B's own process has written the end of each: it may outlive ours."""

    def have_ended() -> bool:
        codes = [one.exit_code for one in offline_runs(directory)]
        return len(codes) == count and None not in codes

    wait_until(have_ended)
    return offline_runs(directory)


def test_wandb_offline_has_the_rows_of_the_journal(place: Path, tmp_path: Path) -> None:
    task, out = place / "stream" / "00-part-0", tmp_path / "out"
    words = ("train-step", task, *TINY, "--model", "micro", "--seed", 3, "-o", out)
    assert in_offline((*words, "--log", "wandb:demo"), tmp_path) == 0
    assert (tmp_path / "log.out").read_text() == f"{out}\n"
    assert (tmp_path / "log.err").read_text() == ""
    (found,) = offline_runs(tmp_path)
    rows = [
        {name: value for name, value in row.items() if name not in {"phase", "step"}}
        for row in journal(out)
    ]
    assert found.history == list(enumerate(rows))
    assert (found.about.project, found.about.run_group) == ("demo", "ctp-seed3")
    assert (found.about.display_name, found.about.job_type) == ("ctp-seed3/00-part-0", "train-step")
    assert (found.config["batch_size"], found.exit_code) == (4, 0)


@pytest.mark.slow
def test_wandb_offline_has_the_rows_of_evaluations_and_ends_with_the_signal(
    place: Path, tmp_path: Path
) -> None:
    """The signal comes after the first row, when W&B has it in memory only."""
    from vlcpctl.tracking.row_log import RowLog

    log = RowLog.log

    def log_then_end(self: RowLog, row: dict[str, object]) -> None:
        log(self, row)
        os.kill(os.getpid(), signal.SIGINT)

    RowLog.log = log_then_end  # type: ignore[method-assign, assignment]
    try:
        tasks = [place / "stream" / f"0{n}-part-{n}" for n in range(2)]
        words = ("eval-retrieval", *tasks, "--checkpoint", place / "plain", "-q")
        code = in_offline((*words, "--log", "wandb:demo"), tmp_path)
    finally:
        RowLog.log = log  # type: ignore[method-assign]
    assert code == 128 + signal.SIGINT, (tmp_path / "log.err").read_text()
    (found,) = ended_runs(tmp_path, 1)
    assert found.exit_code == 1
    assert found.x_axes == {"*": "stream_step"}
    ((_, values),) = found.history
    assert values["stream_step"] == 0
    assert "retrieval/00-part-0/rm" in values


@pytest.mark.slow
def test_a_signal_in_training_saves_and_ends_with_75_with_wandb(
    world: TrainingWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    step = request(world, "seqf", 0, tmp_path, buffered=False)
    step = replace(step, log=("wandb:demo",))

    def observe(point: str) -> None:
        if point == "step=2":
            os.kill(os.getpid(), signal.SIGTERM)

    assert in_child(step, observe) != 0
    train_step_in_child = in_child(step, lambda _: None)
    assert train_step_in_child == 0
    first, second = ended_runs(tmp_path, 2)
    assert (first.exit_code, second.exit_code) == (75, 0)
    assert first.about.run_id == second.about.run_id
    steps = [number for one in (first, second) for number, _ in one.history]
    assert steps == list(range(len(journal(step.out))))

"""`vlcpctl watch`: the state of a train-step from the files it writes, whatever happens to them."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from support.checkpoints import write_checkpoint_manifest
from support.program import check_refused, run_program

from vlcpctl.commands import watch
from vlcpctl.core.errors import Diverged
from vlcpctl.files.outputs import Output
from vlcpctl.inspection import live_run
from vlcpctl.inspection.live_run import LiveRun, RunState, last_below, running_below
from vlcpctl.inspection.live_view import BLOCKS, chart, line, view
from vlcpctl.testing.battery import TrainingWorld, in_child, kill_at, make_world, request
from vlcpctl.training.loop import metrics_log
from vlcpctl.training.loop.state import Ended, PhaseSteps, ProgressFile
from vlcpctl.training.train_step import train_step

PHASES = (PhaseSteps("train", 0, 40), PhaseSteps("fisher", 0, 10))


def row(step: int, **fields: object) -> str:
    made = {"phase": "train", "step": step, "loss": 9.0 - step / 10, "contrastive": 4.0, "lr": 1e-3}
    return json.dumps({**made, **fields}) + "\n"


VALIDATED = json.dumps({"phase": "train", "step": 19, "val_loss": 3.0}) + "\n"


class FakeRun:
    """The files of a train-step that this test writes in its place."""

    def __init__(self, out: Path) -> None:
        self.out, self.staging = out, Output(out)
        self.journal = self.staging.partial / "metrics.jsonl"
        self.facts = ProgressFile(
            phases=PHASES,
            run="ctp",
            method="ctp",
            tasks=("People & Body",),
            batch_size=64,
            epoch_steps=20,
            first=0,
        )

    def start(self, **facts: Any) -> None:
        """Start to train, or to resume."""
        self.staging.open_partial()
        self.facts = replace(self.facts, **facts)
        self.facts.write(self.staging.partial)

    def write(self, *lines: str) -> None:
        with self.journal.open("a") as file:
            file.writelines(lines)

    def finish(self) -> None:
        """Write the checkpoint in the place of the state."""
        self.out.mkdir()
        (self.out / "metrics.jsonl").write_text(self.journal.read_text())
        write_checkpoint_manifest(self.out, "c0", pairs=2560, train_seconds=20.0)
        self.staging.drop_partial()

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Within the block, a process holds the lock."""
        with self.staging.locked():
            yield


@pytest.fixture
def fake(tmp_path: Path) -> FakeRun:
    return FakeRun(tmp_path / "runs" / "01")


def test_a_running_step_shows_progress_rate_and_time_left(fake: FakeRun) -> None:
    fake.start(started=time.time() - 10)
    fake.write(*(row(step) for step in range(20)), VALIDATED)
    with fake.alive():
        state = LiveRun(fake.out).look()
    assert (state.status, state.phase, state.done, state.total) == ("running", "train", 20, 50)
    assert state.rate == pytest.approx(2.0, rel=0.1)
    assert state.left_s == pytest.approx(15, rel=0.1)
    assert state.pairs_per_second == pytest.approx(128, rel=0.1)
    assert state.terms == {"loss": pytest.approx(7.1), "contrastive": 4.0}
    assert state.validation == {"step": 19, "val_loss": 3.0}
    shown = line(state)
    assert "train 20/40, in all 20/50 steps (40%)" in shown
    assert "loss 7.1 (-17.0%)" in shown
    assert shown.endswith("validation after step 20: val_loss 3")


def test_steps_of_an_earlier_process_are_not_in_the_rate(fake: FakeRun) -> None:
    fake.start(started=time.time() - 10, first=20)
    fake.write(*(row(step) for step in range(30)))
    with fake.alive():
        assert LiveRun(fake.out).look().rate == pytest.approx(1.0, rel=0.1)


def test_the_rate_is_that_of_the_last_half_minute(
    fake: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(live_run.time, "monotonic", lambda: now[0])
    fake.start(started=time.time() - 500)
    live = LiveRun(fake.out)
    step = 0
    with fake.alive():
        for seconds, steps in ((0, 1), (100, 1), (1, 2), (10, 10), (10, 10), (15, 15)):
            now[0] += seconds
            fake.write(*(row(at) for at in range(step, step + steps)))
            step += steps
            state = live.look()
    assert state.done == 39
    assert state.rate == pytest.approx(1.0)  # the step that took 100 s is no longer in it
    assert state.left_s == pytest.approx(11)


def test_the_rate_starts_again_after_a_resume(
    fake: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(live_run.time, "monotonic", lambda: now[0])
    fake.start()
    fake.write(row(0))
    live = LiveRun(fake.out)
    with fake.alive():
        live.look()
        now[0] += 20
        fake.start(started=time.time() - 4, first=1)
        fake.write(*(row(at) for at in range(1, 9)))
        assert live.look().rate == pytest.approx(2.0, rel=0.2)  # 8 steps in 4 s, not in 20 s


def test_the_line_has_the_last_validation_the_rates_and_no_learning_rate(fake: FakeRun) -> None:
    fake.start(started=time.time() - 10)
    fake.write(*(row(step) for step in range(20)), VALIDATED)
    fake.write(json.dumps({"phase": "train", "step": 19, "val_loss": 2.5}) + "\n")
    with fake.alive():
        state = LiveRun(fake.out).look()
    shown = line(state)
    assert state.rate is not None
    assert f", {state.rate:.1f} steps/s, {state.rate * 64:.0f} pairs/s, 1" in shown
    assert shown.endswith("validation after step 20: val_loss 2.5")
    assert "lr " not in shown


def test_a_process_on_another_host_runs_as_long_as_it_writes(fake: FakeRun) -> None:
    fake.start(host="elsewhere")
    fake.write(row(0))
    assert LiveRun(fake.out).look().status == "running"
    os.utime(fake.journal, (time.time() - 300,) * 2)
    assert LiveRun(fake.out).look().status == "died"


def test_a_run_that_was_killed_after_its_checkpoint_is_finished(fake: FakeRun) -> None:
    fake.start(started=time.time() - 60)
    fake.write(row(0))
    kept = (fake.journal.read_text(), fake.facts)
    fake.finish()
    fake.staging.open_partial()
    fake.journal.write_text(kept[0])
    kept[1].write(fake.staging.partial)
    assert LiveRun(fake.out).look().status == "finished"
    replace(kept[1], started=time.time() + 60).write(fake.staging.partial)
    assert LiveRun(fake.out).look().status == "died"  # a later process, to replace the checkpoint


def test_a_journal_that_was_cut_is_read_again(fake: FakeRun) -> None:
    fake.start()
    fake.write(*(row(step) for step in range(9)))
    live = LiveRun(fake.out)
    with fake.alive():
        live.look()
        fake.journal.write_text("".join(row(step) for step in range(4)))
        assert len(live.look().recent["loss"]) == 4


def test_of_several_runs_the_newest_is_followed(tmp_path: Path) -> None:
    runs = [FakeRun(tmp_path / name) for name in ("a", "b", "c")]
    with ExitStack() as stack:
        for one, age in zip(runs, (30, 10, 20), strict=True):
            one.start()
            one.write(row(0))
            os.utime(one.journal, (time.time() - age,) * 2)
            stack.enter_context(one.alive())
        assert [out.name for out in running_below(tmp_path)] == ["b", "c", "a"]
    assert last_below(tmp_path) == tmp_path / "b"
    runs[0].finish()
    os.utime(runs[0].out / "metrics.jsonl", (time.time() + 1,) * 2)
    assert last_below(tmp_path) == tmp_path / "a"


def test_the_next_run_of_a_directory_is_followed_after_the_first(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = FakeRun(tmp_path / "00"), FakeRun(tmp_path / "01")
    stack, now = ExitStack(), [0.0]

    def start(one: FakeRun) -> None:
        stack.enter_context(one.alive())
        one.start()
        one.write(row(0))

    def finish(one: FakeRun) -> None:
        one.finish()
        stack.close()

    start(first)
    # What happens while watch sleeps: a row, nothing, the end, a pause, the next run, its end.
    happens = iter(
        [
            lambda: first.write(row(1)),
            lambda: None,
            lambda: finish(first),
            lambda: None,
            lambda: start(second),
            lambda: finish(second),
        ]
    )

    def sleep(seconds: float) -> None:
        now[0] += seconds
        next(happens, lambda: None)()

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: now[0])
    monkeypatch.setattr(watch, "time", clock)
    ended = run_program(capfd, "watch", tmp_path)
    assert ended.code == 0, ended.err
    shown = [text.partition(": ") for text in ended.out.splitlines()]
    assert [(Path(path).name, text.split(" (")[0]) for path, _, text in shown] == [
        ("00", "train 1/40, in all 1/50 steps"),
        ("00", "train 2/40, in all 2/50 steps"),  # once, though it was looked at twice
        ("00", "finished; trained 2 steps on 2560 pairs in 20 s"),
        ("01", "train 1/40, in all 1/50 steps"),
        ("01", "finished; trained 1 step on 2560 pairs in 20 s"),
    ]


def test_a_later_phase_adds_to_the_steps_before_it(fake: FakeRun) -> None:
    fake.start()
    fake.write(row(39), row(4, phase="fisher"))
    with fake.alive():
        state = LiveRun(fake.out).look()
    assert (state.phase, state.phase_done, state.phase_steps, state.done) == ("fisher", 5, 10, 45)
    assert state.recent["loss"] == (pytest.approx(8.6),)


def test_a_torn_line_waits_for_its_end(fake: FakeRun) -> None:
    fake.start()
    live = LiveRun(fake.out)
    fake.write(row(0), row(1)[:30])
    with fake.alive():
        assert live.look().done == 1
        fake.write(row(1)[30:])
        assert live.look().done == 2


def test_a_resumed_run_is_read_again(fake: FakeRun) -> None:
    fake.start()
    fake.write(*(row(step) for step in range(8)))
    live = LiveRun(fake.out)
    with fake.alive():
        assert live.look().done == 8
        # Cut back to step 4, and grown beyond its earlier size by rows of other lengths.
        fake.journal.write_text("".join(row(step) for step in range(4)))
        fake.start(started=fake.facts.started + 60, first=4)
        fake.write(*(row(step, more=step / 7) for step in range(4, 12)))
        state = live.look()
    assert (state.done, len(state.recent["loss"])) == (12, 12)


def test_a_replaced_journal_is_read_again(fake: FakeRun) -> None:
    fake.start()
    fake.write(*(row(step) for step in range(3)))
    live = LiveRun(fake.out)
    live.look()
    other = fake.journal.with_suffix(".new")
    other.write_text("".join(row(step) for step in range(9)))
    other.replace(fake.journal)
    with fake.alive():
        assert len(live.look().recent["loss"]) == 9


def test_a_long_journal_is_read_from_its_end(
    fake: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vlcpctl.inspection.journal_tail.MOST_BYTES", 500)
    fake.start()
    fake.write(*(row(step) for step in range(30)))
    with fake.alive():
        state = LiveRun(fake.out).look()
    assert state.done == 30
    assert 2 < len(state.recent["loss"]) < 7


def test_what_is_not_a_row_is_passed_over(fake: FakeRun) -> None:
    fake.start()
    fake.write("[1, 2]\n", "\x00\xff\n", '{"step": "x"}\n', row(2, loss="high"))
    with fake.alive():
        state = LiveRun(fake.out).look()
    assert state.done == 3
    assert state.terms == {"contrastive": 4.0}


def test_numbers_that_are_not_finite_are_passed_over(fake: FakeRun) -> None:
    fake.start()
    fake.write(*(row(step, loss=math.nan if step == 3 else 2.0) for step in range(9)))
    fake.write(json.dumps({"phase": "train", "step": 8, "val_loss": math.inf}) + "\n")
    with fake.alive():
        state = LiveRun(fake.out).look()
    assert "loss 2 (+0.0%)" in line(state)
    view(state, 80, blocks=True)
    assert state.recent["loss"] == (2.0,) * 8
    assert json.loads(json.dumps(state.as_json(), allow_nan=False))["validation"] == {"step": 8}


def test_a_journal_that_moves_while_it_is_looked_for_is_no_error(
    fake: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.start()
    fake.write(row(1))
    assert last_below(fake.out.parent) == fake.out
    shutil.rmtree(fake.staging.hidden)
    monkeypatch.setattr(Path, "exists", lambda _: True)  # as it was a moment ago
    assert live_run._changed(fake.out) == 0


@pytest.mark.parametrize(
    ("ended", "status", "code", "words"),
    [
        (None, "died", 1, "is gone; run the same train-step to continue"),
        (
            Ended(8, "the loss diverged at step 3"),
            "diverged",
            8,
            "diverged: the loss diverged at step",
        ),
        (Ended(75, "stopped after step 3"), "interrupted", 75, "interrupted: stopped after step 3"),
        (Ended(3, "pairs.tar is broken"), "failed", 3, "failed: pairs.tar is broken"),
    ],
)
def test_a_run_that_ended_is_reported_with_its_code(
    fake: FakeRun,
    capfd: pytest.CaptureFixture[str],
    ended: Ended | None,
    status: str,
    code: int,
    words: str,
) -> None:
    fake.start(ended=ended)
    fake.write(row(0), row(1))
    assert LiveRun(fake.out).look().status == status
    result = run_program(capfd, "watch", fake.out)
    assert result.code == code
    assert words in result.err
    assert result.err.startswith(f"vlcpctl watch: {fake.out}: ")
    assert words in result.out
    assert run_program(capfd, "watch", fake.out, "--once").code == 0


def test_a_process_that_loads_its_model_is_starting(fake: FakeRun) -> None:
    with fake.alive():
        assert LiveRun(fake.out).look().status == "starting"
        fake.start(pid=1)  # of an earlier process
        assert LiveRun(fake.out).look().status == "starting"


def test_a_run_is_waited_for_and_followed_to_its_end(
    fake: FakeRun, capfd: pytest.CaptureFixture[str]
) -> None:
    def train() -> None:
        time.sleep(0.3)
        with fake.alive():
            fake.start()
            fake.write(row(0))
            time.sleep(0.3)
            fake.write(row(1))
            fake.finish()

    fake.out.parent.mkdir()
    thread = threading.Thread(target=train)
    thread.start()
    ended = run_program(capfd, "watch", fake.out, "--every", "0.1")
    thread.join()
    assert ended.code == 0, ended.err
    shown = [text.removeprefix(f"{fake.out}: ") for text in ended.out.splitlines()]
    assert shown[0] == "not started"
    assert any(text.startswith("train 1/40, in all 1/50 steps (2%)") for text in shown)
    assert shown[-1] == (
        "finished; trained 2 steps on 2560 pairs in 20 s (128 pairs/s); final loss 8.900"
    )


def test_in_a_directory_the_running_step_is_followed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "NEXT_S", 0.1)
    first, second = FakeRun(tmp_path / "ctp" / "00"), FakeRun(tmp_path / "ctp" / "01")
    for one in (first, second):
        one.start()
        one.write(row(0))
    first.finish()
    with second.alive():
        shown = run_program(capfd, "watch", tmp_path, "--once").out
    assert shown.startswith(f"{second.out}: train 1/40")
    second.finish()
    ended = run_program(capfd, "watch", tmp_path)
    assert ended.code == 0
    assert ended.out.startswith(f"{second.out}: finished; ")


def test_what_is_not_a_run_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    check_refused(run_program(capfd, "watch", tmp_path / "file"), "watch", 3, "is a file")
    (tmp_path / "stream.json").write_text("{}")
    check_refused(run_program(capfd, "watch", tmp_path), "watch", 3, "is a stream")


def test_json_is_one_object_for_each_state(
    fake: FakeRun, capfd: pytest.CaptureFixture[str]
) -> None:
    fake.start()
    fake.write(row(0))
    with fake.alive():
        shown = json.loads(run_program(capfd, "watch", fake.out, "--once", "--json").out)
    assert shown["schema"] == "vlcpctl.watch/1"
    assert (shown["status"], shown["done"], shown["total"]) == ("running", 1, 50)


@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize("blocks", [False, True])
def test_the_view_fits_the_terminal(fake: FakeRun, width: int, *, blocks: bool) -> None:
    fake.start()
    fake.write(*(row(step) for step in range(20)), VALIDATED)
    with fake.alive():
        state = LiveRun(fake.out).look()
    state = replace(state, path=Path("runs/01"))
    console = Console(width=width, force_terminal=True, color_system=None, legacy_windows=False)
    with console.capture() as shown:
        console.print(view(state, width, blocks=blocks))
    lines = shown.get().splitlines()
    assert max(map(len, lines)) <= width
    assert any(re.match(r"loss +7\.1 +-\d", text) for text in lines)
    assert any(BLOCKS[-1] in text for text in lines) == (blocks and width > 40)


def test_equal_values_are_a_flat_chart() -> None:
    assert chart([2.0] * 3, "ab") == "aaa"
    assert chart([]) == ""


def test_no_library_of_models_is_imported(tmp_path: Path) -> None:
    code = f"""
import sys
sys.argv = ["vlcpctl", "watch", {str(tmp_path / "run")!r}, "--once"]
from vlcpctl.cli import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.endswith("run: not started\n")
    assert not {"torch", "numpy", "pyarrow", "rich"} & set(ended.stderr.split())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> TrainingWorld:
    return make_world(tmp_path_factory.mktemp("world"))


def test_a_real_run_is_seen_at_every_point(
    world: TrainingWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_log, "FLUSH_S", 0.0)
    live = LiveRun(tmp_path / "00")
    seen: dict[str, RunState] = {}

    def look(point: str) -> None:
        seen.setdefault(point, live.look())

    train_step(request(world, "ewc", 0, tmp_path, buffered=False), look)
    assert (seen["step=2"].status, seen["step=2"].done) == ("running", 3)
    phases = [state.phase for state in seen.values() if state.status == "running"]
    assert list(dict.fromkeys(phases)) == ["train", "ewc/importance"]
    assert seen["before-rename"].done == seen["before-rename"].total
    assert live.look().status == "finished"
    assert line(live.look()).startswith(f"{tmp_path / '00'}: finished; trained 6 steps on 24 pairs")


def test_a_resumed_run_counts_the_steps_of_all_phases_before_it(
    world: TrainingWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    step = request(world, "ewc", 0, tmp_path, buffered=False, save_every="1")
    seen: list[str] = []
    firsts: list[int] = []

    def fail(point: str) -> None:
        seen.append(point)
        if [one for one in seen if one.startswith("phase=")] and point.startswith("step="):
            raise Diverged("the loss diverged")  # after the first step of the second phase

    def look(_point: str) -> None:
        if not firsts:
            firsts.append(ProgressFile.read(Output(step.out).partial).first)

    with pytest.raises(Diverged):
        train_step(step, fail)
    train_step(step, look)
    assert firsts == [7]  # six of the first phase, one of the second
    assert re.search(r"trained 6 steps .* pairs/s since it resumed\)", capfd.readouterr().err)


def test_a_run_that_diverged_or_was_killed_says_so(world: TrainingWorld, tmp_path: Path) -> None:
    def fail(point: str) -> None:
        if point == "step=2":
            raise Diverged("the loss diverged at step 2")

    step = request(world, "seqf", 0, tmp_path, buffered=False)
    with pytest.raises(Diverged):
        train_step(step, fail)
    state = LiveRun(step.out).look()
    assert (state.status, state.error) == ("diverged", Ended(8, "the loss diverged at step 2"))
    assert in_child(step, kill_at("step=3")) == -9
    state = LiveRun(step.out).look()
    assert (state.status, state.error) == ("died", None)
    assert str(os.getpid()) not in state.process

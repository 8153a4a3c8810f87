"""`vlcpctl inspect` of a train-step that has not finished, from the files that it writes."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.program import run_program

from vlcpctl.core.errors import BadInput
from vlcpctl.files.outputs import Output
from vlcpctl.inspection.unfinished import lines_of_run, run_facts
from vlcpctl.testing.battery import TrainingWorld, in_child, kill_at, request
from vlcpctl.training import state as metrics_log
from vlcpctl.training.state import Ended, PhaseSteps, ProgressFile
from vlcpctl.training.train_step import train_step

FACTS = ProgressFile(
    phases=(PhaseSteps("train", 0, 40), PhaseSteps("fisher", 0, 10)),
    run="ctp",
    method="ctp",
    tasks=("People & Body",),
    batch_size=64,
    epoch_steps=20,
    first=0,
)


def row(step: int, **fields: object) -> str:
    made = {"phase": "train", "step": step, "loss": 9.0 - step / 10, "lr": 1e-3}
    return json.dumps(made | fields)


VALIDATED = json.dumps({"phase": "train", "step": 19, "val_loss": 3.0})


def write(out: Path, *rows: str, **facts: Any) -> Output:
    staging = Output(out)
    staging.open_partial()
    replace(FACTS, **facts).write(staging.partial)
    (staging.partial / "metrics.jsonl").write_text("\n".join(rows))
    return staging


def test_a_running_step_has_its_progress_rate_and_time_left(tmp_path: Path) -> None:
    out = tmp_path / "01"
    # A line that is being written, and one with a number that is not finite, are passed over.
    rows = (row(18, kl=2.0), VALIDATED, row(19, kl=float("nan")), '{"phase": "tra')
    with write(out, *rows, started=time.time() - 20).locked():
        found = run_facts(out)
    assert found is not None
    assert (found["status"], found["phase"]) == ("running", "train")
    assert (found["done"], found["total"]) == (20, 50)
    assert found["rate"] == pytest.approx(1.0, rel=0.05)
    assert found["left_s"] == pytest.approx(30, rel=0.05)
    assert found["terms"] == {"loss": 7.1}
    assert found["validation"] == {"val_loss": 3.0}
    text = list(lines_of_run(found))
    assert text[0] == f"{out}: running, process {os.getpid()} on {FACTS.host}"
    assert text[2].startswith("train: 20/50 steps (40%), 1.0 steps/s, 64 pairs/s, ")


@pytest.mark.parametrize(
    ("facts", "rows", "status", "done"),
    [
        ({}, (row(3),), "died", 4),
        ({}, (row(4, phase="fisher"),), "died", 45),
        ({"first": 7}, (), "died", 7),
        ({"ended": Ended(8, "the loss is NaN")}, (row(3),), "diverged", 4),
        ({"ended": Ended(75, "")}, (row(3),), "interrupted", 4),
        ({"ended": Ended(3, "")}, (row(3),), "failed", 4),
        ({"host": "elsewhere"}, (row(3),), "running", 4),
    ],
)
def test_a_step_that_no_process_here_works_on(
    facts: dict[str, Any], rows: tuple[str, ...], status: str, done: int, tmp_path: Path
) -> None:
    write(tmp_path / "01", *rows, **facts)
    found = run_facts(tmp_path / "01")
    assert found is not None
    assert (found["status"], found["done"]) == (status, done)


def test_a_process_that_begins_nothing_is_waited_for_ten_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    out = tmp_path / "01"
    with Output(out).locked(), pytest.raises(BadInput, match="waited 10 s"):
        run_facts(out)
    assert sum(slept) == pytest.approx(10, abs=0.5)
    assert run_facts(out) is None
    monkeypatch.setattr(time, "sleep", lambda _: write(out, row(3)))
    with Output(out).locked():
        found = run_facts(out)
    assert found is not None
    assert found["done"] == 4


def test_a_run_is_seen_from_its_first_step_to_its_end(
    world: TrainingWorld,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "00"
    assert run_program(capfd, "inspect", out).code == 3
    step = request(world, "ewc", 0, tmp_path, buffered=False)
    assert in_child(step, kill_at("step=3")) == -9
    ended = run_program(capfd, "inspect", out, "--json")
    assert (ended.code, json.loads(ended.out)["status"]) == (0, "died")
    monkeypatch.setattr(metrics_log, "FLUSH_S", 0.0)
    seen = []
    train_step(step, lambda _point: seen.append(run_facts(out)))
    running = [one for one in seen if one and one["status"] == "running"]
    assert list(dict.fromkeys(one["phase"] for one in running)) == ["train", "ewc/importance"]
    assert max(one["done"] for one in running) == running[0]["total"]
    ended = run_program(capfd, "inspect", out, "--json")
    assert (ended.code, json.loads(ended.out)["kind"]) == (0, "checkpoint")

"""A run says once, after the first steps, how fast it reads and trains."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.program import run_program

from vlcpctl.testing.tiny_stream import make_stream
from vlcpctl.training import batches as data_wait
from vlcpctl.training.batches import LEAST_STEPS, with_speeds_said

SETTINGS: Any = SimpleNamespace(batch_size=10, jpeg_decode="exact", resize="pillow")
FAST: Any = SimpleNamespace(batch_size=10, jpeg_decode="scaled", resize="torch")


def said(
    monkeypatch: pytest.MonkeyPatch, read: float, trained: float, workers: int, settings: Any
) -> str:
    """The one line of a run whose steps take these seconds; it is closed at the end."""
    clock, lines, closed = SimpleNamespace(now=0.0), [], []
    monkeypatch.setattr(data_wait.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(data_wait.console, "say", lines.append)

    def batches() -> Generator[Any]:
        try:
            while True:
                clock.now += read
                yield None
        finally:
            closed.append(True)

    found = with_speeds_said(batches(), settings, workers)
    for _ in range(100):
        next(found)
        clock.now += trained
    found.close()
    assert (len(lines), closed) == (1, [True])
    return str(lines[0]).strip()


def test_with_workers_the_time_that_is_lost_is_said_with_what_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sentence = said(monkeypatch, 0.05, 0.05, 2, SETTINGS)
    helps = "more --workers or --jpeg-decode scaled or --resize torch may help"
    assert sentence == f"trains 200 pairs/s, and waits for data in 50 % of the time; {helps}"
    assert said(monkeypatch, 0.05, 0.05, 2, FAST).endswith("; more --workers may help")
    assert said(monkeypatch, 0.001, 0.05, 2, SETTINGS).endswith("in 2 % of the time")


def test_a_long_run_says_it_once_and_a_short_one_not(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = next(make_stream(tmp_path / "stream", 1, 12).glob("0*"))
    how = ("--method", "seqf", "--preset", "tiny", "--model", "micro", "--batch-size", 4)
    for steps, count in ((LEAST_STEPS, 1), (LEAST_STEPS - 1, 0)):
        ended = run_program(
            capfd, "train-step", task, "-o", tmp_path / str(steps), *how, "--steps", steps
        )
        assert (ended.code, ended.err.count("pairs/s: reading takes")) == (0, count), ended.err

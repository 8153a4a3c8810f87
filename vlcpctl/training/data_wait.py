"""How fast a run reads its data and trains on it, said once after the first steps."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing

from vlcpctl.core import console
from vlcpctl.core.batch import Batch
from vlcpctl.core.transform import SCALED, TORCH
from vlcpctl.training.config.settings import Settings

WARM_UP, MEASURED = 10, 30  # steps: before they count, and that count
LEAST_STEPS = 200  # of a phase about which it is said
_MUCH = 0.2  # of the time


def with_speeds_said(
    batches: Generator[Batch], settings: Settings, workers: int
) -> Generator[Batch]:
    """The batches; after the first steps, a line says which waits: the data or the model."""
    waited = began = 0.0
    with closing(batches):  # so that closing this generator ends the workers
        before = time.monotonic()
        for step, batch in enumerate(batches):
            now = time.monotonic()
            if step > WARM_UP:
                waited += now - before
            if step == WARM_UP:
                began = now
            elif step == WARM_UP + MEASURED:
                console.say(f"  {_sentence(now - began, waited, settings, workers)}")
            yield batch
            before = time.monotonic()


def _sentence(seconds: float, waited: float, settings: Settings, workers: int) -> str:
    """What is slower, and what helps, by the seconds of the steps that count."""
    pairs = settings.batch_size * MEASURED
    share = waited / seconds
    trained = f"{pairs / max(seconds - waited, 1e-9):.0f} pairs/s"
    if workers:
        said = f"trains {trained}, and waits for data in {share:.0%} of the time"
    else:
        read = f"{pairs / max(waited, 1e-9):.0f} pairs/s"
        said = f"reads {read} and trains {trained}: reading takes {share:.0%} of the time"
    return f"{said}{_advice(settings) if share >= _MUCH else ''}".replace("%", " %")


def _advice(settings: Settings) -> str:
    faster = ["more --workers"]
    faster += ["--jpeg-decode scaled"] if settings.jpeg_decode != SCALED else []
    faster += ["--resize torch"] if settings.resize != TORCH else []
    return f"; {' or '.join(faster)} may help"

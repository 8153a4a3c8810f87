"""TensorBoard's event files: a directory for each run, in it one for each task and one for rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from vlcpctl.tracking.destinations import TrackedRun


class TensorBoardTracker:
    """Writes scalars to DIR/RUN/PART; needs the extra `tensorboard`.

    A resumed training makes TensorBoard drop the steps that it repeats. Rows of evaluations come
    in any order, so that nothing can be dropped: those that are already there are not repeated.
    """

    def __init__(self, place: str, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        directory = Path(place, _file_name(run.label), _file_name(run.part))
        self._known = set() if run.is_training else _known_points(directory)
        purge = run.first if run.is_training and directory.is_dir() else None
        self._writer = SummaryWriter(str(directory), purge_step=purge)
        if run.is_training and run.first == 0:
            text = "\n".join(f"    {name} = {value}" for name, value in run.config.items())
            self._writer.add_text("settings", text)  # indented: Markdown's form of code
        self._flushes = not run.is_training  # a signal may end an evaluation after any row

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write each value as a scalar."""
        for name, value in values.items():
            if (name, step, float(np.float32(value))) not in self._known:
                self._writer.add_scalar(name, value, step)
        if self._flushes:
            self._writer.flush()

    def close(self, code: int) -> None:
        """Flush and close."""
        self._writer.close()


def _known_points(directory: Path) -> set[tuple[str, int, float]]:
    """The points in the event files of a directory: their names, steps and float32 values."""
    if not directory.is_dir():
        return set()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory), size_guidance={"scalars": 0}).Reload()
    return {
        (name, one.step, one.value)
        for name in events.Tags()["scalars"]
        for one in events.Scalars(name)
    }


def _file_name(text: str) -> str:
    """The text as the name of a directory, the same for the same text.

    >>> _file_name("ctp m=0.8"), _file_name("a/b"), _file_name("..")
    ('ctp m=0.8', 'a_b', '_.')
    """
    return re.sub(r"^\.|[/\\:\0]", "_", text)

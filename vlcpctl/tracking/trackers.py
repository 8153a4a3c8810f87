"""Trackers: one protocol for all destinations of --log, and a guard against their failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, Self

from vlcpctl.core import console
from vlcpctl.core.errors import VlcpError, first_line
from vlcpctl.tracking.destinations import TENSORBOARD, Destination, TrackedRun
from vlcpctl.tracking.tensorboard_events import TensorBoardTracker
from vlcpctl.tracking.wandb_runs import WandbTracker


class Tracker(Protocol):
    """Logs the values of one run to one destination."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log named values: of a step of the training, or of a step of the stream."""
        ...

    def close(self, code: int) -> None:
        """Finish with the exit code of the command; everything logged before is kept."""
        ...


Opener = Callable[[Destination, TrackedRun], Tracker]


def open_tracker(destination: Destination, run: TrackedRun) -> Tracker:
    """A tracker of its own for each run. Raises whatever the library of the destination does."""
    kind = TensorBoardTracker if destination.kind == TENSORBOARD else WandbTracker
    return kind(destination, run)


class Trackers:
    """The trackers of a run; one that fails is left out from then on, with one warning.

    A library or a network that fails must not cost the training or the evaluation.
    """

    def __init__(self) -> None:
        self._open: dict[Destination, Tracker] = {}

    @classmethod
    def of(
        cls, destinations: Sequence[Destination], run: TrackedRun, opener: Opener = open_tracker
    ) -> Self:
        """A tracker for each destination that can be opened."""
        trackers = cls()
        for one in destinations:
            with trackers._guarded(one):
                trackers._open[one] = opener(one, run)
        return trackers

    def log(self, row: Mapping[str, Any], step: int) -> None:
        """Log the numbers of a row under their names; other values are left out."""
        values = {
            name: float(value)
            for name, value in row.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        for destination, tracker in list(self._open.items()):
            with self._guarded(destination):
                tracker.log(values, step)

    def close(self, code: int = 0) -> None:
        """Close all trackers with the exit code of the command."""
        for destination, tracker in list(self._open.items()):
            with self._guarded(destination):
                tracker.close(code)
        self._open.clear()

    @contextmanager
    def _guarded(self, destination: Destination) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self._open.pop(destination, None)
            console.warn(f"no more is logged to {destination}: {first_line(error)}")


@contextmanager
def closing_with_code(close: Callable[[int], None]) -> Iterator[None]:
    """Within the block, things are logged; after it, `close` gets the exit code that it means."""
    try:
        yield
    except VlcpError as error:
        close(error.exit_code)
        raise
    except BaseException:
        close(1)
        raise
    close(0)

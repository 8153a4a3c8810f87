"""The trackers of a run, with a guard against their failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from vlcpctl.core import console
from vlcpctl.core.errors import VlcpError, first_line
from vlcpctl.tracking.destinations import TrackedRun

if TYPE_CHECKING:
    from vlcpctl.tracking.tensorboard_events import TensorBoardTracker
    from vlcpctl.tracking.wandb_runs import WandbTracker


class Trackers:
    """The trackers of a run; one that fails is left out from then on, with one warning.

    A library or a network that fails must not cost the training or the evaluation. As a context,
    they are closed at its end with the exit code that it means.
    """

    def __init__(self) -> None:
        self._open: dict[str, TensorBoardTracker | WandbTracker] = {}

    @classmethod
    def of(cls, destinations: Sequence[str], run: TrackedRun) -> Self:
        """A tracker for each value of --log that can be opened."""
        trackers = cls()
        for one in destinations:
            kind, _, place = one.partition(":")
            with trackers._guarded(one):
                trackers._open[one] = _opened(kind, place, run)
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

    def close(self, code: int) -> None:
        """Close all trackers with the exit code of the command."""
        for destination, tracker in list(self._open.items()):
            with self._guarded(destination):
                tracker.close(code)
        self._open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self.close(error.exit_code if isinstance(error, VlcpError) else int(error is not None))

    @contextmanager
    def _guarded(self, destination: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self._open.pop(destination, None)
            console.warn(f"no more is logged to {destination}: {first_line(error)}")


def _opened(kind: str, place: str, run: TrackedRun) -> TensorBoardTracker | WandbTracker:
    if kind == "wandb":
        from vlcpctl.tracking.wandb_runs import WandbTracker

        return WandbTracker(place, run)
    from vlcpctl.tracking.tensorboard_events import TensorBoardTracker

    return TensorBoardTracker(place, run)

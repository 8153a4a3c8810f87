"""How much worse than a baseline the last model of each run is, on every data set."""

from __future__ import annotations

from dataclasses import dataclass

from vlcpctl.report.scores.runs import Track
from vlcpctl.report.scores.summary import Spread


@dataclass(frozen=True)
class Interval:
    """A 95 % interval of a drop, in points."""

    low: float
    high: float


@dataclass(frozen=True)
class Drop:
    """The score of the baseline minus that of the last model, in points: positive is worse.

    `data` is a task of the run's stream or data outside of it; only the latter are guards. `drop`
    is None, and `undefined` says why, if either side was not measured.
    """

    track: Track
    run: str
    data: str
    is_guard: bool
    key: str
    baseline: Spread | None
    last: Spread | None
    drop: Spread | None
    interval: Interval | None = None
    undefined: str | None = None

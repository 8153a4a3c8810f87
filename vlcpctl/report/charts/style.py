"""How a run is drawn: a colour, a marker and a dash that no other of 210 runs has together."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

# Of a cycle of 6 colours, 7 markers and 5 dashes, the first 35 runs differ in marker or dash, so
# that they can be told apart in grey; 6 is coprime to 35, so that the first 210 runs all differ.
COLOURS = 6  # --run-1 to --run-6 in style.css
MARKERS = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "triangle-left",
)
DASHES: tuple[tuple[int, ...], ...] = ((), (7, 3), (2, 3), (9, 3, 2, 3), (14, 4))
LEVEL_DASH = (6, 5)  # a level line: a score that was not measured at every step


@dataclass(frozen=True)
class RunStyle:
    """The number of a run on the page, which charts, tables and page.js share, and its looks.

    `place` is the run's place in the cycle of styles; None is an upper bound or a baseline, which
    is grey and has no marker.
    """

    number: int
    place: int | None

    @property
    def id(self) -> str:
        """The name of the run in a chart, such as "r12"."""
        return f"r{self.number}"

    @property
    def colour_index(self) -> int | None:
        """From 0 to COLOURS - 1; None for grey."""
        return None if self.place is None else self.place % COLOURS

    @property
    def colour(self) -> str:
        """The colour as CSS, which follows the page's light or dark scheme."""
        index = self.colour_index
        return "var(--muted)" if index is None else f"var(--run-{index + 1})"

    @property
    def marker(self) -> str | None:
        """The name of the marker's shape; None: no marker."""
        return None if self.place is None else MARKERS[self.place % len(MARKERS)]

    @property
    def dash(self) -> tuple[int, ...]:
        """The lengths of strokes and gaps in pixels; empty for a solid line."""
        if self.place is None:
            return ()
        return DASHES[self.place // len(MARKERS) % len(DASHES)]


def styles(names: Iterable[str], bounds: Iterable[str] = ()) -> dict[str, RunStyle]:
    """A style for each run, in this order; runs in `bounds` are grey.

    >>> [one.place for one in styles(["joint", "a", "b"], bounds=["joint"]).values()]
    [None, 0, 1]
    """
    grey = set(bounds)
    found: dict[str, RunStyle] = {}
    for name in names:
        if name not in found:
            place = None if name in grey else sum(one.place is not None for one in found.values())
            found[name] = RunStyle(len(found), place)
    return found


def step_name(step: int) -> str:
    """The step as a label; -1 is the model before the first one.

    >>> step_name(-1), step_name(3)
    ('start', '3')
    """
    return "start" if step < 0 else str(step)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from just below `low` to just above `high`.

    >>> ticks(3, 47)
    [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    """
    # Not below what a float of this size can distinguish.
    rough = max(high - low, 1e-9, 1e-9 * abs(low), 1e-9 * abs(high)) / count
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(m * magnitude for m in (1, 2, 5, 10) if m * magnitude >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(index * step, 10) for index in range(first, max(last, first + 1) + 1)]

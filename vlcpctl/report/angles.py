"""Spatial rows: how embedding angles changed between two checkpoints (Mod-X), as tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlcpctl.core.errors import BadInput
from vlcpctl.files.rows import Row
from vlcpctl.metrics.angles import CHANGE_BINS, ROTATION_BINS, WHOLE
from vlcpctl.report.scores import Spread, step_of
from vlcpctl.report.table import Column, RowGroup, Table, TableCell, number_cell

SIDES = {"image": "images", "text": "texts", "i2t": "image to text", "t2i": "text to image"}


@dataclass(frozen=True)
class AngleMeasure:
    """One measure of angles, named as in the papers: its meaning and its bins' ends (degrees)."""

    short: str
    sides: tuple[str, str]
    ends: tuple[int, ...]
    meaning: str
    note: str = ""

    @property
    def name(self) -> str:
        """The prefix of its metric keys."""
        return self.short.lower()

    @property
    def sentence(self) -> str:
        """The measure's name, meaning and note."""
        return ", ".join(part for part in (f"{self.short}: {self.meaning}", self.note) if part)


MEASURES = (
    AngleMeasure("SAM", ("image", "text"), CHANGE_BINS, "change of the angle between two samples"),
    AngleMeasure("RAM", ("image", "text"), ROTATION_BINS, "rotation of a sample"),
    AngleMeasure(
        "ImAV",
        ("i2t", "t2i"),
        CHANGE_BINS,
        "change of the angle between image and text",
        "over the pairs that the earlier model ranks first",
    ),
)


@dataclass(frozen=True)
class CheckpointPair:
    """How angles changed between two checkpoints of a run, over its seeds: a row for each."""

    run: str
    steps: str  # such as "0 -> 1"
    metrics: dict[str, tuple[float, ...]]
    degrees: dict[str, NDArray[np.int64]]  # (180,) angles by degree, of all seeds together
    rows: tuple[Row, ...]

    def share(self, key: str) -> NDArray[np.float64]:
        """(180,) percent of the angles in each degree; zeros where there is no angle."""
        counts = self.degrees[key]
        shares: NDArray[np.float64] = 100 * counts / max(1, counts.sum())
        return shares


@dataclass(frozen=True)
class SpatialTrack:
    """A split of a task and the turns measured on it, by run, neighbouring steps first."""

    task: str
    split: str
    pairs: tuple[CheckpointPair, ...]

    @property
    def title(self) -> str:
        """Such as "spatial, 00-smileys, test split"."""
        return f"spatial, {self.task}, {self.split} split"

    def tables(self) -> list[Table]:
        """A table for each measure and side, in the papers' bins."""
        return [table for measure in MEASURES for table in self.tables_of(measure)]

    def tables_of(self, measure: AngleMeasure) -> list[Table]:
        """The tables of one measure, one per side."""
        return [_table(self.pairs, measure, side) for side in measure.sides]


def collect_spatial_tracks(rows: Iterable[Row]) -> tuple[SpatialTrack, ...]:
    """Group spatial rows into spaces; the result does not depend on the order of the rows.

    Raises BadInput for a row without the counts of every measure.
    """
    groups_of_rows: dict[tuple[int, str, str], list[Row]] = {}
    for row in rows:
        place = WHOLE if row.task_step is None else row.task_step
        groups_of_rows.setdefault((place, row.task, row.split), []).append(row)
    return tuple(
        SpatialTrack(task, split, _pairs(members))
        for (_, task, split), members in sorted(groups_of_rows.items())
    )


def _pairs(rows: list[Row]) -> tuple[CheckpointPair, ...]:
    """The rows by run and steps: fewer steps between the checkpoints first, then earlier ones."""
    groups: dict[tuple[str, int, int, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.seed):
        assert row.since is not None
        foreign = "" if row.since.run == row.run else f"{row.since.run} "
        before, now = ("start" if one.step is None else one.step for one in (row.since, row))
        steps = step_of(row) - step_of(row.since), step_of(row)
        groups.setdefault((row.run, *steps, f"{foreign}{before} -> {now}"), []).append(row)
    return tuple(_pair(run, name, members) for (run, *_, name), members in sorted(groups.items()))


def _pair(run: str, name: str, rows: list[Row]) -> CheckpointPair:
    keys = [f"{one.name}_{side}" for one in MEASURES for side in one.sides]
    degrees = {key: np.zeros(WHOLE, dtype=np.int64) for key in keys}
    for row in rows:
        if row.degrees is None or not set(keys) <= row.degrees.keys():
            raise BadInput(f"{row.place}: a spatial row must count its angles in 'degrees'")
        for key in keys:
            counts = np.array(row.degrees[key], dtype=np.int64)
            degrees[key][: len(counts)] += counts
    known = set.intersection(*(set(row.metrics) for row in rows))
    metrics = {key: tuple(row.metrics[key] for row in rows) for key in sorted(known)}
    return CheckpointPair(run, name, metrics, degrees, tuple(rows))


def _table(pairs: tuple[CheckpointPair, ...], measure: AngleMeasure, side: str) -> Table:
    key = f"{measure.name}_{side}"
    bins = list(zip((0, *measure.ends), measure.ends, strict=False))
    columns = (
        Column("steps", is_number=False),
        *(Column(f"{'(' if low else '['}{low}, {high}]") for low, high in bins),
        Column("mean"),
        Column("angles"),
    )
    names = [*(f"{key}_{low}_{high}" for low, high in bins), f"{key}_mean"]
    groups = []
    for run in dict.fromkeys(pair.run for pair in pairs):
        rows = []
        for turn in (one for one in pairs if one.run == run):
            values = (turn.metrics.get(name) for name in names)
            cells = (number_cell(Spread(spread) if spread else None) for spread in values)
            angles = TableCell(str(int(turn.degrees[key].sum())))
            rows.append((TableCell(turn.steps), *cells, angles))
        groups.append(RowGroup(run, tuple(rows)))
    notes = ("percent of the angles in each bin of degrees; the mean is in degrees", measure.note)
    title = f"{measure.short}, {SIDES[side]}: {measure.meaning}"
    return Table(title, columns, tuple(groups), tuple(note for note in notes if note))

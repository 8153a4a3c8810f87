"""Stability and plasticity of each run, from its scores on each task alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vlcpctl.metrics.definitions import DEFINITIONS
from vlcpctl.metrics.forgetting import NOTHING, Matrix
from vlcpctl.report.scores.runs import RunScores, Track
from vlcpctl.report.scores.summary import Spread, summarise, why_undefined
from vlcpctl.report.tables.comparison import ordered_runs
from vlcpctl.report.tables.table import Column, RowGroup, Table, TableCell, number_cell

PLASTICITY = "plasticity = 1/T sum_j R[j][j]: the score on each task just after learning it"
STABILITY = (
    "stability = 100 sum_{j<T-1} R[T-1][j] / sum_{j<T-1} R[j][j]: the percentage of what was "
    "learned on the earlier tasks that the last model retains"
)


@dataclass(frozen=True)
class StabilityPoint:
    """One run: both measures over its seeds."""

    run: RunScores
    plasticity: Spread
    stability: Spread


def stability_points(track: Track, key: str) -> tuple[list[StabilityPoint], dict[str, str]]:
    """The runs that have both measures, in their order, and why each other run has not."""
    points, missing = [], {}
    for run in ordered_runs(track, key):
        learned = summarise(run, key, "own_learned")
        why = why_undefined(run, DEFINITIONS["bwt_gem"])
        known = () if why else run.scores.get(key, ())
        retained = tuple(retained_share(scores.own) for scores in known)
        if learned is not None and retained and all(map(math.isfinite, retained)):
            points.append(StabilityPoint(run, learned, Spread(retained)))
        else:
            missing[run.name] = why or "scores are missing or zero"
    return points, missing


def stability_table(points: Sequence[StabilityPoint], key: str) -> Table:
    """Plasticity and stability of each run, with both formulas."""
    columns = (Column("run", is_number=False), Column("plasticity"), Column("stability (%)"))
    rows = tuple(
        (TableCell(one.run.name), number_cell(one.plasticity), number_cell(one.stability))
        for one in points
    )
    title = f"Stability and plasticity in {key}, own galleries"
    return Table(title, columns, (RowGroup("", rows),), (PLASTICITY, STABILITY))


def retained_share(own: Matrix) -> float:
    """The percentage of R[j][j] that R[T-1][j] is, summed over all tasks but the last.

    `own` is R, (steps, tasks). NaN if a score is missing, or nothing was learned.

    >>> retained_share(np.array([[50.0, 0.0], [40.0, 30.0]]))
    80.0
    """
    earlier = min(own.shape) - 1
    learned, last = np.diagonal(own)[:earlier].sum(), own[-1, :earlier].sum()
    return float(100 * last / learned) if learned > NOTHING else math.nan

"""The table of calibration: what the probabilities of a sigmoid's model meant, and mean now."""

from __future__ import annotations

from collections.abc import Iterable

from vlcpctl.metrics.calibration import METRICS
from vlcpctl.report.scores.drops import Against, Curve
from vlcpctl.report.scores.runs import START
from vlcpctl.report.tables.table import Column, RowGroup, Table, TableCell, number_cell, seed_notes

_MOST_ROWS = 200
_LAST = "last"
_MODELS: dict[str, Against] = {"start": "baseline", "before": "step before"}
_WORDS = (
    "recall: percent of true pairs with a probability of 0.5 or more",
    "precision: percent of the pairs with 0.5 or more that are true",
    "calibration: 100 if in each tenth of the probabilities as many pairs are true as they promise",
    "they depend on the size of the gallery: compare models on the same data only",
)


def calibration_table(curves: Iterable[Curve], title: str) -> Table | None:
    """A group for each run, a row for each guard and task; None if no row has probabilities.

    Three columns for each metric: the baseline, the model of the step before, if any run has one
    that is not its start, and the last one.
    """
    every = [one for one in curves if any(one.at(one.run.last, key) for key in METRICS)]
    if not every:
        return None
    found = every[:_MOST_ROWS]
    models = (
        [*_MODELS, _LAST] if any(one.run.before != START for one in found) else ["start", _LAST]
    )
    columns = [Column("data", is_number=False)]
    for key in METRICS:
        over = key.removeprefix("pair_")
        columns += [Column(one, rank=one == "before", over=over) for one in models]
    groups = []
    for run in dict.fromkeys(one.run.name for one in found):
        members = [one for one in found if one.run.name == run]
        rows = tuple((TableCell(one.data), *_scores(one, models)) for one in members)
        groups.append(RowGroup(run, rows))
    cut = f"shows {len(found)} of {len(every)} rows; summary.json has all"
    notes = (*([cut] if len(found) < len(every) else []), *_WORDS)
    notes = (*notes, *seed_notes(groups, [len(one.seeds) for one in found]))
    return Table(title, tuple(columns), tuple(groups), notes, name="calibration")


def _scores(curve: Curve, models: Iterable[str]) -> Iterable[TableCell]:
    for key in METRICS:
        for one in models:
            is_last = one == _LAST
            yield number_cell(
                curve.at(curve.run.last, key) if is_last else curve.before(key, _MODELS[one])
            )

"""Tables of guards: data outside the stream on which the last model is compared with a baseline."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from vlcpctl.report.scores.drops import Curve, Drop
from vlcpctl.report.scores.runs import START
from vlcpctl.report.scores.summary import Spread
from vlcpctl.report.tables.table import (
    UNDEFINED,
    Column,
    RowGroup,
    Table,
    TableCell,
    fixed,
    number_cell,
    seed_notes,
    with_best_marked,
)

_FIRST, _LAST = 3, 7  # steps of a long run that are shown
_MOST_ROWS = 5000  # of the table of every metric
_REASONS = 6  # reasons for undefined drops that are shown

_AFTER = "after N: score of the model after step N; step 0 is the first task"
_DROP = "drop: baseline minus last model, in points; positive is worse"
_INTERVAL = "95 % interval: of the drop, over resampled queries (--ranks)"


def shown_guards(curves: Iterable[Curve]) -> list[Curve]:
    """The curves on guards of the runs that have a baseline."""
    return [one for one in curves if one.is_guard and not one.run.unknown]


def guards_table(curves: Sequence[Curve], drops: Iterable[Drop], key: str) -> Table | None:
    """A row for each guard and run: baseline, score after every step, drop; None without any."""
    curves = [one for one in curves if any(one.at(step, key) for step in one.steps)]
    if not curves:
        return None
    of = {(one.run, one.data): one for one in drops if one.key == key}
    steps = shown_steps(curves)
    has_intervals = any(one.interval for one in of.values())
    columns = (
        Column("run", is_number=False),
        Column("baseline", higher_is_better=None),
        *(
            Column(
                "start" if step == START else f"after {step}", rank=0 if step == steps[-1] else 1
            )
            for step in steps
        ),
        Column("drop", higher_is_better=False),
        *([Column("95 % interval")] if has_intervals else []),
    )

    def row(curve: Curve, name: str) -> tuple[TableCell, ...]:
        drop = of[curve.run.name, curve.data]
        scores = (number_cell(curve.at(step, key)) for step in steps)
        interval = [interval_cell(drop)] if has_intervals else []
        return (
            TableCell(name),
            _baseline_cell(drop.baseline),
            *scores,
            number_cell(drop.drop),
            *interval,
        )

    groups = []
    for data in dict.fromkeys(one.data for one in curves):
        members = [one for one in curves if one.data == data]
        rows = tuple(row(one, one.run.name) for one in members)
        seeds = [tuple(one_.seed for one_ in one.seeds) for one in members]
        groups.append(with_best_marked(columns, RowGroup(data, rows), seeds))
    worst = [row(one, f"{one.run.name}: {one.data}") for one in _worst(curves, of)]
    if len(groups) > 1 and worst:
        groups.append(RowGroup("Largest drop", tuple(worst)))
    notes = (*_models(curves), *_reasons(of[one.run.name, one.data] for one in curves), _AFTER)
    notes = (
        *notes,
        _DROP,
        *((_INTERVAL,) if has_intervals else ()),
        *seed_notes(groups, [len(one.seeds) for one in curves]),
    )
    return Table(
        f"Guards: {key} on data outside the stream",
        columns,
        tuple(groups),
        (*_cut_note(curves, steps), *notes),
        name="guards",
    )


def _models(curves: Sequence[Curve]) -> list[str]:
    """The baseline in words, or that of each run where they differ."""
    runs = {one.run.models: one.run.name for one in curves}
    if len(runs) == 1:
        return [f"baseline: {' and '.join(*runs)}"]
    found = [f"baseline of {name}: {' and '.join(models)}" for models, name in runs.items()]
    more = [f"and {len(found) - _REASONS} more baselines"] if len(found) > _REASONS else []
    return [*found[:_REASONS], *more]


def shown_steps(curves: Sequence[Curve]) -> list[int]:
    """The steps that a table shows: all of those evaluated, or the first and last few of many.

    The start is a step only where it is not the baseline itself.
    """
    steps = {step for one in curves for step in one.steps if step != START or one.is_apart}
    found = sorted(steps)
    if len(found) <= _FIRST + _LAST:
        return found
    return [*found[:_FIRST], *found[-_LAST:]]


def _cut_note(curves: Sequence[Curve], steps: Sequence[int]) -> tuple[str, ...]:
    every = {step for one in curves for step in one.steps} - {START}
    shown = len(set(steps) - {START})
    return (f"shows {shown} of {len(every)} steps",) if shown < len(every) else ()


def _worst(curves: Sequence[Curve], of: dict[tuple[str, str], Drop]) -> list[Curve]:
    """The curve of the largest drop of each run."""
    worst: dict[str, tuple[float, Curve]] = {}
    for one in curves:
        drop = of[one.run.name, one.data].drop
        if drop is not None and drop.mean > worst.get(one.run.name, (-float("inf"),))[0]:
            worst[one.run.name] = drop.mean, one
    return [curve for _, (_, curve) in sorted(worst.items())]


def interval_cell(drop: Drop) -> TableCell:
    """Such as "1.20 to 3.40"."""
    if drop.interval is None:
        return TableCell(UNDEFINED, is_faint=True)
    return TableCell(f"{fixed(drop.interval.low)} to {fixed(drop.interval.high)}")


def _baseline_cell(baseline: Spread | None) -> TableCell:
    """The score; one value stands for seeds that start from the same model."""
    if baseline is not None and len(set(baseline.values)) == 1:
        baseline = Spread(baseline.values[:1])
    return number_cell(baseline)


def _reasons(drops: Iterable[Drop]) -> list[str]:
    """Why drops are undefined: the first few."""
    found = [f"{one.run} has no drop: {one.undefined}" for one in drops if one.undefined]
    found = list(dict.fromkeys(found))
    more = [f"and {len(found) - _REASONS} more drops"] if len(found) > _REASONS else []
    return [*found[:_REASONS], *more]


def every_metric_table(
    drops: Iterable[Drop], compared: Collection[tuple[str, str]]
) -> Table | None:
    """A row for each guard, metric and run of those that are compared; None without any."""
    every = [one for one in drops if (one.run, one.data) in compared]
    if not every:
        return None
    found = every[:_MOST_ROWS]
    cut = (f"shows {len(found)} of {len(every)} rows; summary.json has all",)
    columns = (
        Column("metric", is_number=False),
        Column("run", is_number=False),
        Column("baseline"),
        Column("last"),
        Column("drop"),
        Column("low"),
        Column("high"),
    )
    groups = []
    for data in dict.fromkeys(one.data for one in found):
        of_data = [one for one in found if one.data == data]
        keys = dict.fromkeys(one.key for one in of_data)
        rows = [_metric_row(one) for key in keys for one in of_data if one.key == key]
        groups.append(RowGroup(data, tuple(rows)))
    notes = (*(cut if len(found) < len(every) else ()), _DROP)
    return Table("Guards: every metric", columns, tuple(groups), notes)


def _metric_row(drop: Drop) -> tuple[TableCell, ...]:
    ends = (None, None) if drop.interval is None else (drop.interval.low, drop.interval.high)
    return (
        TableCell(drop.key),
        TableCell(drop.run),
        _baseline_cell(drop.baseline),
        number_cell(drop.last),
        number_cell(drop.drop),
        *(number_cell(None if end is None else Spread((end,))) for end in ends),
    )

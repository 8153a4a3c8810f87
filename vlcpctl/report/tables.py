"""The tables of a track: final scores, forgetting, matrices, tasks, guards, other data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from vlcpctl.core.errors import some_names
from vlcpctl.metrics.calibration import METRICS
from vlcpctl.metrics.definitions import DEFINITIONS, LEGEND
from vlcpctl.report.scores import (
    GROUPS,
    START,
    Against,
    Curve,
    Drop,
    Matrix,
    Run,
    Spread,
    Track,
    grouped,
    over_seeds,
)
from vlcpctl.report.table import (
    UNDEFINED,
    Column,
    RowGroup,
    Table,
    TableCell,
    fixed,
    number_cell,
    seed_interval,
    seed_notes,
    with_best_marked,
)

MOST_SHOWN = 100  # steps, and tasks, that the matrices of a report show
_FIRST, _LAST = 3, 7  # steps of a long run that a table of guards shows
_REASONS = 6  # reasons for undefined drops that are shown
_BLANK = TableCell("", is_faint=True)
_DASH = TableCell(UNDEFINED, is_faint=True)

_START = "Before the first task"
_CHANGE_READING = (
    "against the start, the model before the first task, on the same tasks; negative is worse"
)
# The numbers of newer benchmarks have a table of their own.
_BENCHMARKS = ("transfer_zscl", "avg_zscl", "own_final", "zs_fomo")
_SAME = ("last_zscl", "ka_fomo")  # as own_final
_OWN = tuple(
    name
    for name, one in DEFINITIONS.items()
    if one.gallery != "merged" and (name == "own_final" or name not in {*_BENCHMARKS, *_SAME})
)
_AFTER = "after N: score of the model after step N; step 0 is the first task"
_NOT_COUNTED = "not part of the stream, so not counted in any forgetting metric"
_DROP = "drop: baseline minus last model, in points; positive is worse"
_CALIBRATION = (
    "recall: percent of true pairs with a probability of 0.5 or more",
    "precision: percent of the pairs with 0.5 or more that are true",
    "calibration: 100 if in each tenth of the probabilities as many pairs are true as they promise",
    "they depend on the size of the gallery: compare models on the same data only",
)
_MODELS: dict[str, Against] = {"start": "baseline", "before": "step before"}

_Words = list[tuple[Column, dict[str, str]]]  # leading columns with the text of each run


class _Shown(NamedTuple):
    """A column of a table that compares runs: its cell of each, and how it is read."""

    column: Column
    cell: Callable[[Run], TableCell]
    reading: str = ""


def ordered_runs(track: Track, key: str, gallery: str = "own") -> list[Run]:
    """Runs by group, and in a group by ascending final score, as in the papers."""

    def place(run: Run) -> tuple[int, float, str]:
        return GROUPS.index(run.group), headline(run, key), run.name

    return sorted(track.runs_with(gallery), key=place)


def headline(run: Run, key: str) -> float:
    """The final merged score, else the final own score; minus infinity if both are undefined."""
    spread = run.summary(key, "merged_final") or run.summary(key, "own_final")
    return -math.inf if spread is None else spread.mean


def comparison_tables(track: Track, key: str) -> list[Table]:
    """Tables of final scores per gallery in every metric key, and of forgetting in `key`.

    The last one, if it is defined for any run, has the numbers of newer benchmarks in `key`.
    """
    runs = ordered_runs(track, key)
    galleries = {gallery for run in runs for gallery in run.galleries}
    tables = [_final(track, runs, key, one) for one in ("merged", "own") if one in galleries]
    if "own" in galleries:
        names = [name for name in _OWN if name != "fwt_gem" or _is_defined(runs, key, name)]
        trained, shown = [run for run in runs if run.steps], [_summary(key, name) for name in names]
        title = f"Forgetting in {key}, own galleries"
        reasons = ((run.name, run.why_undefined(DEFINITIONS["bwt_gem"])) for run in runs)
        said = [f"{name} has no forgetting metrics: {why}" for name, why in reasons if why]
        tables.append(_comparison(title, runs, trained, shown, "forgetting", said))
    benchmarks = _benchmarks(track, key)
    return tables if benchmarks is None else [*tables, benchmarks]


def _final(track: Track, runs: Sequence[Run], key: str, gallery: str) -> Table:
    """Final scores on a gallery in every metric, with what was lost or has changed in `key`."""
    is_own = gallery == "own"
    shown = [_summary(one, f"{gallery}_final", one) for one in track.keys]
    lost = _summary(key, "bwt_ctp", reading=f"bwt_ctp (in {key}): {DEFINITIONS['bwt_ctp'].reading}")
    if is_own:
        column = Column("change", higher_is_better=True)
        reading = f"change (in {key}): {_CHANGE_READING}"
        lost = _Shown(column, lambda run: number_cell(run.change(key)), reading)
    shown += [lost] if any(lost.cell(run).value is not None for run in runs) else []
    shown += _to_oracle(track, key, gallery)
    trained = [run for run in runs if run.steps or not is_own]
    titles = {"own": "mean over the tasks' own galleries", "merged": "merged gallery of all tasks"}
    found = _comparison(f"Last model, {titles[gallery]}", runs, trained, shown, f"{gallery}-final")
    starts = _starts(track, runs, len(found.columns)) if is_own else ()
    return replace(found, groups=(*starts, *found.groups))


def oracle_gap(
    track: Track, run: Run, key: str, gallery: str
) -> tuple[Spread, tuple[float, float] | None] | None:
    """A final score minus the oracle's on the same data, and its 95 % interval over seeds.

    On own galleries they are means over the tasks that the run has learned. Seed by seed if both
    have the same, or else of the means. None without either score.
    """
    oracle = track.oracle
    if oracle is None or run is oracle or not run.steps or not oracle.steps:
        return None
    mine = run.summary(key, f"{gallery}_final")
    if gallery == "merged":
        is_same = run.tasks[: run.steps] == oracle.tasks[: oracle.steps]
        its = oracle.summary(key, "merged_final")
    else:
        is_same = all(run.last_data.get(n) == oracle.last_data.get(n) for n in run.counted)
        its = over_seeds(oracle.means(key, oracle.steps - 1, run.counted))
    if not is_same or mine is None or its is None:
        return None
    are_paired = run.seeds == oracle.seeds
    gap = mine.minus(its) if are_paired else Spread((mine.mean - its.mean,))
    return gap, seed_interval(mine, its, are_paired=are_paired)


def _to_oracle(track: Track, key: str, gallery: str) -> Iterator[_Shown]:
    """The distance to the oracle, and its interval if any run has one; nothing without one."""
    gaps = {run.name: oracle_gap(track, run, key, gallery) for run in track.runs}
    known = [one for one in gaps.values() if one is not None]
    if not known or track.oracle is None:
        return
    name = f"to {track.oracle.name}"
    reading = f"{name} (in {key}): final score minus that of the oracle on the same data, "
    reading += "interval over seeds"
    yield _Shown(Column(name), lambda run: number_cell((gaps[run.name] or [None])[0]), reading)

    if any(ends for _, ends in known):
        interval = Column("95 % interval")
        yield _Shown(interval, lambda run: ends_cell(*(gaps[run.name] or (None, None))[1:]))


def _starts(track: Track, runs: Sequence[Run], width: int) -> tuple[RowGroup, ...]:
    """The models that runs start from, and those not trained on a stream, each on one line.

    A line has `width` cells, of which those after the scores are empty.
    """
    found: dict[tuple[str, tuple[Spread | None, ...]], Run] = {}
    for run in runs:
        scores = tuple(run.mean_at(key, START) for key in track.keys)
        if any(scores):
            name = " and ".join(run.of.starts) or ("start" if run.steps else run.name)
            found.setdefault((name, scores), run)
    names = [name for name, _ in found]
    rows = []
    for (name, scores), first in found.items():
        of = f" (of {first.name})" if names.count(name) > 1 else ""
        words = [f"{name}{of}", *("" for _ in _words(runs)[1:])]
        cells = (*map(TableCell, words), *map(number_cell, scores))
        rows.append((*cells, *[TableCell("")] * (width - len(cells))))
    return (RowGroup(_START, tuple(rows)),) if rows else ()


def _benchmarks(track: Track, key: str) -> Table | None:
    """The numbers of ZSCL and FoMo-in-Flux, a row per run; None if no run has one of its own.

    `last_zscl` and `ka_fomo` are `own_final` by other names: they are one column.
    """
    runs = [run for run in ordered_runs(track, key, "outside") if run.of.last != START]
    if not any(_is_defined(runs, key, name) for name in ("transfer_zscl", "zs_fomo")):
        return None
    names = [name for name in _BENCHMARKS if _is_defined(runs, key, name)]
    sets = {one for run in runs if (one := tuple(n for n in run.outside if n not in run.averages))}
    about = [f"zs_fomo: mean over {some_names(one)}" for one in sets]
    if len(sets) > 1:
        about = ["zs_fomo: the runs were evaluated on different data sets; compare it with care"]
    if "own_final" in names:
        about.append(f"own_final: the same number as {' and '.join(_SAME)}")
    title, shown = f"Metrics of newer benchmarks in {key}", [_summary(key, one) for one in names]
    return _comparison(title, runs, runs, shown, "benchmarks", about)


def _summary(key: str, name: str, title: str = "", reading: str | None = None) -> _Shown:
    """A summary of DEFINITIONS; under the title of a metric key, it is a score without reading."""
    one = DEFINITIONS[name]
    column = Column(title or name, higher_is_better=bool(title) or one.higher_is_better)
    usual = "" if title else f"{name}: {one.reading}"
    return _Shown(column, lambda run: number_cell(run.summary(key, name)), reading or usual)


def _comparison(
    title: str,
    every: Sequence[Run],
    runs: Sequence[Run],
    shown: Sequence[_Shown],
    name: str,
    notes: Sequence[str] = (),
) -> Table:
    """A row for each of the runs in the groups of papers, the best of each column marked."""
    words = _words(every)
    heads = (*(column for column, _ in words), *(one.column for one in shown))
    groups = []
    for group in GROUPS:
        members = [run for run in runs if run.group == group]
        rows = tuple(
            (*(TableCell(of[run.name]) for _, of in words), *(one.cell(run) for one in shown))
            for run in members
        )
        if rows:
            seeds = [run.seeds for run in members]
            groups.append(with_best_marked(heads, RowGroup(group, rows), seeds))
    of_seeds = seed_notes(groups, [len(run.seeds) for run in every])
    readings = (one.reading for one in shown if one.reading)
    return Table(title, heads, tuple(groups), (*notes, *of_seeds, *readings), name=name)


def _words(runs: Sequence[Run]) -> _Words:
    """The run, its method and buffer if these say more, and its seeds if runs differ in them."""
    recipes = {
        run.name: f"{run.method}, {run.buffer}" if run.buffer else run.method for run in runs
    }
    words: _Words = [(Column("run", is_number=False), {run.name: run.name for run in runs})]
    if any(recipe != name for name, recipe in recipes.items()):
        words.append((Column("method", is_number=False), recipes))
    if len({len(run.seeds) for run in runs}) > 1:
        words.append((Column("seeds"), {run.name: str(len(run.seeds)) for run in runs}))
    return words


def _is_defined(runs: Iterable[Run], key: str, name: str) -> bool:
    return any(run.summary(key, name) for run in runs)


def matrix_table(run: Run, key: str, most: int = MOST_SHOWN) -> Table:
    """Scores of a run after each step (rows) on each task and the merged gallery (columns).

    The first row is the model before the first task, if it was evaluated. Of a long run, at most
    `most` steps and tasks are shown.
    """
    tasks = shown_tasks(run, most)
    steps = [run.steps - 1] if run.final_only else shown_steps(run, most)
    is_cut = not run.final_only and (len(steps) < run.steps or len(tasks) < len(run.tasks))
    note = f"shows {len(steps)} of {run.steps} steps and {len(tasks)} of {len(run.tasks)} tasks"
    own, has_merged = tasks if "own" in run.galleries else [], "merged" in run.galleries
    means = own_means(run, key)

    def row(step: int) -> tuple[TableCell, ...]:
        scores = zip(own, means[step + 1, own].tolist(), strict=True)
        cells = [TableCell(step_label(run, step)), *(_own_cell(step, *one) for one in scores)]
        if has_merged:
            found = None if step == START else run.on_merged(key, step)
            absent = TableCell("" if step == START else UNDEFINED)
            cells.append(TableCell(fixed(found.mean, 1), value=found.mean) if found else absent)
        return tuple(cells)

    groups = [RowGroup("", tuple(map(row, [*([START] if run.has_start else []), *steps])))]
    if len(steps) > 1 and own:
        learned = means[np.minimum(own, run.steps - 1) + 1, own]
        lost = zip(own, (learned - means[run.steps, own]).tolist(), strict=True)
        forgotten = (
            "" if task >= run.steps - 1 else UNDEFINED if math.isnan(value) else fixed(value, 1)
            for task, value in lost
        )
        every = ("forgotten", *forgotten, *([""] if has_merged else []))
        groups.append(
            RowGroup("", (tuple(TableCell(text, is_faint=bool(text)) for text in every),))
        )
    names = (*map(str, own), *(["merged"] if has_merged else []))
    columns = (Column("after task", is_number=False), *map(Column, names))
    seeds = f", mean of {len(run.seeds)} seeds" if len(run.seeds) > 1 else ""
    title = f"{run.name}: {key} of each task (columns) after each task (rows){seeds}"
    return Table(title, columns, tuple(groups), (note,) if is_cut else ())


def _own_cell(step: int, task: int, mean: float) -> TableCell:
    is_learned = task <= step  # START is below all tasks
    if math.isnan(mean):
        return TableCell(UNDEFINED, is_strong=task == step) if is_learned else _BLANK
    return TableCell(fixed(mean, 1), value=mean, is_strong=task == step, is_faint=not is_learned)


def own_means(run: Run, key: str) -> Matrix:
    """(1 + R, K) scores from the start on, averaged over seeds; NaN where a seed lacks a cell.

    The number of rows is that of all steps, R, and one for the start.
    """
    found = run.own.get(key)
    if found is None:
        return np.full((run.steps + 1, len(run.tasks)), np.nan)
    own = found[:, :-1, : len(run.tasks)]
    if len(own) == 1:
        only: Matrix = own[0]
        return only
    # fsum, as of every mean over seeds: numpy's may differ in the last digit.
    rows = zip(*own.tolist(), strict=True)
    sums = [[math.fsum(cell) for cell in zip(*row, strict=True)] for row in rows]
    mean: Matrix = np.array(sums).reshape(own.shape[1:]) / len(own)
    return mean


def shown_steps(run: Run, most: int = MOST_SHOWN) -> list[int]:
    """The steps that matrices show: all, or of a long run some that have scores."""
    return _shown(run, run.steps, most, axis=1)


def shown_tasks(run: Run, most: int = MOST_SHOWN) -> list[int]:
    """The tasks that matrices show: all, or of a long run some that have scores."""
    found = _shown(run, len(run.tasks), most, axis=0)
    return [task for task in found if task not in run.unmeasured or task in run.steps_on]


def _shown(run: Run, count: int, most: int, axis: int) -> list[int]:
    if count <= most:
        return list(range(count))
    has_scores = np.zeros(count, dtype=np.bool_)
    for key, own in run.own.items():
        first = 0 if axis == 0 else 1  # the start is a row of its own
        parts = [own[:, first : run.steps + 1, : len(run.tasks)]]
        parts += [run.merged[key][:, : run.steps]] if key in run.merged else []
        for part in parts:
            has_scores |= ~np.isnan(part).all(axis=(0, 1 + axis))
    found = np.flatnonzero(has_scores)
    if len(found) > most:
        found = found[np.linspace(0, len(found) - 1, most).round().astype(int)]
    return [int(place) for place in found]


def step_label(run: Run, step: int) -> str:
    """The step and its task, such as "02 food"; a slug that starts with its number is kept.

    All labels of a run have as many digits, so that they sort.
    """
    if step == START:
        return "start"
    name, digits = run.tasks[step], max(2, len(str(len(run.tasks) - 1)))
    number, dash, rest = name.partition("-")
    is_numbered = dash and number.isdecimal() and int(number) == step
    return f"{step:0{digits}d}{dash}{rest}" if is_numbered else f"{step:0{digits}d} {name}"


def outside_table(curves: Sequence[Curve], drops: Iterable[Drop], key: str) -> Table | None:
    """A row for each data set outside the stream and run: its score after every step.

    Guards have their baseline and drop, too; other data have no `drops`. None without any score.
    """
    curves = [one for one in curves if any(one.at(step, key) for step in one.steps)]
    if not curves:
        return None
    of = {(one.curve.run.name, one.data): one for one in drops if one.key == key}
    # The start is a step only where it is not the baseline itself.
    at = {step for one in curves for step in one.steps if step != START or one.is_apart or not of}
    every = sorted(at)
    is_long = len(every) > _FIRST + _LAST
    steps = [*every[:_FIRST], *every[-_LAST:]] if is_long else every
    has_intervals = any(one.interval for one in of.values())
    columns = (
        Column("run", is_number=False),
        *([Column("baseline", higher_is_better=None)] if of else []),
        *(Column("start" if step == START else f"after {step}") for step in steps),
        *([Column("drop", higher_is_better=False)] if of else []),
        *([Column("95 % interval")] if has_intervals else []),
    )

    def row(curve: Curve) -> tuple[TableCell, ...]:
        scores = (number_cell(curve.at(step, key)) for step in steps)
        if not of:
            return (TableCell(curve.run.name), *scores)
        drop = of[curve.run.name, curve.data]
        ends = [interval_cell(drop)] if has_intervals else []
        first = TableCell(curve.run.name), _baseline_cell(drop.baseline)
        return (*first, *scores, number_cell(drop.drop), *ends)

    groups = []
    for data, members in grouped(curves, lambda one: one.data).items():
        seeds = [one.run.seeds for one in members]
        groups.append(with_best_marked(columns, RowGroup(data, tuple(map(row, members))), seeds))
    count, few = (len([step for step in some if step != START]) for some in (every, steps))
    notes = (
        *([f"shows {few} of {count} steps"] if is_long else []),
        *(_drop_notes(curves, of) if of else [_NOT_COUNTED]),
        *seed_notes(groups, [len(one.run.seeds) for one in curves]),
    )
    kind = "guards" if of else "transfer"
    title = f"{kind.capitalize()}: {key} on data outside the stream"
    return Table(title, columns, tuple(groups), notes, name=kind)


def _drop_notes(curves: Sequence[Curve], of: Mapping[tuple[str, str], Drop]) -> list[str]:
    """What a table of guards compares, and why runs have no drop."""
    lacking = (drop for one in curves if not (drop := of[one.run.name, one.data]).drop)
    reasons = (f"{one.curve.run.name} has no drop: {one.undefined}" for one in lacking)
    said = [*_baselines(curves), *_cut(reasons, "drops"), _AFTER, _DROP]
    has_intervals = any(one.interval for one in of.values())
    return said + ["95 % interval: of the drop, over resampled queries (--ranks)"] * has_intervals


def _baselines(curves: Sequence[Curve]) -> list[str]:
    """The baseline in words, or that of each run where they differ."""
    runs = {one.run.of.models: one.run.name for one in curves}
    if len(runs) == 1:
        return [f"baseline: {' and '.join(*runs)}"]
    found = [f"baseline of {name}: {' and '.join(models)}" for models, name in runs.items()]
    return _cut(found, "baselines")


def _cut(notes: Iterable[str], what: str) -> list[str]:
    """The first few different notes, and how many more there are."""
    found = list(dict.fromkeys(notes))
    more = [f"and {len(found) - _REASONS} more {what}"] if len(found) > _REASONS else []
    return [*found[:_REASONS], *more]


def interval_cell(drop: Drop) -> TableCell:
    """Such as "1.20 to 3.40"."""
    ends = drop.interval
    return ends_cell((ends.low, ends.high) if ends else None)


def ends_cell(ends: tuple[float, float] | None) -> TableCell:
    """The ends of an interval, or a dash."""
    return TableCell(f"{fixed(ends[0])} to {fixed(ends[1])}") if ends else _DASH


def _baseline_cell(baseline: Spread | None) -> TableCell:
    """The score; one value stands for seeds that start from the same model."""
    if baseline is not None and len(set(baseline.values)) == 1:
        baseline = Spread(baseline.values[:1])
    return number_cell(baseline)


def calibration_table(curves: Iterable[Curve], title: str) -> Table | None:
    """What the probabilities of a sigmoid's model meant, and mean now; None without any.

    A group for each run, a row for each guard and task, and three columns for each metric: the
    baseline, the model of the step before, if any run has one that is not its start, and the last.
    """
    found = [one for one in curves if any(one.at(one.run.of.last, key) for key in METRICS)]
    if not found:
        return None
    has_before = any(one.run.of.before != START for one in found)
    models = [*(_MODELS if has_before else ["start"]), "last"]
    places = [(key, model) for key in METRICS for model in models]
    columns = (Column(model, over=key.removeprefix("pair_")) for key, model in places)
    groups = []
    for run, members in grouped(found, lambda one: one.run.name).items():
        rows = (
            (
                number_cell(
                    one.at(one.run.of.last, key)
                    if model == "last"
                    else one.before(key, _MODELS[model])
                )
                for key, model in places
            )
            for one in members
        )
        named = zip(members, rows, strict=True)
        groups.append(RowGroup(run, tuple((TableCell(one.data), *row) for one, row in named)))
    notes = (*_CALIBRATION, *seed_notes(groups, [len(one.run.seeds) for one in found]))
    heads = (Column("data", is_number=False), *columns)
    return Table(title, heads, tuple(groups), notes, name="calibration")


def definitions_table() -> Table:
    """A table of the summary metrics: name, formula, how to read the sign, and the source."""
    names = ("metric", "formula", "reading", "source")
    columns = tuple(Column(name, is_number=False) for name in names)
    rows = tuple(
        tuple(map(TableCell, (one.name, one.formula, one.reading, one.source)))
        for one in DEFINITIONS.values()
    )
    return Table("Definitions", columns, (RowGroup("", rows),), (LEGEND,))


def measured_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The metrics and counts of evaluation rows, grouped by checkpoint, in the order of the rows.

    The columns are the metric keys that rows and --fail-if have, in percent.
    """
    keys = list(dict.fromkeys(key for row in rows for key in row["metrics"]))
    counts = list(dict.fromkeys(name for row in rows for name in row if name.startswith("n_")))
    columns = (Column("data", is_number=False), *map(Column, [*keys, *counts]))
    groups: dict[str, list[tuple[TableCell, ...]]] = {}
    for row in rows:
        values = (row["metrics"].get(key) for key in keys)
        count = len(row["tasks"])
        of = f" ({count} task{'' if count == 1 else 's'})" if row["gallery"] == "merged" else ""
        cells = (
            TableCell(f"{row['task']}{of}"),
            *(_DASH if value is None else TableCell(fixed(value)) for value in values),
            *(TableCell(str(row.get(name, UNDEFINED)), is_faint=True) for name in counts),
        )
        # The run and how far it has trained, with the share of an average of two checkpoints.
        alpha = "" if row.get("alpha") is None else f", alpha {row['alpha']:g}"
        seed = f", seed {row['seed']}" if row["seed"] else ""
        learned = "before any task" if row["step"] is None else f"after task {row['step']}"
        groups.setdefault(f"{row['run']}{alpha}{seed}, {learned}", []).append(cells)
    found = tuple(RowGroup(name, tuple(cells)) for name, cells in groups.items())
    splits = _names(row["split"] for row in rows)
    parts = [_names(row["evaluator"] for row in rows), _names(row.get("protocol") for row in rows)]
    title = ", ".join(filter(None, (*parts, f"split {splits}", "in percent")))
    note = "-o FILE writes these rows for forgetting-report; --json prints them"
    return Table(title, columns, found, (note,))


def _names(found: Iterable[str | None]) -> str:
    return ", ".join(dict.fromkeys(one for one in found if one))

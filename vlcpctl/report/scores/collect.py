"""Collects rows into runs with score matrices, the data of every table and chart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat
from operator import attrgetter
from typing import TypeVar

import numpy as np

from vlcpctl.core.errors import BadInput
from vlcpctl.files.rows import Row, firsts
from vlcpctl.report.scores.runs import (
    START,
    RunScores,
    SeedScores,
    Track,
    TransferScores,
    is_outside,
    step_of,
)

K = TypeVar("K")
TrackKey = tuple[str, str, str, str]
# What one report can hold. A run of 1000 tasks with ten metrics, its merged galleries included,
# takes a tenth of the cells.
MOST_TRACKS = 100
MOST_RUNS = 2000  # runs times seeds, of all tracks together
MOST_OUTSIDE = 10_000  # runs times data outside the stream, of all tracks together
MOST_KEYS = 200  # metric keys of a track
MOST_CELLS = 2 * 10**8  # of score matrices, 8 bytes each


def collect(rows: Iterable[Row], starts: Mapping[str, Sequence[str]] | None = None) -> list[Track]:
    """Group rows into tracks; the result does not depend on the order of the rows.

    `starts` has the names of the models that runs start from, if those are known. Raises BadInput
    for a row that fits into no score matrix, for rows of one run that contradict each other, and
    for more than one report can hold.
    """
    rows = list(rows)
    tracks = _grouped(rows, track_key)
    _refuse_more(len(tracks), MOST_TRACKS, "combinations of evaluator, protocol and split")
    runs, outside = 0, 0
    for members in tracks.values():
        runs += len({(row.run, row.seed) for row in members if not is_outside(row)})
        outside += len({(row.run, row.task, row.tasks) for row in members if is_outside(row)})
    _refuse_more(runs, MOST_RUNS, "combinations of run and seed")
    _refuse_more(outside, MOST_OUTSIDE, "lines on data outside the stream")
    last: dict[str, int] = {}  # a track may lack the last model of a run
    for run, step in {(row.run, step_of(row)) for row in firsts(rows, "model_part")}:
        last[run] = max(step, last.get(run, START))
    return [_track(members, starts or {}, last) for _, members in sorted(tracks.items())]


def track_key(row: Row | Track) -> TrackKey:
    """What separates tracks: evaluator, protocol, variant and split."""
    return row.evaluator, row.protocol, row.map_variant or "", row.split


def outside_names(rows: Iterable[Row]) -> dict[tuple[str, tuple[str, ...]], str]:
    """A name for all data outside the stream in these rows, by their task and tasks.

    Averages over different data sets share a name ("average of 2"); `tasks` keeps them apart.
    """
    known = dict.fromkeys((row.task, row.tasks) for row in rows if is_outside(row))
    count = Counter(task for task, _ in known)
    return {
        (task, tasks): task if count[task] == 1 or len(tasks) < 2 else f"{task}: {', '.join(tasks)}"
        for task, tasks in known
    }


def _refuse_more(count: int, most: int, what: str) -> None:
    if count > most:
        raise BadInput(f"the rows have {count} {what}, more than {most}; report fewer at a time")


def _track(rows: list[Row], starts: Mapping[str, Sequence[str]], last: Mapping[str, int]) -> Track:
    for row in firsts(rows, "data_part"):
        _check(row)
    outside = [row for row in rows if is_outside(row)]
    foreign: dict[str, set[str]] = {}
    for row in outside:
        foreign.setdefault(row.run, set()).add(row.task)
    inside = [row for row in rows if not is_outside(row)]
    if foreign:
        inside = [row for row in inside if not _is_foreign(row, foreign)]
    runs = _grouped(inside, attrgetter("run"))
    names = outside_names(outside)
    transfers = _grouped(outside, attrgetter("run", "task", "tasks"))
    outside_of = _grouped(outside, attrgetter("run"))
    keys = tuple(_keys(rows))
    _refuse_more(len(keys), MOST_KEYS, "metrics")
    if not keys:
        raise BadInput(f"{rows[0].place} has no metric, and no other row of its evaluator has one")
    keys_of = {name: _keys(members) for name, members in runs.items()}
    cells = sum(_cells(members, len(keys_of[name])) for name, members in runs.items())
    _refuse_more(cells, MOST_CELLS, "cells of score matrices")
    return Track(
        evaluator=rows[0].evaluator,
        protocol=rows[0].protocol,
        map_variant=rows[0].map_variant,
        split=rows[0].split,
        keys=keys,
        runs=tuple(
            _with_outside(
                _run(name, members, keys_of[name], tuple(starts.get(name, ()))),
                outside_of.get(name, []),
                last[name],
            )
            for name, members in sorted(runs.items())
        ),
        transfers=tuple(
            _transfer(run, names[task, tasks], members)
            for (run, task, tasks), members in sorted(transfers.items())
        ),
        outside_runs=tuple(
            _with_outside(_outside_run(name, members, last[name]), members, last[name])
            for name, members in sorted(outside_of.items())
            if name not in runs and last[name] != START
        ),
    )


def _check(row: Row) -> None:
    """Raise BadInput if a row does not fit into a score matrix."""
    if row.gallery == "own":
        return
    if row.gallery != "merged":
        raise BadInput(f"{row.place}: gallery is {row.gallery!r}, not 'own' or 'merged'")
    if _column(row) < 0:
        raise BadInput(f"{row.place}: a merged gallery must list its tasks in 'tasks'")
    if row.tasks and _column(row) != len(row.tasks) - 1:
        raise BadInput(
            f"{row.place}: task_step is {row.task_step}, but the merged gallery has "
            f"{len(row.tasks)} tasks"
        )


def _is_foreign(row: Row, foreign: Mapping[str, set[str]]) -> bool:
    """Whether a merged gallery has data outside the stream of its run."""
    is_merged = row.gallery == "merged" and row.run in foreign
    return is_merged and not foreign[row.run].isdisjoint(row.tasks)


def _cells(rows: list[Row], keys: int) -> int:
    """How many cells the score matrices of a run have, with this many metrics."""
    models, data = firsts(rows, "model_part"), firsts(rows, "data_part")
    seeds = {row.seed for row in models}
    galleries = {row.gallery for row in data}
    steps, columns = max(map(step_of, models)) + 1, max(map(_column, data)) + 1
    return max(steps, 1) * max(steps, columns) * keys * len(seeds) * len(galleries)


def _run(name: str, rows: list[Row], keys: Iterable[str], starts: tuple[str, ...]) -> RunScores:
    models, data = firsts(rows, "model_part"), firsts(rows, "data_part")
    last = max(map(step_of, models))
    method, buffer = _recipe(name, models, last)
    tasks = _task_names(data, last)
    seeds = _grouped(rows, attrgetter("seed"))
    per_seed = [_seed_scores(members, last + 1, len(tasks)) for _, members in sorted(seeds.items())]
    trained = {step_of(row) for row in models} - {START}
    empty = _empty(last + 1, len(tasks))
    return RunScores(
        name=name,
        method=method,
        buffer=buffer,
        tasks=tasks,
        seeds=tuple(sorted(seeds)),
        steps=last + 1,
        final_only=trained == {last} and last > 0,
        galleries=frozenset(row.gallery for row in data),
        scores={key: tuple(scores.get(key, empty) for scores in per_seed) for key in keys},
        starts=starts,
    )


def _outside_run(name: str, rows: list[Row], last: int) -> RunScores:
    """A run without a row on its stream; of some, the last model was evaluated elsewhere only."""
    method, buffer = _recipe(name, rows, max(map(step_of, rows)))
    seeds = tuple(sorted({row.seed for row in rows}))
    keys = _keys(rows)
    empty = SeedScores(np.empty((0, 0)), np.empty((0, 0)), np.empty(0))
    return RunScores(
        name=name,
        method=method,
        buffer=buffer,
        tasks=(),
        seeds=seeds,
        steps=last + 1,
        final_only=False,
        galleries=frozenset(),
        scores={key: (empty,) * len(seeds) for key in keys},
    )


def _with_outside(run: RunScores, rows: list[Row], last: int) -> RunScores:
    """The run with the scores of its last model on data outside its stream.

    Means over several data sets do not count, nor does, in a metric, data without this metric.
    """
    rows = [row for row in rows if len(row.tasks) < 2]
    sets: dict[str, dict[str, int]] = {}  # by metric: the column of each data set
    for row in sorted(rows, key=lambda row: row.task):
        for key in row.metrics:
            sets.setdefault(key, {}).setdefault(row.task, len(sets.get(key, {})))
    if not sets:
        return run
    shape = len(run.seeds)
    found = {key: np.full((shape, len(columns)), np.nan) for key, columns in sets.items()}
    for row in rows:
        if step_of(row) == last and row.seed in run.seeds:
            for key, value in row.metrics.items():
                found[key][run.seeds.index(row.seed), sets[key][row.task]] = value
    none = _empty(run.steps, len(run.tasks))
    scores = {
        key: tuple(
            replace(one, outside=found[key][number]) if key in found else one
            for number, one in enumerate(run.scores.get(key, (none,) * shape))
        )
        for key in dict.fromkeys((*run.scores, *found))
    }
    return replace(run, scores=scores, outside=tuple(sorted({row.task for row in rows})))


def _seed_scores(rows: list[Row], steps: int, tasks: int) -> dict[str, SeedScores]:
    galleries = {row.gallery for row in rows}
    # At once for all rows of one gallery with the same metrics.
    alike: defaultdict[tuple[str, bool, tuple[str, ...]], list[Row]] = defaultdict(list)
    for row in rows:
        alike[row.gallery, row.step is None, tuple(row.metrics)].append(row)
    names = {key for _, _, keys in alike for key in keys}
    scores = {key: _empty(steps, tasks, galleries) for key in names}
    filled: set[tuple[str, int, int]] = set()
    for (gallery, is_start, keys), members in alike.items():
        places, columns = [step_of(row) for row in members], [_column(row) for row in members]
        filled.update(zip(repeat(gallery), places, columns))
        found = chain.from_iterable(row.metrics.values() for row in members)
        values = np.fromiter(found, np.float64).reshape(len(members), len(keys))
        for key, of_key in zip(keys, values.T, strict=True):
            if not is_start:
                scores[key].of(gallery)[places, columns] = of_key
            elif gallery == "own":
                scores[key].start[columns] = of_key
    if len(filled) < len(rows):
        _refuse_shared_cell(rows)
    return scores


def _refuse_shared_cell(rows: list[Row]) -> None:
    """Raise BadInput for the first two rows that are of one cell of a matrix."""
    filled: dict[tuple[str, int, int], Row] = {}
    for row in rows:
        cell = row.gallery, step_of(row), _column(row)
        first = filled.setdefault(cell, row)
        if first is not row:
            raise BadInput(
                f"{first.place} and {row.place} are both step {row.step}, task {cell[2]} of "
                f"run {row.run!r}, seed {row.seed} ({row.gallery} gallery); remove one of them"
            )


def _empty(steps: int, tasks: int, galleries: Collection[str] = ()) -> SeedScores:
    """Matrices of NaN; those of a gallery without rows take no memory and cannot be written."""
    shape = (max(steps, 0), tasks)
    own, merged = (
        np.full(shape, np.nan) if gallery in galleries else np.broadcast_to(np.nan, shape)
        for gallery in ("own", "merged")
    )
    return SeedScores(own, merged, np.full(tasks, np.nan))


def _column(row: Row) -> int:
    """The matrix column: the task of an own gallery, or the last task of a merged one."""
    if row.task_step is not None:
        return row.task_step
    return len(row.tasks) - 1


def _recipe(name: str, rows: list[Row], last: int) -> tuple[str, str | None]:
    """Method and buffer of a run; BadInput if its seeds or tasks disagree about them."""
    # Compared step by step, because the first step of a run has no buffer to replay yet. Models
    # that seeds start from may have been trained in different ways.
    for members in _grouped((row for row in rows if step_of(row) >= 0), step_of).values():
        first = members[0]
        for row in members:
            if (row.method, row.buffer) != (first.method, first.buffer):
                raise BadInput(
                    f"run {name!r} mixes methods or buffers at step {row.step}: "
                    f"{_described(first)} ({first.place}) and {_described(row)} ({row.place}); "
                    "give each its own run name"
                )
    final = next(row for row in rows if step_of(row) == last)
    return final.method, _buffer_text(final)


def _described(row: Row) -> str:
    return f"{row.method}, buffer {_buffer_text(row) or 'none'}"


def _buffer_text(row: Row) -> str | None:
    if not row.buffer:
        return None
    parts = (row.buffer.get(name) for name in ("policy", "size"))
    return " ".join(f"{part!s:.100}" for part in parts if part is not None) or "yes"


def _task_names(rows: list[Row], last: int) -> tuple[str, ...]:
    names: dict[int, Row] = {}
    for row in rows:
        if row.gallery == "own":
            first = names.setdefault(_column(row), row)
            if first.task != row.task:
                raise BadInput(
                    f"{row.place}: task {_column(row)} of run {row.run!r} is {row.task!r}, but "
                    f"{first.task!r} in {first.place}; give each stream its own run name"
                )
    merged = max((row.tasks for row in rows if row.gallery == "merged"), key=len, default=())
    count = max([last, len(merged) - 1, *names]) + 1
    known = dict(enumerate(merged)) | {step: row.task for step, row in names.items()}
    return tuple(known.get(step, f"task {step}") for step in range(count))


def _transfer(run: str, task: str, rows: list[Row]) -> TransferScores:
    seeds = [members for _, members in sorted(_grouped(rows, attrgetter("seed")).items())]
    keys = _keys(rows)
    by_step = {
        key: tuple(
            {step_of(row): row.metrics[key] for row in members if key in row.metrics}
            for members in seeds
        )
        for key in keys
    }
    first = rows[0]
    numbers = tuple(sorted({row.seed for row in rows}))
    return TransferScores(run, task, by_step, len(first.tasks) > 1, numbers)


def _keys(rows: Iterable[Row]) -> dict[str, None]:
    """The metrics that any of the rows has, in order."""
    return dict.fromkeys(chain.from_iterable(row.metrics for row in rows))


def _grouped(rows: Iterable[Row], key: Callable[[Row], K]) -> dict[K, list[Row]]:
    groups: defaultdict[K, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups

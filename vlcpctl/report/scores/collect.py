"""Collects rows into runs with score matrices, the data of every table and chart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

from vlcpctl.core.errors import BadInput
from vlcpctl.core.limits import MOST_TASKS
from vlcpctl.core.rows import Row
from vlcpctl.report.scores.runs import START, RunScores, SeedScores, Track, TransferScores

K = TypeVar("K")


def collect(rows: Iterable[Row]) -> list[Track]:
    """Group rows into tracks; the result does not depend on the order of the rows.

    Raises BadInput for a row that fits into no score matrix, and for rows of one run that
    contradict each other.
    """
    tracks = _grouped(
        rows, lambda row: (row.evaluator, row.protocol, row.map_variant or "", row.split)
    )
    return [_track(members) for _, members in sorted(tracks.items())]


def _track(rows: list[Row]) -> Track:
    for row in rows:
        _check(row)
    foreign = {row.task for row in rows if row.gallery == "own" and row.task_step is None}
    inside = [row for row in rows if not _is_foreign(row, foreign)]
    outside = [row for row in rows if row.gallery == "own" and row.task_step is None]
    runs = _grouped(inside, lambda row: row.run)
    # Averages over different data sets share a name ("average of 2"); `tasks` keeps them apart.
    transfers = _grouped(outside, lambda row: (row.run, row.task, row.tasks))
    return Track(
        evaluator=rows[0].evaluator,
        protocol=rows[0].protocol,
        map_variant=rows[0].map_variant,
        split=rows[0].split,
        keys=tuple(dict.fromkeys(key for row in rows for key in row.metrics)),
        runs=tuple(_run(name, members) for name, members in sorted(runs.items())),
        transfers=tuple(
            _transfer(run, task, members) for (run, task, _), members in sorted(transfers.items())
        ),
    )


def _check(row: Row) -> None:
    """Raise BadInput if a row does not fit into a score matrix."""
    if row.gallery not in {"own", "merged"}:
        raise BadInput(f"{row.place}: gallery is {row.gallery!r}, not 'own' or 'merged'")
    if row.gallery == "merged" and _column(row) < 0:
        raise BadInput(f"{row.place}: a merged gallery must list its tasks in 'tasks'")
    if max(_step(row), _column(row)) >= MOST_TASKS or (row.task_step or 0) < 0:
        raise BadInput(
            f"{row.place}: step {row.step} and task_step {row.task_step} must be "
            f"between 0 and {MOST_TASKS - 1}"
        )


def _is_foreign(row: Row, foreign: set[str]) -> bool:
    if row.gallery == "own":
        return row.task_step is None
    return bool(foreign.intersection(row.tasks))


def _run(name: str, rows: list[Row]) -> RunScores:
    last = max(_step(row) for row in rows)
    method, buffer = _recipe(name, rows, last)
    tasks = _task_names(rows, last)
    seeds = _grouped(rows, lambda row: row.seed)
    keys = dict.fromkeys(key for row in rows for key in row.metrics)
    per_seed = [_seed_scores(members, last + 1, len(tasks)) for _, members in sorted(seeds.items())]
    empty = _empty(last + 1, len(tasks))
    return RunScores(
        name=name,
        method=method,
        buffer=buffer,
        tasks=tasks,
        seeds=tuple(sorted(seeds)),
        steps=last + 1,
        final_only={_step(row) for row in rows} - {START} == {last} and last > 0,
        galleries=frozenset(row.gallery for row in rows),
        scores={key: tuple(scores.get(key, empty) for scores in per_seed) for key in keys},
    )


def _seed_scores(rows: list[Row], steps: int, tasks: int) -> dict[str, SeedScores]:
    scores: dict[str, SeedScores] = {}
    for row in rows:
        for key, value in row.metrics.items():
            cells = scores.setdefault(key, _empty(steps, tasks))
            if row.gallery == "merged":
                if _step(row) >= 0:
                    cells.merged[_step(row), _column(row)] = value
            elif _step(row) < 0:
                cells.start[_column(row)] = value
            else:
                cells.own[_step(row), _column(row)] = value
    return scores


def _empty(steps: int, tasks: int) -> SeedScores:
    shape = (max(steps, 0), tasks)
    return SeedScores(np.full(shape, np.nan), np.full(shape, np.nan), np.full(tasks, np.nan))


def _step(row: Row) -> int:
    """The checkpoint's step; START for a model not yet trained on the stream."""
    return START if row.step is None else max(row.step, START)


def _column(row: Row) -> int:
    """The matrix column: the task of an own gallery, or the last task of a merged one."""
    if row.task_step is not None:
        return row.task_step
    return len(row.tasks) - 1


def _recipe(name: str, rows: list[Row], last: int) -> tuple[str, str | None]:
    """Method and buffer of a run; BadInput if its seeds or tasks disagree about them."""
    # Compared step by step, because the first step of a run has no buffer to replay yet.
    for members in _grouped(rows, _step).values():
        first = members[0]
        for row in members:
            if (row.method, row.buffer) != (first.method, first.buffer):
                raise BadInput(
                    f"run {name!r} mixes methods or buffers at step {row.step}: "
                    f"{_described(first)} ({first.place}) and {_described(row)} ({row.place}); "
                    "give each its own run name"
                )
    final = next(row for row in rows if _step(row) == last)
    return final.method, _buffer_text(final)


def _described(row: Row) -> str:
    return f"{row.method}, buffer {_buffer_text(row) or 'none'}"


def _buffer_text(row: Row) -> str | None:
    if not row.buffer:
        return None
    parts = (row.buffer.get(name) for name in ("policy", "size"))
    return " ".join(str(part) for part in parts if part is not None) or "yes"


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
    seeds = [members for _, members in sorted(_grouped(rows, lambda row: row.seed).items())]
    keys = dict.fromkeys(key for row in rows for key in row.metrics)
    by_step = {
        key: tuple(
            {_step(row): row.metrics[key] for row in members if key in row.metrics}
            for members in seeds
        )
        for key in keys
    }
    return TransferScores(run, task, by_step)


def _grouped(rows: Iterable[Row], key: Callable[[Row], K]) -> dict[K, list[Row]]:
    groups: dict[K, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups

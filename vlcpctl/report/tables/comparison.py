"""Comparison tables, a row per run, laid out as in the papers: final scores and forgetting."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from vlcpctl.core.errors import some_names
from vlcpctl.metrics.calibration import METRICS
from vlcpctl.metrics.definitions import DEFINITIONS
from vlcpctl.report.scores.runs import RunScores, Track
from vlcpctl.report.scores.summary import (
    Spread,
    change_from_start,
    start_score,
    summarise,
    why_undefined,
)
from vlcpctl.report.tables.table import (
    Column,
    RowGroup,
    Table,
    TableCell,
    number_cell,
    seed_notes,
    with_best_marked,
)

GROUPS = ("Joint training (upper bound)", "Memory free", "Memory buffer")

_START = "Before the first task"
_TITLES = {
    "merged_final": "Last model, merged gallery of all tasks",
    "own_final": "Last model, mean over the tasks' own galleries",
}

_CHANGE = "change"
_CHANGE_READING = (
    "against the start, the model before the first task, on the same tasks; negative is worse"
)
_RANKS = {**dict.fromkeys(METRICS, 6), "_rmean": 4, "_r10": 3, "_10": 3, "_r5": 2, "_5": 2}
_WORDS_RANK = 5
# The numbers of newer benchmarks have a table of their own.
_BENCHMARKS = ("transfer_zscl", "avg_zscl", "last_zscl", "ka_fomo", "zs_fomo")
_OWN = tuple(
    name
    for name, definition in DEFINITIONS.items()
    if definition.gallery != "merged" and name not in _BENCHMARKS
)


def comparison_tables(track: Track, key: str, galleries: tuple[str, ...]) -> list[Table]:
    """Tables of final scores per gallery in every metric key, and of forgetting in `key`.

    The last one, if it is defined for any run, has the numbers of newer benchmarks in `key`.
    """
    runs = ordered_runs(track, key)
    galleries_shown = {gallery for run in runs for gallery in run.galleries}.intersection(galleries)
    names = [name for name in _TITLES if DEFINITIONS[name].gallery in galleries_shown]
    tables = [_final_scores(track, runs, key, name) for name in names]
    if "own" in galleries_shown:
        tables.append(_forgetting(runs, key))
    benchmarks = benchmark_table(track, key)
    return tables if benchmarks is None else [*tables, benchmarks]


def benchmark_table(track: Track, key: str) -> Table | None:
    """The numbers of ZSCL and FoMo-in-Flux, a row per run; None if no run has one of its own.

    `last_zscl` and `ka_fomo` alone are `own_final` by other names.
    """
    runs = [run for run in _ordered(track.runs_with("outside"), key) if run.steps]
    if not any(_is_defined(runs, key, name) for name in ("transfer_zscl", "zs_fomo")):
        return None
    names = [name for name in _BENCHMARKS if _is_defined(runs, key, name)]
    columns = (*(column for column, _ in _words(runs)), *(_column(name) for name in names))
    groups = _groups(runs, runs, columns, lambda run: [summarise(run, key, n) for n in names])
    signs = tuple(f"{name}: {DEFINITIONS[name].reading}" for name in names)
    title = f"Metrics of newer benchmarks in {key}"
    notes = (*_set_notes(runs), *_seed_notes(groups, runs))
    return Table(title, columns, groups, notes, readings=signs, name="benchmarks")


def _set_notes(runs: list[RunScores]) -> tuple[str, ...]:
    """The data sets of zs_fomo, if the runs agree about them."""
    sets = dict.fromkeys(run.outside for run in runs if run.outside)
    if not sets:
        return ()
    if len(sets) > 1:
        return ("zs_fomo: the runs were evaluated on different data sets; compare it with care",)
    return (f"zs_fomo: mean over {some_names(next(iter(sets)))}",)


def ordered_runs(track: Track, key: str) -> list[RunScores]:
    """Runs by group, and in a group by ascending final score, as in the papers."""
    return _ordered(track.runs, key)


def _ordered(runs: Iterable[RunScores], key: str) -> list[RunScores]:
    return sorted(runs, key=lambda run: (GROUPS.index(run.group), headline(run, key), run.name))


def headline(run: RunScores, key: str) -> float:
    """The final merged score, else the final own score; minus infinity if both are undefined."""
    spread = summarise(run, key, "merged_final") or summarise(run, key, "own_final")
    return -math.inf if spread is None else spread.mean


def _final_scores(track: Track, runs: list[RunScores], key: str, name: str) -> Table:
    """Every metric key of the last model, and a column in `key` alone.

    That is CTP's BWT for merged galleries, and the change against the start for own ones.
    """
    scores = [(name, column) for column in track.keys]
    scores += (
        [("bwt_ctp", key)] if name == "merged_final" and _is_defined(runs, key, "bwt_ctp") else []
    )
    columns = (
        *(column for column, _ in _words(runs)),
        *(Column(k, rank=_rank(k, key), higher_is_better=True) for k in track.keys),
        *(_column(summary) for summary, _ in scores[len(track.keys) :]),
    )
    trained = [run for run in runs if run.steps or name != "own_final"]
    has_change = name == "own_final" and any(change_from_start(run, key) for run in runs)

    def values(run: RunScores) -> list[Spread | None]:
        found = [summarise(run, k, summary) for summary, k in scores]
        return [*found, change_from_start(run, key)] if has_change else found

    if has_change:
        columns = (*columns, Column(_CHANGE, higher_is_better=True))
    groups = _groups(runs, trained, columns, values)
    if name == "own_final":
        groups = (*_starts(track, runs, len(columns)), *groups)
    signs = (f"bwt_ctp (in {key}): {DEFINITIONS['bwt_ctp'].reading}",)
    readings = signs if len(scores) > len(track.keys) else ()
    readings = (f"{_CHANGE} (in {key}): {_CHANGE_READING}",) if has_change else readings
    notes = _seed_notes(groups, runs)
    file = name.replace("_", "-")
    return Table(_TITLES[name], columns, groups, notes, readings=readings, name=file)


def _starts(track: Track, runs: list[RunScores], width: int) -> tuple[RowGroup, ...]:
    """The models that runs start from, and those not trained on a stream, each on one line.

    A line has `width` cells, of which those after the scores are empty.
    """
    found: dict[tuple[str, tuple[Spread | None, ...]], list[RunScores]] = {}
    for run in runs:
        scores = tuple(start_score(run, key) for key in track.keys)
        if any(scores):
            name = " and ".join(run.starts) or ("start" if run.steps else run.name)
            found.setdefault((name, scores), []).append(run)
    names = [name for name, _ in found]
    rows = []
    for (name, scores), members in found.items():
        of = f" (of {members[0].name})" if names.count(name) > 1 else ""
        words = [f"{name}{of}", *("" for _ in _words(runs)[1:])]
        cells = (*map(TableCell, words), *map(number_cell, scores))
        rows.append((*cells, *[TableCell("")] * (width - len(cells))))
    return (RowGroup(_START, tuple(rows)),) if rows else ()


def _forgetting(runs: list[RunScores], key: str) -> Table:
    names = [name for name in _OWN if name != "fwt_gem" or _is_defined(runs, key, name)]
    columns = (*(column for column, _ in _words(runs)), *(_column(name) for name in names))
    trained = [run for run in runs if run.steps]
    groups = _groups(
        runs, trained, columns, lambda run: [summarise(run, key, name) for name in names]
    )
    signs = tuple(f"{name}: {DEFINITIONS[name].reading}" for name in names)
    title = f"Forgetting in {key}, own galleries"
    notes = _seed_notes(groups, runs)
    readings = (*_reasons(runs), *signs)
    return Table(title, columns, groups, notes, readings=readings, name="forgetting")


def _column(name: str) -> Column:
    return Column(name, higher_is_better=DEFINITIONS[name].higher_is_better)


def _is_defined(runs: list[RunScores], key: str, name: str) -> bool:
    return any(summarise(run, key, name) for run in runs)


def _rank(name: str, key: str) -> int:
    """How early a metric's column is left out of a narrow table; 0, the report's own, never is."""
    if name == key:
        return 0
    return next((rank for ending, rank in _RANKS.items() if name.endswith(ending)), 1)


def _words(runs: list[RunScores]) -> list[tuple[Column, Callable[[RunScores], str]]]:
    words: list[tuple[Column, Callable[[RunScores], str]]] = [
        (Column("run", is_number=False), lambda run: run.name)
    ]
    if any(_recipe(run) != run.name for run in runs):
        words.append((Column("method", is_number=False, rank=_WORDS_RANK), _recipe))
    if len({len(run.seeds) for run in runs}) > 1:
        words.append((Column("seeds"), lambda run: str(len(run.seeds))))
    return words


def _recipe(run: RunScores) -> str:
    return f"{run.method}, {run.buffer}" if run.buffer else run.method


def _groups(
    all_runs: list[RunScores],
    runs: list[RunScores],
    columns: tuple[Column, ...],
    values: Callable[[RunScores], list[Spread | None]],
) -> tuple[RowGroup, ...]:
    words = [word for _, word in _words(all_runs)]
    blocks = []
    for name in GROUPS:
        members = [run for run in runs if run.group == name]
        rows = tuple(
            (
                *(TableCell(word(run)) for word in words),
                *(number_cell(value) for value in values(run)),
            )
            for run in members
        )
        if rows:
            seeds = [run.seeds for run in members]
            blocks.append(with_best_marked(columns, RowGroup(name, rows), seeds))
    return tuple(blocks)


def _seed_notes(groups: Sequence[RowGroup], runs: list[RunScores]) -> tuple[str, ...]:
    return seed_notes(groups, [len(run.seeds) for run in runs])


def _reasons(runs: list[RunScores]) -> tuple[str, ...]:
    reasons = ((run.name, why_undefined(run, DEFINITIONS["bwt_gem"])) for run in runs)
    return tuple(
        f"{name} has no forgetting metrics: {reason}" for name, reason in reasons if reason
    )

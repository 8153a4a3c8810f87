"""Notes about rows that can be compared, but with care."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from vlcpctl.files.rows import Row
from vlcpctl.report.comparability import column_of, track_of

_SHOWN = 3  # names in a note before "and N more"


def row_notes(rows: Sequence[Row]) -> list[str]:
    """Notes about rows that are valid, but that a reader should know about."""
    about_data = [*_seed_notes(rows), *_name_notes(rows), *_rewritten_notes(rows)]
    return [*about_data, *_chain_notes(rows)]


def _seed_notes(rows: Sequence[Row]) -> list[str]:
    """Runs whose seeds were evaluated on different data."""
    chains = {(row.run, row.seed) for row in rows}
    if len(chains) == len({run for run, _ in chains}):
        return []  # a seed each, as in most reports
    found: dict[Hashable, dict[str, int]] = {}
    runs = set()
    for row in rows:
        key = (*track_of(row), row.run, row.gallery, column_of(row))
        seeds = found.setdefault(key, {})
        seeds.setdefault(row.data, row.seed)
        if len(set(seeds.values())) > 1:
            runs.add(row.run)
    if not runs:
        return []
    note = (
        f"the seeds of {_listed('run', sorted(runs))} were evaluated on different data; "
        "their standard deviation includes the difference"
    )
    return [note]


def _name_notes(rows: Iterable[Row]) -> list[str]:
    """Tasks of one name whose data are not the same in all runs."""
    found: dict[tuple[Hashable, ...], dict[str, set[str]]] = {}
    for row in rows:
        if row.gallery == "own":
            by_run = found.setdefault((*track_of(row), row.task, row.tasks), {})
            by_run.setdefault(row.run, set()).add(row.data)
    tasks = {
        str(key[4])
        for key, by_run in found.items()
        if any(not ids & one for ids in by_run.values() for one in by_run.values())
    }
    if not tasks:
        return []
    listed = _listed("task", sorted(tasks))
    return [f"the data of {listed} are not the same in all runs: compare them with care"]


def _rewritten_notes(rows: Sequence[Row]) -> list[str]:
    """Data of which some rows are from before pairs were removed, and some from afterwards.

    Only if they were evaluated: with pairs for training alone, the rows are of the same samples.
    """
    if all(row.data_content is None for row in rows):
        return []
    contents: dict[Hashable, set[str | None]] = {}
    names: dict[Hashable, str] = {}
    for row in rows:
        key = *track_of(row), row.data
        contents.setdefault(key, set()).add(row.data_content)
        names.setdefault(key, row.task)
    found = sorted({names[key] for key, different in contents.items() if len(different) > 1})
    if not found:
        return []
    note = (
        f"some rows of {_listed('task', found)} were evaluated before 'vlcpctl forget' removed "
        "pairs, others after it: compare them with care"
    )
    return [note]


def _chain_notes(rows: Iterable[Row]) -> list[str]:
    """Steps that were not trained from the step before them."""
    made: dict[tuple[str, int, int], str] = {}
    parents: dict[tuple[str, int, int], str] = {}
    for row in rows:
        if row.step is not None:
            made[row.run, row.seed, row.step] = row.checkpoint
            if row.parent is not None:
                parents[row.run, row.seed, row.step] = row.parent
    broken = [
        f"run {run!r}, seed {seed}: the model of step {step} was not trained from that of step "
        f"{step - 1}"
        for (run, seed, step), parent in sorted(parents.items())
        if made.get((run, seed, step - 1), parent) != parent
    ]
    return broken[:_SHOWN]


def _listed(kind: str, names: Sequence[str]) -> str:
    """Such as "run 'a'", "runs 'a' and 'b'", or the first few and their number."""
    shown = [repr(name) for name in names[:_SHOWN]]
    if len(names) > _SHOWN:
        shown.append(f"{len(names) - _SHOWN} more")
    text = " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
    return f"{kind}{'' if len(names) == 1 else 's'} {text}"

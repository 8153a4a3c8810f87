"""The rows of an evaluation as they were measured, as a table for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vlcpctl.report.tables.table import (
    UNDEFINED,
    Column,
    RowGroup,
    Table,
    TableCell,
    fixed,
)

_NOTE = "-o FILE writes these rows for forgetting-report; --json prints them"
_COUNT = "n_"  # the start of the names of counts
_COUNT_RANK = 3
# What a narrow terminal leaves out first, after counts.
_RANKS = {"_rmean": 2, "_r5": 1, "_r10": 1, "_5": 1, "_10": 1, "acc5": 1}


def measured_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The metrics and counts of evaluation rows, grouped by checkpoint, in the order of the rows.

    The columns are the metric keys that rows and --fail-if have, in percent.
    """
    keys = list(dict.fromkeys(key for row in rows for key in row["metrics"]))
    counts = list(dict.fromkeys(name for row in rows for name in row if name.startswith(_COUNT)))
    columns = (
        Column("data", is_number=False),
        *(Column(key, rank=_rank(key)) for key in keys),
        *(Column(name, rank=_COUNT_RANK) for name in counts),
    )
    groups: dict[str, list[tuple[TableCell, ...]]] = {}
    for row in rows:
        cells = (
            TableCell(_data(row)),
            *(_percent(row["metrics"].get(key)) for key in keys),
            *(TableCell(str(row.get(name, UNDEFINED)), is_faint=True) for name in counts),
        )
        groups.setdefault(_checkpoint(row), []).append(cells)
    found = tuple(RowGroup(name, tuple(cells)) for name, cells in groups.items())
    return Table(_title(rows), columns, found, (_NOTE,))


def _rank(key: str) -> int:
    return next((rank for ending, rank in _RANKS.items() if key.endswith(ending)), 0)


def _percent(value: float | None) -> TableCell:
    return TableCell(UNDEFINED, is_faint=True) if value is None else TableCell(fixed(value))


def _data(row: Mapping[str, Any]) -> str:
    """The evaluated data; of a merged gallery, the number of its tasks.

    >>> _data({"gallery": "merged", "task": "merged", "tasks": ["00-a", "01-b"]})
    'merged (2 tasks)'
    """
    count = len(row["tasks"])
    if row["gallery"] != "merged":
        return str(row["task"])
    return f"{row['task']} ({count} task{'' if count == 1 else 's'})"


def _checkpoint(row: Mapping[str, Any]) -> str:
    """The run and how far it has trained, with the share of an average of two checkpoints."""
    alpha = "" if row.get("alpha") is None else f", alpha {row['alpha']:g}"
    seed = f", seed {row['seed']}" if row["seed"] else ""
    learned = "before any task" if row["step"] is None else f"after task {row['step']}"
    return f"{row['run']}{alpha}{seed}, {learned}"


def _title(rows: Sequence[Mapping[str, Any]]) -> str:
    """What was evaluated how.

    >>> _title([{"evaluator": "retrieval", "protocol": "cross-modal", "split": "test"}])
    'retrieval, cross-modal, split test, in percent'
    """
    protocols = _names(row.get("protocol") for row in rows)
    splits = _names(row["split"] for row in rows)
    parts = [_names(row["evaluator"] for row in rows), protocols, f"split {splits}", "in percent"]
    return ", ".join(part for part in parts if part)


def _names(found: Iterable[str | None]) -> str:
    return ", ".join(dict.fromkeys(one for one in found if one))

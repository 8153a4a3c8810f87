"""What a report makes of rows, without files: tracks, and facts as records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from support.eval_rows import read_back

from vlcpctl.evaluation.rank_files import SavedRanks
from vlcpctl.files.rows import Row
from vlcpctl.report.joined import lineages
from vlcpctl.report.report import (
    Document,
    Files,
    ReportRequest,
    build,
    facts_csv,
    read_facts,
)
from vlcpctl.report.scores import Run, Track, tracks_of


def collect(rows: Iterable[Row]) -> list[Track]:
    """The tracks of rows that are not joined."""
    rows = list(rows)
    return tracks_of(rows, lineages(rows, {}, None))


def reported(
    path: Path, rows: Iterable[dict[str, Any]], ranks: Sequence[Path] = (), **options: Any
) -> Document:
    """The report of rows, which are written below `path`, and of files of ranks."""
    files = Files([*map(SavedRanks.open, ranks)])
    return build(read_back(path / "r", rows), ReportRequest(**options), files)


def facts_of(
    document: Document, metric: str, key: str = "rm", **names: Any
) -> list[dict[str, Any]]:
    """The facts of a report in a metric and key, with these names."""
    wanted = {"metric": metric, "key": key, **names}
    every = read_facts("".join(facts_csv(document)))
    return [one for one in every if all(one[name] == value for name, value in wanted.items())]


def fact(document: Document, metric: str, key: str = "rm", **names: Any) -> dict[str, Any]:
    """The only such fact."""
    (found,) = facts_of(document, metric, key, **names)
    return found


def scores_on(run: Run, data: str, key: str = "rm") -> dict[int, float]:
    """The scores of a run of one seed on some data, by step."""
    column = run.data.index(data)
    found = {step: run.at(key, step, column) for step in run.steps_on[column]}
    return {step: one.mean for step, one in found.items() if one is not None}

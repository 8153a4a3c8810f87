"""What determines a written report: two reports with the same identity have the same bytes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np

from vlcpctl.core.hashing import canonical_json, texts_id
from vlcpctl.core.number_lists import are_plain, sorted_json
from vlcpctl.core.rows import EarlierCheckpoint, Row
from vlcpctl.report.comparability import parse_fields
from vlcpctl.report.published.definition import table_id
from vlcpctl.report.request import NO_FILES, Files, ReportRequest
from vlcpctl.report.scores.saved_ranks import files_digest
from vlcpctl.report.sweeps.grouping import parse_group_by

_NOT_STORED = frozenset({"schema", "alpha", "place"})  # alpha is in the label of the run
# Rows share most of their fields with others of the same checkpoint, or of the same data: the texts
# of these parts, which begin with one of these names, are made once.
_PART_BEGINS = frozenset({"buffer", "data", "degrees", "metrics", "n_gallery", "options", "task"})
_OF_DATA = frozenset({"data", "n_gallery", "task"})
_BY_IDENTITY = frozenset({"buffer", "config", "degrees", "options", "tasks"})


def identity(
    rows: Sequence[Row], request: ReportRequest, files: Files = NO_FILES
) -> dict[str, Any]:
    """What determines a written report: rows, options, ranks and cards, not where these are.

    Images that were rewritten count as others: a report may show pairs that were removed from them.
    """
    found: dict[str, Any] = {"rows": texts_id(_row_texts(rows))}
    given, usual = _options(request), _options(ReportRequest())
    found |= {name: value for name, value in given.items() if value != usual[name]}
    if files.ranks:
        found["ranks"] = files_digest(files.ranks)
    if files.images:
        found["images"] = sorted({task.content for task in files.images})
    if files.cards:
        found["checkpoints"] = files.cards.digest
    return found


def _options(request: ReportRequest) -> dict[str, Any]:
    return asdict(request) | {
        "runs": sorted(request.runs),
        "fail_if": list(request.fail_if),
        "allow_mixed": sorted(parse_fields(request.allow_mixed)),
        "guards": sorted(set(request.guards)),
        # The text of a table counts, not its place: a file of the user may change.
        "tables": [table_id(name) for name in dict.fromkeys(request.tables)],
        "group_by": list(parse_group_by(request.group_by)),
        "without": sorted(set(request.without)),
    }


def _row_texts(rows: Sequence[Row]) -> Iterator[str]:
    """The canonical JSON of each row, its known fields in the order of their names; sorted.

    They are made checkpoint by checkpoint: together, they would be as large as the files.
    """
    parts = _parts()
    of_data = [n for n, names in enumerate(parts) if names[0] in _OF_DATA]
    metrics = [n for n, names in enumerate(parts) if names[0] == "metrics"]
    others = [n for n in range(len(parts)) if n not in {*of_data, *metrics}]
    order = [*others, *of_data, *metrics]
    in_order = itemgetter(*map(order.index, range(len(parts))))
    data_texts = _SharedTexts([parts[n] for n in of_data])
    groups: dict[str, list[tuple[Row, Sequence[str]]]] = {}  # by the text of the checkpoint
    for row, texts in zip(rows, _SharedTexts([parts[n] for n in others]).of(rows), strict=True):
        groups.setdefault(texts[0], []).append((row, texts))
    # What follows the checkpoint decides between two of which one begins as the other.
    for _, group in sorted(groups.items(), key=lambda pair: f'{pair[0]}"data"'):
        some = [row for row, _ in group]
        of_checkpoint = (texts for _, texts in group)
        columns = (of_checkpoint, data_texts.of(some), _metrics_texts(some))
        yield from sorted(
            f"{{{''.join(in_order((*model, *task, text)))[:-1]}}}"
            for model, task, text in zip(*columns, strict=True)
        )


def _parts() -> list[list[str]]:
    found: list[list[str]] = []
    for name in sorted(one.name for one in fields(Row) if one.name not in _NOT_STORED):
        if name in _PART_BEGINS or found[-1] == ["metrics"]:  # which have their own texts
            found.append([])
        found[-1].append(name)
    return found


class _SharedTexts:
    """The texts of parts of rows, made once for rows with the same fields in them."""

    def __init__(self, parts: Sequence[Sequence[str]]) -> None:
        names = [name for part in parts for name in part]
        self._parts = parts
        self._objects = attrgetter("buffer", *(name for name in names if name in _BY_IDENTITY))
        self._others = attrgetter(*(name for name in names if name not in _BY_IDENTITY))
        self._texts: dict[Hashable, Sequence[str]] = {}
        self._values: dict[tuple[str, int], str] = {}  # by field and identity of its value

    def of(self, rows: Iterable[Row]) -> Iterator[Sequence[str]]:
        """For each row the texts of the parts."""
        for row in rows:
            key = self._others(row), *map(id, self._objects(row))
            found = self._texts.get(key)
            if found is None:
                found = [_fields_text(row, part, self._values) for part in self._parts]
                self._texts[key] = found
            yield found


def _metrics_texts(rows: Sequence[Row]) -> Iterator[str]:
    """The metrics of each row, which rows do not share."""
    values = np.fromiter(chain.from_iterable(row.metrics.values() for row in rows), np.float64)
    text = sorted_json if are_plain(values) else canonical_json
    return (f'"metrics":{text(row.metrics)},' for row in rows)


def _fields_text(row: Row, names: Iterable[str], known: dict[tuple[str, int], str]) -> str:
    found = []
    for name in names:
        value = getattr(row, name)
        if value is not None and value != ():
            text = known.get((name, id(value)))
            if text is None:
                plain = asdict(value) if isinstance(value, EarlierCheckpoint) else value
                text = known[name, id(value)] = f'"{name}":{canonical_json(plain)},'
            found.append(text)
    return "".join(found)

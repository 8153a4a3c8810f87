"""What determines a written report: two reports with the same identity have the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np

from vlcpctl.core.number_lists import are_plain, sorted_json
from vlcpctl.files.ids import canonical_json, texts_id
from vlcpctl.files.rows import PART_OF, EarlierCheckpoint, Row
from vlcpctl.report.comparability import parse_fields
from vlcpctl.report.published.definition import table_id
from vlcpctl.report.request import NO_FILES, Files, ReportRequest
from vlcpctl.report.scores.saved_ranks import files_digest
from vlcpctl.report.sweeps.grouping import parse_group_by

# alpha is in the label of the run
_NOT_STORED = frozenset({"schema", "alpha", "place", "model_part", "data_part"})
_OWN = ("degrees", "metrics")  # of each row
_TEXTS = ("model_part", "data_part", *_OWN)


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
    stored = sorted(name for name in Row.__struct_fields__ if name not in _NOT_STORED)
    runs = [(part, list(names)) for part, names in groupby(stored, _part_of)]
    models, data = (_PartTexts(part, runs) for part in ("model_part", "data_part"))
    order = sorted(range(len(runs)), key=lambda n: _TEXTS.index(runs[n][0]))
    in_order = itemgetter(*map(order.index, range(len(runs))))
    groups: dict[str, list[Row]] = {}  # by the text of the checkpoint
    for row in rows:
        groups.setdefault(models.of(row)[0], []).append(row)
    # What follows the checkpoint decides between two of which one begins as the other.
    for _, group in sorted(groups.items(), key=lambda pair: f'{pair[0]}"data"'):
        yield from sorted(
            f"{{{''.join(in_order((*models.of(row), *data.of(row), *own)))[:-1]}}}"
            for row, own in zip(group, _own_texts(group), strict=True)
        )


def _part_of(name: str) -> str:
    return name if name in _OWN else PART_OF.get(name, "data_part")


class _PartTexts:
    """The texts of a part of rows, made once for all rows that share it."""

    def __init__(self, part: str, runs: Iterable[tuple[str, Sequence[str]]]) -> None:
        self._part = attrgetter(part)
        self._runs = [names for of, names in runs if of == part]
        self._texts: dict[object, list[str]] = {}
        self._values: dict[tuple[str, int], str] = {}  # by field and identity of its value

    def of(self, row: Row) -> list[str]:
        """The text of each run of fields whose names follow each other."""
        found = self._texts.get(self._part(row))
        if found is None:
            found = [_fields_text(row, names, self._values) for names in self._runs]
            self._texts[self._part(row)] = found
        return found


def _own_texts(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """The degrees and the metrics of each row, which rows do not share."""
    values = np.fromiter(chain.from_iterable(row.metrics.values() for row in rows), np.float64)
    text = sorted_json if are_plain(values) else canonical_json
    for row in rows:
        degrees = "" if row.degrees is None else f'"degrees":{canonical_json(row.degrees)},'
        yield degrees, f'"metrics":{text(row.metrics)},'


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

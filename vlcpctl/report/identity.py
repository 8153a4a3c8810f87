"""What determines a written report: two reports with the same identity have the same bytes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from operator import attrgetter
from typing import Any

from vlcpctl.core.hashing import canonical_json, content_id
from vlcpctl.core.rows import EarlierCheckpoint, Row
from vlcpctl.report.comparability import parse_fields
from vlcpctl.report.published.definition import table_id
from vlcpctl.report.request import NO_FILES, Files, Request
from vlcpctl.report.scores.saved_ranks import files_digest
from vlcpctl.report.sweeps.grouping import parse_group_by

# Fields that rows got with schema 1.1 or later: rows without them keep the identity they had.
_NEW_FIELDS = frozenset(
    {
        *("data", "data_was", "limit", "options", "config", "start", "parent", "preset"),
        *("counts", "is_earlier"),
    }
)

# Options that reports got later: without them, they keep the identity that they had.
_LATER = frozenset(
    {
        *("allow_mixed", "undefined", "baseline", "guards", "tables", "paper_data"),
        *("group_by", "best", "examples"),
    }
)
_NOT_STORED = frozenset({"counts", "is_earlier", "place"})
# Rows share most of their fields with rows of the same checkpoint, task or evaluator: the text of
# each part, which begins with one of these names, is made once.
_PART_BEGINS = frozenset({"buffer", "data", "degrees", "metrics", "options", "task"})
_BY_IDENTITY = frozenset({"buffer", "config", "degrees", "options", "tasks"})


def identity(rows: Sequence[Row], request: Request, files: Files = NO_FILES) -> dict[str, Any]:
    """What determines a written report: rows, options, ranks and cards, not where these are.

    Images that were rewritten count as others: a report may show pairs that were removed from them.
    """
    return {"rows": content_id(sorted(_row_texts(rows))), **_options(request), **_digests(files)}


def _options(request: Request) -> dict[str, Any]:
    """The options by name; those that reports once did not have are left out if not given."""
    wanted = asdict(request) | {
        "runs": sorted(request.runs),
        "fail_if": list(request.fail_if),
        "allow_mixed": sorted(parse_fields(request.allow_mixed)),
        "guards": sorted(set(request.guards)),
        # The text of a table counts, not its place: a file of the user may change.
        "tables": [table_id(name) for name in dict.fromkeys(request.tables)],
        "group_by": list(parse_group_by(request.group_by)),
        "undefined": "" if request.undefined == "error" else request.undefined,
    }
    return {
        name: value
        for name, value in wanted.items()
        if name not in _LATER or (value is not None and value not in ([], "", False))
    }


def _digests(files: Files) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if files.ranks:
        found["ranks"] = files_digest(files.ranks)
    if files.images:
        found["images"] = sorted({task.content for task in files.images})
    if files.cards:
        found["checkpoints"] = files.cards.digest
    return found


def _row_texts(rows: Sequence[Row]) -> list[str]:
    """The canonical JSON of each row: its known fields in the order of their names."""
    parts = [_part_texts(rows, names) for names in _parts()]
    return [f"{{{','.join(filter(None, of_row))}}}" for of_row in zip(*parts, strict=True)]


def _parts() -> list[list[str]]:
    found: list[list[str]] = []
    for name in sorted(one.name for one in fields(Row) if one.name not in _NOT_STORED):
        if name in _PART_BEGINS:
            found.append([])
        found[-1].append(name)
    return found


def _part_texts(rows: Sequence[Row], names: Sequence[str]) -> Iterator[str]:
    if "metrics" in names:  # which rows do not share
        yield from (_fields_text(row, names) for row in rows)
        return
    objects = [name for name in names if name in _BY_IDENTITY]
    others = attrgetter("is_earlier", *(name for name in names if name not in _BY_IDENTITY))
    texts: dict[Hashable, str] = {}
    for row in rows:
        key = others(row), *[id(getattr(row, name)) for name in objects]
        text = texts.get(key)
        if text is None:
            text = texts[key] = _fields_text(row, names)
        yield text


def _fields_text(row: Row, names: Iterable[str]) -> str:
    values = [(name, getattr(row, name)) for name in names]
    parts = [
        f'"{name}":{_field_text(value)}'
        for name, value in values
        if (not row.is_earlier if name == "options" else value or name not in _NEW_FIELDS)
    ]
    return ",".join(parts)


def _field_text(value: object) -> str:
    return canonical_json(asdict(value) if isinstance(value, EarlierCheckpoint) else value)

"""Remove pairs from a report with examples of what was forgotten: pictures, texts and keys.

A report lists the keys of its examples in summary.json, but for those on the page of a week. On its
pages, every line with something of a pair has its key: such a line is an example, a picture, or a
row of a table, and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from vlcpctl.core.manifest import MANIFESTS, read_manifest
from vlcpctl.core.number_lists import indented_json

SUMMARY = MANIFESTS["report"]
_EXAMPLES = "forgotten"  # in summary.json, and the directory of the pages
_WEEK = "week.html"  # that `update` adds
_PAGES = ("report.html", "report.md", _WEEK)
_ERRORS = (
    "surrogateescape"  # a page may have been edited: bytes that are not UTF-8 stay what they are
)
_KEY = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")


def keys_of(path: Path) -> set[str]:
    """The keys of the pairs that a report shows. Raises BadInput if it cannot be read."""
    found = set(_texts(read_manifest(path, "report").get(_EXAMPLES)))
    if (path / _WEEK).is_file():
        found.update(key for line in _lines(path / _WEEK) for key in _KEY.findall(line))
    return found


def files_with(path: Path, keys: Collection[str]) -> dict[str, int]:
    """How many lines of each page name one of the keys, by its path in the report."""
    pages = [path / name for name in _PAGES]
    pages += sorted((path / _EXAMPLES).glob("*.html"))
    found = {
        str(page.relative_to(path)): sum(_names(line, keys) for line in _lines(page))
        for page in pages
        if page.is_file()
    }
    return {name: count for name, count in found.items() if count}


def rewrite(path: Path, target: Path, keys: Collection[str]) -> None:
    """Write a report without some pairs into a directory that has a link to each of its files.

    The numbers of the report stay: they are of models that had these pairs. Raises BadInput if it
    cannot be read.
    """
    for name in files_with(path, keys):
        text = "".join(line for line in _lines(path / name) if not _names(line, keys))
        (target / name).unlink()  # a link to the old file
        (target / name).write_text(text, encoding="utf-8", errors=_ERRORS, newline="")
    summary = dict(read_manifest(path, "report"))
    if _EXAMPLES in summary:
        summary[_EXAMPLES] = _without(summary[_EXAMPLES], frozenset(keys))
    (target / SUMMARY).unlink()
    (target / SUMMARY).write_text(indented_json(summary) + "\n", encoding="utf-8")


def _lines(page: Path) -> list[str]:
    # Only line feeds end a line: captions may contain other separators.
    with page.open(encoding="utf-8", errors=_ERRORS, newline="\n") as file:
        return list(file)


def _names(line: str, keys: Collection[str]) -> bool:
    return any(found in keys for found in _KEY.findall(line))


def _texts(value: Any) -> list[str]:
    """All texts in a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return [value] if isinstance(value, str) else []


def _without(value: Any, keys: frozenset[str]) -> Any:
    """A JSON value without the items of lists that are one of the keys, or objects with one."""
    if isinstance(value, dict):
        return {name: _without(one, keys) for name, one in value.items()}
    if isinstance(value, list):
        return [_without(one, keys) for one in value if not _is_about(one, keys)]
    return value


def _is_about(value: Any, keys: frozenset[str]) -> bool:
    own = value.values() if isinstance(value, dict) else [value]
    return any(isinstance(one, str) and one in keys for one in own)

"""Remove pairs from a report with examples of what was forgotten: pictures, texts and keys.

Every line of its pages with something of a pair has its key: such a line is an example, a picture,
or a row of a table, and is left out. The numbers stay: they are of models that had these pairs.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from vlcpctl.core.number_lists import indented_json
from vlcpctl.files.manifest import MANIFESTS, read_manifest

SUMMARY = MANIFESTS["report"]
_EXAMPLES = "forgotten"  # in summary.json, and the directory of the pages
_PAGES = ("report.html", "report.md", "week.html", f"{_EXAMPLES}/*.html")
_ERRORS = (
    "surrogateescape"  # a page may have been edited: bytes that are not UTF-8 stay what they are
)
_KEY = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")


def keys_of(path: Path) -> set[str]:
    """All that may be keys of pairs that a report shows. Raises BadInput if it cannot be read."""
    examples = indented_json(read_manifest(path, "report").get(_EXAMPLES))
    lines = [examples, *(line for page in _pages(path) for line in _lines(page))]
    return {key for line in lines for key in _KEY.findall(line)}


def files_with(path: Path, keys: Collection[str]) -> dict[str, int]:
    """How many lines of each page name one of the keys, by its path in the report."""
    counts = {
        str(page.relative_to(path)): sum(_names(line, keys) for line in _lines(page))
        for page in _pages(path)
    }
    return {name: count for name, count in counts.items() if count}


def rewrite(path: Path, target: Path, keys: Collection[str]) -> None:
    """Write a report without some pairs into a directory that has a link to each of its files.

    Raises BadInput if it cannot be read.
    """
    summary = dict(read_manifest(path, "report"))
    if _EXAMPLES in summary:
        summary[_EXAMPLES] = _without(summary[_EXAMPLES], keys)
    texts = {SUMMARY: indented_json(summary) + "\n"}
    for name in files_with(path, keys):
        texts[name] = "".join(line for line in _lines(path / name) if not _names(line, keys))
    for name, text in texts.items():
        (target / name).unlink()  # a link to the old file
        (target / name).write_text(text, encoding="utf-8", errors=_ERRORS, newline="")


def _pages(path: Path) -> list[Path]:
    return [page for name in _PAGES for page in sorted(path.glob(name)) if page.is_file()]


def _lines(page: Path) -> list[str]:
    # Only line feeds end a line: captions may contain other separators.
    with page.open(encoding="utf-8", errors=_ERRORS, newline="\n") as file:
        return list(file)


def _names(line: str, keys: Collection[str]) -> bool:
    return any(found in keys for found in _KEY.findall(line))


def _without(value: Any, keys: Collection[str]) -> Any:
    """A JSON value without the items of lists that are one of the keys, or objects with one."""
    if isinstance(value, dict):
        return {name: _without(one, keys) for name, one in value.items()}
    if isinstance(value, list):
        own = [one.values() if isinstance(one, dict) else [one] for one in value]
        is_about = [any(isinstance(x, str) and x in keys for x in values) for values in own]
        return [_without(one, keys) for one, drop in zip(value, is_about, strict=True) if not drop]
    return value

"""Remove pairs from a report with examples of what was forgotten: pictures, texts and keys.

Every line of its pages with something of a pair has its key: such a line is an example, a picture,
or a row of a table, and is left out. The numbers stay: they are of models that had these pairs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Set
from pathlib import Path
from typing import Any

from vlcpctl.files.manifest import MANIFESTS

_TEXTS = (".csv", ".html", ".json", ".md")
_ERRORS = "surrogateescape"  # of a page that was edited: bytes that are not UTF-8 stay as they are
_KEY = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")


def lines_about(path: Path, keys: Set[str]) -> dict[str, list[Set[str]]]:
    """The keys of these pairs in each line that has one, by the name of the file in a report."""
    found = {}
    for page in (one for one in path.rglob("*") if one.suffix in _TEXTS and one.is_file()):
        named = [keys & {*_KEY.findall(line)} for line in _lines(page)]
        if any(named):
            found[page.relative_to(path).as_posix()] = list(filter(None, named))
    return found


def rewrite_report(path: Path, target: Path, keys: Set[str]) -> None:
    """Write a report without some pairs into a directory that has a link to each of its files."""
    for name in lines_about(path, keys):
        lines = _lines(path / name)
        text = "".join(line for line in lines if keys.isdisjoint(_KEY.findall(line)))
        if name == MANIFESTS["report"]:
            left = _without(json.loads("".join(lines)), keys)
            text = json.dumps(left, ensure_ascii=False, indent=1) + "\n"
        (target / name).unlink()  # a link to the old file
        (target / name).write_text(text, encoding="utf-8", errors=_ERRORS, newline="")


def _lines(page: Path) -> list[str]:
    # Only line feeds end a line: captions may contain other separators.
    with page.open(encoding="utf-8", errors=_ERRORS, newline="\n") as file:
        return list(file)


def _without(value: Any, keys: Set[str]) -> Any:
    """A JSON value without the items of lists that are one of the keys, or objects with one."""
    if isinstance(value, dict):
        return {name: _without(one, keys) for name, one in value.items()}
    if isinstance(value, list):
        texts = [[*one.values()] if isinstance(one, dict) else [one] for one in value]
        is_about = [any(isinstance(x, str) and x in keys for x in found) for found in texts]
        return [_without(one, keys) for one, drop in zip(value, is_about, strict=True) if not drop]
    return value

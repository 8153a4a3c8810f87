"""Format an artifact's lineage as text for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_HEADLINE = ("name", "run", "method", "step", "texts", "pairs", "views", "width")


def lines(facts: dict[str, Any], depth: int = 0) -> Iterator[str]:
    """The lines of an artifact: its facts, a stream's table of tasks, then its parents, indented.

    `facts` is what `lineage.describe` returns.
    """
    margin = "  " * depth
    role = f"{facts['role']}: " if "role" in facts else ""
    if "kind" not in facts:
        yield f"{margin}{role}{facts['content']} ({facts['note']})"
        return
    said = ", ".join(f"{name} {facts[name]}" for name in _HEADLINE if facts.get(name) is not None)
    yield f"{margin}{role}{facts['kind']} {facts['path']}"
    yield f"{margin}  {said + ', ' if said else ''}content {facts['content']}"
    if facts["kind"] == "stream":
        yield from (margin + "  " + line for line in _table(facts["tasks"]))
    if "splits" in facts:
        counts = ", ".join(f"{images} {split}" for split, images in facts["splits"].items())
        yield f"{margin}  images: {counts}"
    if facts.get("skipped"):
        counts = ", ".join(f"{reason} {count}" for reason, count in facts["skipped"].items())
        yield f"{margin}  skipped: {counts}"
    for parent in facts["parents"]:
        yield from lines(parent, depth + 1)


def _table(tasks: list[dict[str, Any]]) -> list[str]:
    """A header, and a line per task: its directory and the number of images in each split."""
    splits = list(dict.fromkeys(split for task in tasks for split in task["splits"]))
    width = max((len(task["path"]) for task in tasks), default=0)
    rows = ["task".ljust(width) + "".join(split.rjust(9) for split in splits)]
    for task in tasks:
        images = (task["splits"].get(split, {}).get("images", 0) for split in splits)
        rows.append(task["path"].ljust(width) + "".join(str(count).rjust(9) for count in images))
    return rows

"""Turn written tasks into a stream: order them, name their directories, write manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vlcpctl.core.artifacts import write_manifest
from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.core.seeds import generator
from vlcpctl.data.manifests import slug, stream_content, write_task_manifest
from vlcpctl.data.splitting import Written


def order_of(names: list[str], text: str | None, seed: int) -> list[int]:
    """The indices of the tasks in stream order: by name, reverse, shuffle, or None for as they are.

    Raises UsageError if --order does not name every task exactly once.

    >>> order_of(["a", "b", "c"], "c,a,b", 0)
    [2, 0, 1]
    """
    places = list(range(len(names)))
    if text is None:
        return places
    if text == "reverse":
        return places[::-1]
    if text == "shuffle":
        return [int(place) for place in generator(seed, "order of tasks").permutation(len(names))]
    wanted = [name.strip() for name in text.split(",")]
    for name in wanted:
        if name not in names:
            raise UsageError(f"--order: {unknown_name('task', name, names)}")
    missing = [name for name in names if name not in wanted]
    if missing or len(wanted) != len(names):
        raise UsageError(
            f"--order must name every task exactly once; it has {len(wanted)} names, "
            f"the tasks are: {', '.join(names)}"
        )
    return [names.index(name) for name in wanted]


def publish_stream(
    written: Written,
    order: list[int],
    directory: Path,
    identity: dict[str, Any],
    body: dict[str, Any],
) -> dict[str, Any]:
    """Rename the task directories, write each task.json and then stream.json; return its body."""
    tasks = [written.tasks[place] for place in order]
    content = stream_content(tasks)
    entries = []
    for step, (place, task) in enumerate(zip(order, tasks, strict=True)):
        path = directory / slug(step, task.name)
        written.directories[place].rename(path)
        more = {"tasks_in_stream": len(tasks), "stream": content, "inputs": written.inputs}
        write_task_manifest(path, task, identity, step=step, more=more)
        entries.append(
            {"path": path.name, "name": task.name, "content": task.content, "splits": task.counts()}
        )
    full = {
        **body,
        "tasks": entries,
        "totals": _totals(entries),
        "read": written.read,
        "skipped": written.skipped,
        "inputs": written.inputs,
    }
    write_manifest(directory, "stream", identity, content, full)
    return {"content": content, **full}


def _totals(entries: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    totals: dict[str, dict[str, int]] = {}
    for entry in entries:
        for name, counts in entry["splits"].items():
            total = totals.setdefault(name, dict.fromkeys(counts, 0))
            for field, count in counts.items():
                total[field] += count
    return totals

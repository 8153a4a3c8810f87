"""A train-step that has not finished: how far it is, from the files that it writes. Torch-free."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from vlcpctl.core.errors import BadInput, Diverged, Interrupted
from vlcpctl.core.words import duration, printable
from vlcpctl.files.inputs import open_regular, parse_json
from vlcpctl.files.locks import holder_of
from vlcpctl.files.manifest import kind_of
from vlcpctl.files.outputs import Output
from vlcpctl.training.state import JOURNAL, ProgressFile

KIND: Final = "unfinished run"
_ENDED = {Diverged.exit_code: "diverged", Interrupted.exit_code: "interrupted"}
_BEGINS_S = 10.0  # in which a process that holds the lock begins
_REMOTE_S = 120.0  # since the last row, for which a process on another host counts as running
_POLL_S = 0.2
_MOST_BYTES = 1 << 20  # at the end of the journal, that are read
_NOT_TERMS = frozenset({"phase", "step", "lr"})  # numbers of a row beside the terms of the loss


def run_facts(out: Path) -> dict[str, Any] | None:
    """How far the train-step is that writes a checkpoint; None if none has begun, or one is there.

    Waits for one that is just beginning, and raises BadInput if none begins within ten seconds.
    Steps are those of all phases; the rate, in steps per second, is that of the whole process.
    """
    staging, waited = Output(out), 0.0
    while True:
        # The lock first: a process that ends in between has then finished, and not died.
        holder = holder_of(staging.lock)
        if kind_of(out) is not None:
            return None
        try:
            progress = ProgressFile.read(staging.partial)
            break
        except BadInput:
            if holder is None:
                return None
        if waited >= _BEGINS_S:
            raise BadInput(
                f"{out}: process {holder.get('pid')} on {holder.get('host')} writes it; waited "
                f"{_BEGINS_S:g} s for the first progress of a train-step, and found none"
            )
        time.sleep(_POLL_S)
        waited += _POLL_S
    rows, modified = _last_rows(staging.partial / JOURNAL)
    steps = [row for row in rows if "val_loss" not in row]
    phase, done = _place(progress, steps[-1] if steps else {})
    status = _status(progress, holder, modified)
    total = sum(one.steps for one in progress.phases)
    own, seconds = done - progress.first, (modified or 0.0) - progress.started
    rate = own / seconds if status == "running" and own > 0 and seconds > 0 else None
    return {
        "path": str(out),
        "kind": KIND,
        "status": status,
        "process": f"process {progress.pid} on {progress.host}",
        "method": progress.method,
        "tasks": list(progress.tasks),
        "phase": phase,
        "done": done,
        "total": total,
        "rate": rate,
        "pairs_per_second": rate and rate * progress.batch_size,
        "left_s": rate and (total - done) / rate,
        "terms": _numbers(steps[-1]) if steps else {},
        "validation": next((_numbers(row) for row in reversed(rows) if "val_loss" in row), None),
        "error": None if progress.ended is None else progress.ended.message,
    }


def lines_of_run(facts: dict[str, Any]) -> Iterator[str]:
    """The facts of `run_facts` as lines of text."""
    error = f": {facts['error']}" if facts["error"] else ""
    yield printable(f"{facts['path']}: {facts['status']}, {facts['process']}{error}")
    yield printable(f"{facts['method']} on {', '.join(facts['tasks'])}")
    share = 100 * facts["done"] / max(facts["total"], 1)
    steps = f"{facts['phase']}: {facts['done']}/{facts['total']} steps ({share:.0f}%)"
    if facts["rate"]:
        pairs = f"{facts['pairs_per_second']:.0f} pairs/s"
        steps += f", {facts['rate']:.1f} steps/s, {pairs}, {duration(facts['left_s'])} left"
    yield printable(steps)
    for what, numbers in (("last step", facts["terms"]), ("validation", facts["validation"])):
        if numbers:
            found = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
            yield printable(f"{what}: {found}")
    if facts["status"] in {"died", "interrupted"}:
        yield "run the same train-step to continue"


def _status(progress: ProgressFile, holder: dict[str, Any] | None, modified: float | None) -> str:
    if holder is not None:
        return "running" if holder.get("pid") in {None, progress.pid} else "starting"
    if progress.ended:
        return _ENDED.get(progress.ended.code, "failed")
    # A process on another host, whose lock is not seen here, may have written a row just now.
    is_elsewhere = progress.host != socket.gethostname()
    is_recent = time.time() - (modified or progress.started) < _REMOTE_S
    return "running" if is_elsewhere and is_recent else "died"


def _last_rows(path: Path) -> tuple[list[dict[str, Any]], float | None]:
    """The last rows of a journal that may be being written, and when it was written last."""
    try:
        with open_regular(path) as file:
            found = os.fstat(file.fileno())
            file.seek(max(0, found.st_size - _MOST_BYTES))
            data = file.read(_MOST_BYTES)
    except (OSError, BadInput):
        return [], None
    rows = []
    for line in data.split(b"\n"):
        try:
            row = parse_json(line)
        except ValueError:
            continue  # cut at the start, or not yet written to its end
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            rows.append(row)
    return rows, found.st_mtime


def _place(progress: ProgressFile, row: dict[str, Any]) -> tuple[str, int]:
    """The phase of a row of the journal, and the steps done in all phases."""
    before = 0
    for phase in progress.phases:
        step = row.get("step", -1) - phase.offset
        if row.get("phase") == phase.name and 0 <= step < phase.steps:
            return phase.name, before + step + 1
        before += phase.steps
    return (progress.phases[0].name if progress.phases else ""), progress.first


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    found = {name: value for name, value in row.items() if name not in _NOT_TERMS}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }

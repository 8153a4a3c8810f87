"""A tiny model in production: weeks of pairs, a guard, and updates of its state directory."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from support.processes import exit_code_of, run_line, start_child

from vlcpctl.jobs.runner import JobRunner
from vlcpctl.jobs.script import CommandLine
from vlcpctl.production.layout import Layout
from vlcpctl.production.ledger import read_ledger
from vlcpctl.testing.tiny_stream import make_pair

WEEK = 24  # pairs
SETTINGS = (
    *("--preset", "tiny", "--batch-size", "4", "--steps", "3", "--buffer-size", "8"),
    *("--holdout", "test=0.3", "--retries", "0", "-q"),
)
PASSES = ("--fail-if", "rm:lt:0")  # no recall is below 0
FAILS = ("--fail-if", "rm:ge:0")
# The seal covers the seconds and the memory.
_OF_THE_MOMENT = {"made_by", "train_seconds", "peak_memory", "seal", "seconds"}
_OF_A_LINE = {"time", "salt"}  # of the ledger
# Of the page of a week: sizes are those of files with times in them.
_TIMES = re.compile(rb"<time>.*?</time>|<p>Disk .*?</p>")


def customer_of(place: int) -> str:
    """Whose pair is in this row of a week."""
    return f"customer {place % 6} & co"


def write_week(path: Path, number: int, count: int = WEEK) -> Path:
    """Pairs that no other week has, as Parquet; the path."""
    pairs = [make_pair(1000 * number + place, size=16) for place in range(count)]
    columns = {
        "image": [pair.image for pair in pairs],
        "caption": [list(pair.captions) for pair in pairs],
        "label": [pair.label for pair in pairs],
        "customer": [customer_of(place) for place in range(count)],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def make_place(root: Path, weeks: int = 3) -> Path:
    """Weeks `week-1.parquet`..., earlier data, a guard `golden/00-golden` and a `model`; `root`."""
    from support.commands import import_checkpoint, split, train_step

    for number in range(1, weeks + 1):
        write_week(root / f"week-{number}.parquet", number)
    earlier = write_week(root / "earlier.parquet", 90)
    split([str(earlier)], root / "golden", "all:golden", holdout="test=0.3", quiet=True)
    split([str(earlier)], root / "silver", "all:silver", holdout="test=0.2", quiet=True)
    how = {"preset": "tiny", "model": "micro", "batch_size": 4, "steps": 3, "quiet": True}
    train_step([root / "golden" / "00-golden"], root / "trained", "seqf", **how)  # type: ignore[arg-type]
    import_checkpoint(root / "trained", root / "model", quiet=True)
    return root


def first_words(place: Path, state: Path) -> list[object]:
    """The command line of the first week, without gates."""
    start = ["--init", place / "model", "--buffer-from", place / "earlier.parquet"]
    guard = ["--guard", place / "golden" / "00-golden", "--small-guard"]
    return [*week_words(place, state, 1), *start, *guard, *SETTINGS]


def week_words(place: Path, state: Path, number: int) -> list[object]:
    """The command line of a week."""
    return ["update", place / f"week-{number}.parquet", "--state", state]


def tree(root: Path) -> dict[str, object]:
    """Every file and link below a directory by relative path; without times in JSON files.

    Of the ledger, only the bodies of its lines; without the embeddings, which are computed again.
    """
    return {
        str(path.relative_to(root)): path.readlink() if path.is_symlink() else _content(path)
        for path in sorted(root.rglob("*"))
        if (path.is_symlink() or not path.is_dir())
        and path.relative_to(root).parts[0] != "embeddings"
    }


def bodies(state: Path) -> list[dict[str, Any]]:
    """The bodies of the lines of the ledger of a state, whose chain must hold; without times."""
    ledger = read_ledger(Layout(state))
    assert ledger.problem is None
    return [
        {name: one for name, one in line["body"].items() if name not in _OF_A_LINE}
        for line in ledger.lines
    ]


def _content(path: Path) -> object:
    if path.name == "history.ndjson":
        return bodies(path.parent)
    if path.suffix != ".json":
        return _TIMES.sub(b"", path.read_bytes())
    value: Any = json.loads(path.read_text())
    if isinstance(value, dict) and "made_by" in value:
        return {name: one for name, one in value.items() if name not in _OF_THE_MOMENT}
    return value


def killed_at(point: str, words: Sequence[object], log: Path) -> int:
    """Run `vlcpctl WORDS` in a child that is killed at a point; its exit code, negative if it was.

    Points: "line K" and "after line K" of all lines, "step=K" and others of the training, and
    those that `update` observes.
    """
    return exit_code_of(start_child(lambda _rank: _run_until(point, words, log)))


def _run_until(point: str, words: Sequence[object], log: Path) -> None:
    from vlcpctl.production import redo as again
    from vlcpctl.production import update as module
    from vlcpctl.training import launch

    updater = os.getpid()

    def observe(reached: str) -> None:
        if reached == point:
            os.kill(updater, signal.SIGKILL)
            signal.pause()  # a line, which ends with the update, must not go on until then

    module.run_lines = partial(_run_one_by_one, observe, [0])
    module.update = partial(module.update, observe=observe)
    again.redo = partial(again.redo, observe=observe)
    launch.train_step = partial(launch.train_step, observe=observe)
    run_line(words, log)


def _run_one_by_one(
    observe: Callable[[str], None], count: list[int], lines: Sequence[CommandLine]
) -> tuple[CommandLine, int] | None:
    for line in lines:
        observe(f"line {count[0]}")
        runner = JobRunner([line], 1)
        runner.run()
        if runner.failed:
            return runner.failed
        observe(f"after line {count[0]}")
        count[0] += 1
    return None

"""A tiny model in production: weeks of pairs, a guard, and updates of its state directory."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from support.processes import exit_code_of, run_line, start_child

from vlcpctl.production.state import State
from vlcpctl.production.week import RunLine
from vlcpctl.testing.tiny_stream import make_pair

WEEK = 24  # pairs
SETTINGS = (
    *("--preset", "tiny", "--batch-size", "4", "--steps", "3", "--set", "buffer.size=8"),
    *("--holdout", "test=0.3", "--set", "update.retries=0", "-q"),
    *("--set", "update.index-week=none"),  # a third of the evaluations
)
PASSES = ("--fail-if", "rm:lt:0")  # no recall is below 0
FAILS = ("--fail-if", "rm:ge:0")
# The seal covers the seconds and the memory.
_OF_THE_MOMENT = {"made_by", "train_seconds", "peak_memory", "seal", "seconds"}
_BY_WHOM = {"time", "user", "host"}  # of an event
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
    guard = ["--guard", place / "golden" / "00-golden"]
    return [*week_words(place, state, 1), *start, *guard, *SETTINGS]


def week_words(place: Path, state: Path, number: int) -> list[object]:
    """The command line of a week."""
    return ["update", place / f"week-{number}.parquet", "--state", state]


def tree(root: Path) -> dict[str, object]:
    """Every file and link below a directory by relative path; without times and seconds.

    Without the embeddings, which are computed again.
    """
    return {
        str(path.relative_to(root)): path.readlink() if path.is_symlink() else _content(path)
        for path in sorted(root.rglob("*"))
        if (path.is_symlink() or not path.is_dir())
        and "embeddings" not in path.relative_to(root).parts[:2]
    }


def events(state: Path) -> list[dict[str, Any]]:
    """The events of a state without times and users; they must be numbered."""
    found = State.read(state).events()
    assert [one["number"] for one in found] == list(range(1, len(found) + 1))
    return [{name: one[name] for name in one if name not in _BY_WHOM} for one in found]


def actions(state: Path) -> list[str]:
    """What was done to a state."""
    return [one["action"] for one in events(state)]


def week(state: Path, number: int) -> Path:
    """The directory of an accepted week's training, or of the start."""
    found = State.read(state)
    return found.made(found.head()[number], "")


def _content(path: Path) -> object:
    if path.name == "events.ndjson":
        return events(path.parent)
    if path.suffix != ".json":
        return _TIMES.sub(b"", path.read_bytes())
    value: Any = json.loads(path.read_text())
    if isinstance(value, dict) and "made_by" in value:
        value = {name: one for name, one in value.items() if name not in _OF_THE_MOMENT}
    if path.name == "state.json":
        value["event"] = {n: one for n, one in value["event"].items() if n not in _BY_WHOM}
        value["attempts"] = [
            {n: one for n, one in made.items() if n not in {"seconds", "judged"}}
            for made in value["attempts"]
        ]
    return value


def killed_at(
    point: int | str, words: Sequence[object], log: Path, runner: RunLine | None = None
) -> int:
    """Run `vlcpctl WORDS` in a child that is killed at a point; its exit code, negative if it was.

    Points are those of the training ("step=K" and others) and those that `update` observes, by
    name or number; `log`.points gets all that were reached.
    """
    return exit_code_of(start_child(lambda _rank: _run_until(point, words, log, runner)))


def _run_until(
    point: int | str, words: Sequence[object], log: Path, runner: RunLine | None
) -> None:
    from vlcpctl.production import week as module
    from vlcpctl.training import train_step as training

    updater, count = os.getpid(), [0]
    module.run_line = runner or module.run_line

    def observe(reached: str) -> None:
        is_own = os.getpid() == updater  # not the training, in a child
        with log.with_suffix(".points" if is_own else ".steps").open("a") as file:
            file.write(f"{reached}\n")
        if point == reached or (is_own and point == count[0]):
            os.kill(updater, signal.SIGKILL)
            signal.pause()  # a line, which ends with the update, must not go on until then
        count[0] += 1

    module.update = partial(module.update, observe=observe)
    training.train_planned = partial(training.train_planned, observe=observe)
    run_line(words, log)

"""Evaluation rows that were edited, mixed or made by others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from case import Table, written

ROWS = Table("Evaluation rows")
_REPORT = "forgetting-report edited.ndjson -o out --allow-missing"


def edited(change: Callable[[list[dict[str, Any]]], Any]) -> Callable[[Path], None]:
    """A fault that changes the rows; a change that returns something gives the new rows."""

    def prepare(world: Path) -> None:
        rows = [json.loads(line) for line in (world / "rows.ndjson").read_text().splitlines()]
        changed = change(rows)
        rows = changed if isinstance(changed, list) else rows
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (world / "edited.ndjson").write_text(text)

    return prepare


def field(**fields: Any) -> Callable[[list[dict[str, Any]]], None]:
    """A change of fields of the first row."""
    return lambda rows: rows[0].update(fields)


ROWS.add("nothing", _REPORT, 0, prepare=edited(lambda rows: rows))
_NAMES = ("run", "task", "split", "method", "protocol", "gallery", "evaluator")
for _name in _NAMES:
    ROWS.add(
        f"{_name} with escape codes",
        _REPORT,
        (0, 3),
        prepare=edited(
            lambda rows, n=_name: [{**row, n: f"{row.get(n)}\x1b[31mX\x1b]0;t\x07"} for row in rows]
        ),
    )
    ROWS.add(
        f"{_name} half a surrogate pair", _REPORT, 3, prepare=edited(field(**{_name: "\ud800"}))
    )
    ROWS.add(f"{_name} a list", _REPORT, 3, prepare=edited(field(**{_name: [1]})))
    ROWS.add(f"{_name} null", _REPORT, (0, 3), prepare=edited(field(**{_name: None})))
for _name, _value in (
    ("step", -5),
    ("step", 999),
    ("step", 10**9),
    ("step", 1.5),
    ("step", True),
    ("step", 10**30),
    ("task_step", -1),
    ("task_step", 999),
    ("task_step", 10**9),
    ("seed", "0"),
    ("seed", 10**400),
    ("tasks", "text"),
    ("tasks", [None]),
    ("metrics", []),
    ("metrics", {"rm": "high"}),
    ("metrics", {"rm": 10**20}),
    ("metrics", {"rm": 10**400}),
    ("metrics", {"rm": True}),
    ("buffer", "yes"),
    ("schema", "vlcpctl.eval/2"),
    ("schema", None),
    ("limit", "ten"),
    ("config", 3),
    ("data", 5),
):
    _shown = f"{_value!r:.30}"
    _codes = (0, 3) if _shown in {"999", "100000000000000000000"} else 3
    ROWS.add(f"{_name} {_shown}", _REPORT, _codes, prepare=edited(field(**{_name: _value})))
for _what, _line in {
    "NaN as a metric": '{"schema": "vlcpctl.eval/1", "metrics": {"rm": NaN}}',
    "1e999 as a metric": '{"schema": "vlcpctl.eval/1", "metrics": {"rm": 1e999}}',
    "a line nested 100,000 deep": "[" * 100_000,
    "a field nested 100,000 deep": '{"schema": "vlcpctl.eval/1", "run": ' + "[" * 100_000,
    "not JSON": "hello",
    "a number": "3",
    "not UTF-8": b"\xff\xfe",
    "a NUL": b"\0\0\0",
    "an empty file": "",
    "blank lines only": "\n\n",
    "an integer of 5,000 digits": '{"schema": "vlcpctl.eval/1", "seed": ' + "1" * 5000 + "}",
    "a line of 40 MB": '{"schema": "vlcpctl.eval/1", "run": "' + "x" * 40_000_000 + '"}',
}.items():
    ROWS.add(_what, _REPORT, 3, prepare=written("edited.ndjson", _line))
ROWS.add("a FIFO", _REPORT, (1, 2, 3), prepare=lambda w: os.mkfifo(w / "edited.ndjson"))
ROWS.add("a directory", _REPORT, (1, 2, 3), prepare=lambda w: (w / "edited.ndjson").mkdir())
ROWS.add("missing", _REPORT, 3)


def _other_id(rows: list[dict[str, Any]]) -> None:
    rows[0]["checkpoint"] = "0" * 32


ROWS.add("a row twice", _REPORT, 0, prepare=edited(lambda rows: rows + rows[:1]))
ROWS.add(  # two streams may have a task in common
    "a row twice, once with another stream of the same data", _REPORT, 0,
    prepare=edited(lambda rows: [*rows, rows[0] | {"stream": "0" * 32}]),
)  # fmt: skip
for _what, _fields in {
    "another number of images": {"n_images": 3},
    "another data id": {"data": "0" * 32},
    "another limit": {"limit": 10},
    "another configuration": {"config": {"id": "0" * 32, "values": {"lr": 5}}},
    "another checkpoint": {"checkpoint": "0" * 32},
    "other protocol options": {"options": {"duplicates": "other"}},
}.items():
    ROWS.add(
        f"a row twice, once with {_what}",
        _REPORT,
        3,
        prepare=edited(lambda rows, f=_fields: [*rows, {**rows[0], **f}]),
    )
_STEP = "of step 1 of a task that step 0 was measured on, too"
for _what, _fields in {
    "another data id": {"data": "0" * 32},
    "another limit": {"limit": 10},
    "another number of images": {"n_images": 3},
    "other protocol options": {"options": {"duplicates": "other"}},
}.items():
    ROWS.add(
        f"{_what} in the row {_STEP}",
        _REPORT,
        3,
        prepare=edited(lambda rows, f=_fields: _last_own(rows).update(f)),
    )


def _last_own(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A row of the last checkpoint on the first task."""
    return next(r for r in rows if r["step"] == 1 and r["task_step"] == 0 and r["gallery"] == "own")


def _with_other_seed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, and again as those of a second seed that was trained with other settings."""
    config = {"id": "1" * 32, "values": {"lr": 9}}
    more = {"seed": 1, "checkpoint": "1" * 32, "config": config}
    return rows + [{**row, **more} for row in rows]


ROWS.add(
    "a second seed of another configuration",
    _REPORT,
    3,
    prepare=edited(_with_other_seed),
)
ROWS.add(
    "a second seed of another configuration, --allow-mixed config",
    f"{_REPORT} --allow-mixed config",
    0,
    prepare=edited(_with_other_seed),
)
ROWS.add(
    "rows of ten samples beside full rows (--limit 10)",
    "forgetting-report rows.ndjson limited.ndjson -o out --allow-missing",
    3,
    prepare=lambda w: _evaluate(w, "--limit 10 --run ctp", "limited.ndjson"),
)
ROWS.add(
    "rows of a stream that was split again",
    "forgetting-report rows.ndjson other.ndjson -o out --allow-missing",
    (0, 3),
    prepare=lambda w: _evaluate(w, "", "other.ndjson", "t/08-smileys-emotion t/07-people-body"),
)


def _evaluate(world: Path, more: str, out: str, tasks: str = "") -> None:
    import subprocess
    import sys

    from world import A

    line = f"eval-retrieval {tasks or A} --checkpoint ctp -o {out} {more}"
    done = subprocess.run(
        [sys.executable, "-m", "vlcpctl", *line.split()],
        cwd=world,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise AssertionError(done.stderr.decode())

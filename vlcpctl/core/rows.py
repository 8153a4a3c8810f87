"""Evaluation rows: one JSON object per line, written by evaluators and read by reports."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TextIO

from vlcpctl.core.errors import BadInput, UsageError, unreadable
from vlcpctl.core.fields import Fields
from vlcpctl.core.printable import printable_json

FAMILY = "vlcpctl.eval/"
SCHEMA = f"{FAMILY}1.1"
# Options that depend on the evaluated data, or may differ between the seeds of a run: rows that
# differ in them are comparable all the same, unless they are of the same data, or of one seed.
OPTIONS_OF_DATA = ("prompts",)
OPTIONS_OF_SEED = ("seed",)
_MOST_LINE_BYTES = 1 << 24
_MAJOR = "1"  # rows of any minor version are read
_SCHEMA_PATTERN = re.compile(r"vlcpctl\.eval/(\d+)(\.\d+)*")


def write_row(stream: TextIO, row: dict[str, Any]) -> None:
    """Write one row with its schema as a line of JSON, and flush for readers downstream."""
    line = json.dumps({"schema": SCHEMA, **row}, ensure_ascii=False)
    stream.write(printable_json(line) + "\n")  # stdout may be a terminal
    stream.flush()


def is_row_file(path: Path) -> bool:
    """Whether a file starts with an evaluation row, so that a command may replace it."""
    return starts_with_schema(path, SCHEMA)


def starts_with_schema(path: Path, schema: str) -> bool:
    """Whether the first line of a file is a JSON object of this schema, whatever its version."""
    try:
        with path.open("rb") as file:
            first = json.loads(file.readline(_MOST_LINE_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    family = schema.split("/", maxsplit=1)[0]
    return isinstance(first, dict) and str(first.get("schema")).startswith(f"{family}/")


@dataclass(frozen=True)
class EarlierCheckpoint:
    """The earlier checkpoint that a row compares its checkpoint with."""

    run: str
    step: int | None
    checkpoint: str | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One evaluation of a checkpoint on a gallery; `place` is the file and line it was read from.

    `step` is the stream step of the checkpoint, `task_step` that of the evaluated task. The fields
    from `data` to `parent` are None in rows of schema 1.0, and so are those that do not apply.
    """

    run: str
    method: str
    seed: int
    buffer: dict[str, Any] | None
    step: int | None
    task_step: int | None
    stream: str | None
    evaluator: str
    protocol: str
    gallery: str
    task: str
    tasks: tuple[str, ...]
    split: str
    metrics: dict[str, float]
    checkpoint: str | None
    data: str | None = None  # the content id of the evaluated data
    data_was: tuple[str, ...] = ()  # ids of the same data before it was rewritten
    limit: int | None = None  # the number of samples evaluated at most; None: all
    options: dict[str, Any] | None = None  # those that change the numbers, with defaults
    config: dict[str, Any] | None = None  # id and values of the settings of this train-step
    start: str | None = None  # the content id of the checkpoint that the run started from
    parent: str | None = None  # the content id of --previous
    map_variant: str | None = None  # the kind of mean average precision, if not the usual one
    since: EarlierCheckpoint | None = None
    degrees: dict[str, tuple[int, ...]] | None = None  # by measure: angles in each degree
    place: str = field(default="", compare=False)

    def subject(self) -> tuple[object, ...]:
        """What was evaluated, and on what: two rows with the same subject must agree."""
        what = (self.evaluator, self.protocol, self.map_variant)
        where = (self.gallery, self.task, self.tasks, self.split)
        since = (self.since.run, self.since.step) if self.since else None
        return (self.run, self.seed, self.step, since, *what, *where)

    @property
    def models(self) -> tuple[str | None, str | None]:
        """The checkpoints of the row: its own, and the earlier one it is compared with."""
        return self.checkpoint, self.since.checkpoint if self.since else None


def read_rows(sources: Iterable[str]) -> list[Row]:
    """The rows of NDJSON files (`-` is stdin), each evaluation once.

    Raises BadInput for files that cannot be read, lines that are not rows, and rows that contradict
    each other; UsageError if `-` is a terminal.
    """
    seen: dict[tuple[object, ...], Row] = {}
    for source in dict.fromkeys(sources):
        for row in _rows_of(source):
            first = seen.setdefault(row.subject(), row)
            if (first.metrics, first.models) != (row.metrics, row.models):
                _refuse_conflict(first, row)
    return list(seen.values())


def _rows_of(source: str) -> Iterator[Row]:
    name = "<stdin>" if source == "-" else source
    found = False
    for number, line in enumerate(_lines(source, name), start=1):
        if line.strip():
            found = True
            yield _parse(line, f"{name}:{number}")
    if not found:
        raise BadInput(
            f"{name} has no rows; the commands eval-retrieval, eval-zeroshot, eval-probe and "
            "spatial-report write them"
        )


def _lines(source: str, name: str) -> Iterator[str]:
    if source == "-" and sys.stdin.isatty():
        raise UsageError(
            "'-' reads rows from stdin, which is a terminal; pipe them in, or give a file"
        )
    try:
        if source == "-":
            yield from sys.stdin
            return
        with Path(source).open(encoding="utf-8") as file:
            yield from file
    except UnicodeDecodeError as error:
        raise BadInput(f"{name} is not UTF-8 text: {error}") from error
    except OSError as error:
        raise BadInput(unreadable(name, error)) from error


def _parse(line: str, place: str) -> Row:
    try:
        value = json.loads(line, parse_constant=_refuse_constant)
    except ValueError as error:
        raise BadInput(f"{place} is not a JSON object: {error}") from error
    if not isinstance(value, dict):
        raise BadInput(f"{place} is not a JSON object, it is a {type(value).__name__}")
    _check_schema(value.get("schema"), place)
    return row_of(value, place)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _check_schema(schema: object, place: str) -> None:
    match = _SCHEMA_PATTERN.fullmatch(schema) if isinstance(schema, str) else None
    if match is None:
        raise BadInput(
            f"{place} is not an evaluation row: its schema is {schema!r}, not {SCHEMA!r}"
        )
    if match[1] != _MAJOR:
        raise BadInput(f"{place} has schema {schema!r}; this version of vlcpctl reads {SCHEMA!r}")


def row_of(value: dict[str, Any], place: str) -> Row:
    """The row of a JSON object; `place` (FILE:LINE) is used in messages.

    Raises BadInput if a field is missing or of the wrong type.
    """
    take = Fields(value, place)
    return Row(
        run=run_label(take("run", str), take("alpha", int | float, None)),
        method=take("method", str),
        seed=take("seed", int),
        buffer=take("buffer", dict, None),
        step=take("step", int, None),
        task_step=take("task_step", int, None),
        stream=take("stream", str, None),
        evaluator=take("evaluator", str),
        protocol=take("protocol", str, ""),
        gallery=take("gallery", str),
        task=take("task", str),
        tasks=tuple(take.texts("tasks", [])),
        split=take("split", str),
        metrics=_metrics(take("metrics", dict), place),
        checkpoint=take("checkpoint", str, None),
        data=take("data", str, None),
        data_was=tuple(take.texts("data_was", [])),
        limit=take("limit", int, None),
        options=take("options", dict, None),
        config=_config(take("config", dict, None), place),
        start=take("start", str, None),
        parent=take("parent", str, None),
        map_variant=take("map_variant", str, None),
        since=_since(take("since", dict, None), place),
        degrees=_degrees(take("degrees", dict, None), place),
        place=place,
    )


def run_label(run: str, alpha: float | None) -> str:
    """The label of a run; an average of two checkpoints counts as one run for each share alpha.

    >>> run_label("ewc", None), run_label("wise-ft", 0.5)
    ('ewc', 'wise-ft alpha=0.5')
    """
    return run if alpha is None else f"{run} alpha={share_text(alpha)}"


def share_text(alpha: float) -> str:
    """The share as a short text that reads back as the same float.

    >>> [share_text(alpha) for alpha in (0.0, 0.25, 0.1234567, 0.12345671)]
    ['0', '0.25', '0.1234567', '0.12345671']
    """
    short = f"{alpha:g}"
    return short if float(short) == alpha else repr(alpha)


def _metrics(found: dict[str, Any], place: str) -> dict[str, float]:
    """Metric values; a metric that is null was not measured and is left out."""
    for key, value in found.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and math.isfinite(value)):
            raise BadInput(f"{place}: metric {key!r} is {value!r}, not a finite number")
    return {key: float(value) for key, value in found.items() if value is not None}


def _config(found: dict[str, Any] | None, place: str) -> dict[str, Any] | None:
    """The settings of the train-step that made the checkpoint, with their id."""
    if found is not None:
        take = Fields(found, f"{place}: config")
        return {"id": take("id", str), "values": take("values", dict)}
    return None


def _since(found: dict[str, Any] | None, place: str) -> EarlierCheckpoint | None:
    if found is None:
        return None
    take = Fields(found, f"{place}: since")
    run = run_label(take("run", str), take("alpha", int | float, None))
    return EarlierCheckpoint(run, take("step", int, None), take("checkpoint", str, None))


def _degrees(found: dict[str, Any] | None, place: str) -> dict[str, tuple[int, ...]] | None:
    """The number of angles in (0, 1], (1, 2], ... degrees; trailing zeros may be left out."""
    for name, counts in (found or {}).items():
        is_list = isinstance(counts, list) and len(counts) <= 180
        if not (is_list and all(type(count) is int and count >= 0 for count in counts)):
            raise BadInput(f"{place}: degrees of {name!r} is not a list of at most 180 counts")
    return None if found is None else {name: tuple(counts) for name, counts in found.items()}


def _refuse_conflict(first: Row, second: Row) -> None:
    subject = (
        f"run {first.run}, seed {first.seed}, step {first.step}, {first.evaluator}, "
        f"task {first.task} ({first.gallery}, {first.split})"
    )
    names = sorted(first.metrics.keys() | second.metrics.keys())
    differ = [name for name in names if first.metrics.get(name) != second.metrics.get(name)]
    if differ:
        name = differ[0]
        what = f"{name} is {first.metrics.get(name)} there and {second.metrics.get(name)} here"
    else:
        pairs = zip(first.models, second.models, strict=True)
        there, here = next(pair for pair in pairs if pair[0] != pair[1])
        what = f"checkpoint is {there} there and {here} here"
    raise BadInput(
        f"{second.place} contradicts {first.place} about {subject}: {what}; remove the stale rows"
    )

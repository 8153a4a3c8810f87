"""Evaluation rows: one JSON object per line, written by evaluators and read by reports."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from vlcpctl.core.errors import BadInput
from vlcpctl.core.fields import Fields
from vlcpctl.core.limits import MOST_TASKS
from vlcpctl.core.printable import printable, printable_json
from vlcpctl.core.row_lines import MOST_LINE_BYTES, STDIN, lines_of
from vlcpctl.core.safe_json import parse_json

FAMILY = "vlcpctl.eval/"
SCHEMA = f"{FAMILY}1.1"
# Options that depend on the evaluated data, or may differ between the seeds of a run: rows that
# differ in them are comparable anyway, unless they are of the same data, or of one seed.
OPTIONS_OF_DATA = ("prompts",)
OPTIONS_OF_SEED = ("seed",)
MOST_ROWS = 500_000  # that are read at once, in all files; they take about a gigabyte
MOST_METRICS = 200  # of a row
MOST_NAME = 1000  # characters of a name
MOST_VALUE = 1e12  # of a metric: percents, degrees and counts are far below
_MOST_COUNT = 10**12  # of angles in one degree
COUNTS = ("n_images", "n_texts", "n_queries", "n_gallery", "n_train")
# Fields of schema 1.0, in which an option was recorded only where it was not the usual one.
_EARLIER_OPTIONS = {
    **{name: name for name in ("duplicates", "prompts", "train_split", "held_out", "epochs", "lr")},
    "fixed_strength": "strength",
    "probe_seed": "seed",
}
_EARLIER_USUAL: dict[str, dict[str, Any]] = {
    "retrieval": {"duplicates": "unite"},
    "probe": {"train_split": "train", "seed": 0},
}
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
            first = parse_json(file.readline(MOST_LINE_BYTES))
    except (OSError, ValueError):
        return False
    family = schema.split("/", maxsplit=1)[0]
    return isinstance(first, dict) and str(first.get("schema")).startswith(f"{family}/")


@dataclass(frozen=True)
class EarlierCheckpoint:
    """The earlier checkpoint that a row compares its checkpoint with."""

    run: str
    step: int | None
    checkpoint: str | None


@dataclass(kw_only=True, slots=True)  # frozen, so many fields take four times as long to set
class Row:
    """One evaluation of a checkpoint on a gallery; `place` is the file and line it was read from.

    `step` is the stream step of the checkpoint, `task_step` that of the evaluated task. The fields
    from `data` to `parent` are None in rows of schema 1.0, and so are those that do not apply;
    the `options` of such a row are those it records.
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
    preset: str | None = None  # the name of the preset of this train-step
    map_variant: str | None = None  # the kind of mean average precision, if not the usual one
    since: EarlierCheckpoint | None = None
    degrees: dict[str, tuple[int, ...]] | None = None  # by measure: angles in each degree
    counts: Mapping[str, int] = field(default_factory=dict)  # of images, texts, ... evaluated
    is_earlier: bool = False  # of schema 1.0
    place: str = field(default="", compare=False)

    @property
    def first_data(self) -> str | None:
        """The content id under which the evaluated data was written first."""
        return self.data_was[0] if self.data_was else self.data

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


def read_rows(sources: Iterable[str], allow_mixed: Collection[str] = ()) -> list[Row]:
    """The rows of NDJSON files (`-` is stdin), each evaluation once.

    Rows of one evaluation may differ in the fields of `allow_mixed` (see `differences`). Raises
    BadInput for files that cannot be read, lines that are not rows, rows that contradict each
    other, and more than MOST_ROWS; UsageError if `-` is a terminal.
    """
    return distinct(_rows_of(dict.fromkeys(sources)), allow_mixed)


def distinct(rows: Iterable[Row], allow_mixed: Collection[str] = ()) -> list[Row]:
    """The rows, each evaluation once. Raises BadInput for two that contradict each other.

    Different data outside the stream may have one name: rows of these do not contradict each other.
    An evaluation of rewritten data replaces the same one of the data as it was before.
    """
    seen: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        known = seen.setdefault(row.subject(), [])
        place = next((n for n, one in enumerate(known) if not are_apart(one, row)), None)
        if place is None:
            known.append(row)
            continue
        first = known[place]
        if first.data in row.data_was:
            known[place] = row
        elif row.data not in first.data_was:
            _refuse_contradiction(first, row, allow_mixed)
            if first.is_earlier and not row.is_earlier:
                known[place] = row  # it records more
    return [row for known in seen.values() for row in known]


def _rows_of(sources: Iterable[str]) -> Iterator[Row]:
    from vlcpctl.core.quick_rows import QuickRows  # which imports this module

    read, quick = 0, QuickRows()
    shared: dict[str, dict[str, Any]] = {}
    for source in sources:
        name = "<stdin>" if source == STDIN else printable(source)
        found = False
        for number, line in enumerate(lines_of(source, name), start=1):
            read += 1
            if read > MOST_ROWS:
                raise BadInput(
                    f"{name}:{number}: more than {MOST_ROWS} rows; give the files of fewer runs"
                )
            if line.strip():
                found = True
                place = f"{name}:{number}"
                row = quick.row(line, place)
                if row is None:
                    row, schema = _parse(line, place, shared)
                    quick.knows(schema)
                yield row
        if not found:
            raise BadInput(
                f"{name} has no rows; the commands eval-retrieval, eval-zeroshot, eval-probe and "
                "spatial-report write them"
            )


def _parse(line: str, place: str, shared: dict[str, dict[str, Any]]) -> tuple[Row, str]:
    """The row of a line, after every check, and its schema."""
    try:
        value = parse_json(line, finite=True, unique=True)
    except ValueError as error:
        raise BadInput(f"{place} is not a JSON object: {error}") from error
    if not isinstance(value, dict):
        raise BadInput(f"{place} is not a JSON object, it is a {type(value).__name__}")
    _check_schema(value.get("schema"), place)
    # Many rows have the same names, settings and options: these are kept once.
    for name, found in value.items():
        if isinstance(found, str):
            value[name] = sys.intern(found)
        elif name in {"config", "options"} and isinstance(found, dict):
            known = shared.setdefault(str(found.get("id")), found)
            value[name] = known if known == found else found
    return row_of(value, place), value["schema"]


def _check_schema(schema: object, place: str) -> None:
    match = _SCHEMA_PATTERN.fullmatch(schema) if isinstance(schema, str) else None
    if match is None:
        raise BadInput(
            f"{place} is not an evaluation row: its schema is {schema!r:.80}, not {SCHEMA!r}"
        )
    if match[1] != _MAJOR:
        raise BadInput(
            f"{place} has schema {schema!r:.80}; this version of vlcpctl reads {SCHEMA!r}"
        )


def row_of(value: dict[str, Any], place: str) -> Row:
    """The row of a JSON object; `place` (FILE:LINE) is used in messages.

    Raises BadInput if a field is missing or of the wrong type.
    """
    take = Fields(value, place)
    _check_lengths(value, place)
    evaluator: str = take("evaluator", str)
    return Row(
        run=run_label(take("run", str), take("alpha", int | float, None)),
        method=take("method", str),
        seed=take("seed", int),
        buffer=take("buffer", dict, None),
        step=_position(take, "step"),
        task_step=_position(take, "task_step"),
        stream=take("stream", str, None),
        evaluator=evaluator,
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
        options=take("options", dict, _earlier_options(value, evaluator)),
        config=_config(take("config", dict, None), place),
        start=take("start", str, None),
        parent=take("parent", str, None),
        preset=take("preset", str, None),
        map_variant=take("map_variant", str, None),
        since=_since(take("since", dict, None), place),
        degrees=_degrees(take("degrees", dict, None), place),
        counts={name: take(name, int) for name in COUNTS if value.get(name) is not None},
        is_earlier=value.get("options") is None,
        place=place,
    )


def _check_lengths(value: dict[str, Any], place: str) -> None:
    """Raise BadInput for names, lists of tasks and metrics that are too long."""
    for name, found in value.items():
        if isinstance(found, str):
            _check_names(name, (found,), place)
        elif isinstance(found, list):
            _check_names(name, found, place)
            if len(found) > MOST_TASKS:
                raise BadInput(
                    f"{place}: field {name!r:.80} lists {len(found)} values, more than {MOST_TASKS}"
                )
    metrics, since = value.get("metrics"), value.get("since")
    if isinstance(metrics, dict):
        _check_names("metrics", metrics, place)
        if len(metrics) > MOST_METRICS:
            raise BadInput(f"{place} has {len(metrics)} metrics, more than {MOST_METRICS}")
    if isinstance(since, dict):
        _check_names("since", since.values(), place)


def _check_names(field_: str, names: Iterable[object], place: str) -> None:
    for name in names:
        if isinstance(name, str) and len(name) > MOST_NAME:
            raise BadInput(
                f"{place}: field {field_!r:.80} has {len(name)} characters, more than {MOST_NAME}"
            )


def _position(take: Fields, name: str) -> int | None:
    """A stream step, from 0; None: not trained on a stream, or not part of it."""
    step: int | None = take(name, int, None)
    if step is not None and not 0 <= step < MOST_TASKS:
        raise BadInput(
            f"{take.place}: {name} is {step}, neither null nor between 0 and {MOST_TASKS - 1}"
        )
    return step


def _earlier_options(value: dict[str, Any], evaluator: str) -> dict[str, Any]:
    """The protocol options that a row of schema 1.0 records."""
    named = {new: value[old] for old, new in _EARLIER_OPTIONS.items() if old in value}
    return _EARLIER_USUAL.get(evaluator, {}) | named


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
            raise BadInput(f"{place}: metric {key!r} is {value!r:.80}, not a finite number")
        if value is not None and abs(value) > MOST_VALUE:
            raise BadInput(
                f"{place}: metric {key!r} is {value!r}, above {MOST_VALUE:g} in magnitude"
            )
    return {sys.intern(key): float(value) for key, value in found.items() if value is not None}


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
    return EarlierCheckpoint(run, _position(take, "step"), take("checkpoint", str, None))


def _degrees(found: dict[str, Any] | None, place: str) -> dict[str, tuple[int, ...]] | None:
    """The number of angles in (0, 1], (1, 2], ... degrees; trailing zeros may be left out."""
    for name, counts in (found or {}).items():
        is_list = isinstance(counts, list) and len(counts) <= 180
        if not (is_list and all(type(n) is int and 0 <= n <= _MOST_COUNT for n in counts)):
            raise BadInput(f"{place}: degrees of {name!r} is not a list of at most 180 counts")
    return None if found is None else {name: tuple(counts) for name, counts in found.items()}


def differences(one: Row, other: Row) -> dict[str, tuple[object, object]]:
    """What two rows of one evaluation disagree about, by field, with both values.

    A field that one of them does not have, because an earlier version wrote it, is ignored. So are
    the streams of the same data: two streams may have a task in common.

    >>> fields = dict(run="a", method="a", seed=0, buffer=None, step=0, task_step=0, stream="s")
    >>> fields |= dict(evaluator="retrieval", protocol="", gallery="own", task="t", tasks=())
    >>> one = Row(**fields, split="test", metrics={}, checkpoint="c", limit=10)
    >>> differences(one, Row(**fields, split="test", metrics={}, checkpoint="c"))
    {'limit': (10, None)}
    """
    fields = {name: (getattr(one, name), getattr(other, name)) for name in ("limit", "stream")}
    fields |= {name: (getattr(one, name), getattr(other, name)) for name in ("data", "config")}
    if are_same_data(one, other):
        del fields["data"], fields["stream"]
    is_known = {name: None not in pair or name == "limit" for name, pair in fields.items()}
    found = {name: pair for name, pair in fields.items() if is_known[name] and pair[0] != pair[1]}
    for name, pair in different_options(one, other).items():
        found["options"] = (f"{name} {pair[0]}", f"{name} {pair[1]}")
    for name in one.counts.keys() & other.counts.keys():
        if one.counts[name] != other.counts[name]:
            found["counts"] = (f"{name} {one.counts[name]}", f"{name} {other.counts[name]}")
    return found


def are_same_data(one: Row, other: Row) -> bool:
    """Whether two rows are known to be of the same data, which may have been rewritten since."""
    ids = {one.data, *one.data_was} & {other.data, *other.data_was}
    return bool(ids - {None})


def are_apart(one: Row, other: Row) -> bool:
    """Whether two rows are known to be of different data, one of them outside the stream.

    Tasks of different streams often have one name, and so have data for tests.
    """
    is_outside = one.task_step is None or other.task_step is None
    are_known = one.data is not None and other.data is not None
    is_own = one.gallery == other.gallery == "own"
    return is_own and is_outside and are_known and not are_same_data(one, other)


def different_options(one: Row, other: Row) -> dict[str, tuple[object, object]]:
    """The protocol options that differ, with both values; None for one that is missing.

    A row of schema 1.0 does not record all of its options: those it lacks are ignored.
    """
    mine, others = one.options or {}, other.options or {}
    names = mine.keys() | others.keys()
    if one.is_earlier != other.is_earlier:
        names = mine.keys() & others.keys()
    pairs = {name: (mine.get(name), others.get(name)) for name in sorted(names)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _refuse_contradiction(first: Row, second: Row, allow_mixed: Collection[str]) -> None:
    what = _measured_differently(first, second)
    if what is None:
        fields = differences(first, second)
        mixed = sorted(fields.keys() - set(allow_mixed))
        if not mixed:
            return
        there, here = fields[mixed[0]]
        what = f"{mixed[0]} is {there!r:.200} there and {here!r:.200} here"
    step = "no step" if first.step is None else f"step {first.step}"
    subject = printable(
        f"run {first.run}, seed {first.seed}, {step}, {first.evaluator}, "
        f"task {first.task} ({first.gallery}, {first.split}): {what}"
    )
    raise BadInput(
        f"{second.place} contradicts {first.place} about {subject}; remove the stale rows"
    )


def _measured_differently(first: Row, second: Row) -> str | None:
    """How two rows of one evaluation disagree in what was measured, or of which checkpoint."""
    for name in sorted(first.metrics.keys() | second.metrics.keys()):
        there, here = first.metrics.get(name), second.metrics.get(name)
        if there != here:
            return f"{name} is {there} there and {here} here"
    for there_, here_ in zip(first.models, second.models, strict=True):
        if there_ != here_:
            return f"checkpoint is {there_} there and {here_} here"
    return None

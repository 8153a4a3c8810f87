"""Evaluation rows: one JSON object per line, written by evaluators and read by reports."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TextIO,
    TypedDict,
    TypeVar,
    get_type_hints,
)

import msgspec
from msgspec import NODEFAULT, Meta, Raw, Struct

from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import printable, printable_json
from vlcpctl.files.ids import canonical_json
from vlcpctl.files.inputs import MOST_LINE_BYTES, MOST_TASKS, STDIN, decoded, lines_of, parse_json

FAMILY = "vlcpctl.eval/"
SCHEMA = f"{FAMILY}1.1"
# Options that depend on the evaluated data, or may differ between the seeds of a run: rows that
# differ in them are comparable anyway, unless they are of the same data, or of one seed.
OPTIONS_OF_DATA = ("prompts",)
OPTIONS_OF_SEED = ("seed",)
MOST_ROWS = 500_000  # that are read at once, in all files; they take about a gigabyte
COUNTS = ("n_images", "n_texts", "n_queries", "n_gallery", "n_train")
_READ = re.compile(rf"{FAMILY}1\.[1-9]\d*")  # rows of any minor version


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


Name = Annotated[str, Meta(max_length=1000)]
Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Step = Annotated[int, Meta(ge=0, lt=MOST_TASKS)]
Names = Annotated[tuple[Name, ...], Meta(max_length=MOST_TASKS)]
# Percents, degrees and counts are far below.
Metric = Annotated[float, Meta(ge=-1e12, le=1e12)]
if TYPE_CHECKING:
    Metrics = dict[str, float]
else:  # a metric that is null in a line is left out of the row
    Metrics = Annotated[dict[Name, Metric | None], Meta(max_length=200)]
Degrees = Annotated[tuple[Annotated[int, Meta(ge=0, le=10**12)], ...], Meta(max_length=180)]


Searched = tuple[str, str]  # a checkpoint, and distractors as JSON


class Config(TypedDict):
    """The settings of the train-step that made a checkpoint."""

    id: str
    values: dict[str, Any]


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class EarlierCheckpoint:
    """The earlier checkpoint that a row compares its checkpoint with."""

    run: Name
    step: Step | None = None
    checkpoint: Name | None = None
    alpha: float | None = None  # read into the label of the run

    def __post_init__(self) -> None:
        self.run, self.alpha = run_label(self.run, self.alpha), None


class Row(Struct, kw_only=True, eq=False, gc=False):  # an object without cycles
    """One evaluation of a checkpoint on a gallery: the fields of a row, in their order.

    Readers ignore other fields. Null is a value: the field does not apply. `alpha` is read into the
    label of the run, and metrics that are null are left out. The texts below the fields make
    docs/reference/rows.md.
    """

    schema: str = ""
    """Name and version of the format, such as `vlcpctl.eval/1.1`."""
    run: Name
    """Name of the run: `--run` of train-step, or the method's name."""
    method: Name
    """Method of the checkpoint, such as `ctp` or `ctp+er`; `imported` or
    `merge-RULE` for checkpoints that were not trained here."""
    seed: Integer
    """Seed of the run."""
    buffer: dict[str, Any] | None = None
    """Policy and size of the replay buffer; null without one."""
    step: Step | None = None
    """Position in the stream of the last task that the checkpoint was trained on, from 0; null if
    it was not trained on a stream."""
    task_step: Step | None = None
    """Position in the stream of the evaluated task; of a merged gallery, that of its last task;
    null for data outside the stream."""
    stream: Name | None = None
    """Content id of the stream of the evaluated task; null for data outside of streams."""
    evaluator: Name
    """What was evaluated: `retrieval`, `zeroshot`, `probe` or `spatial`."""
    protocol: Name = ""
    """Variant of the evaluator, such as `cross-modal` and `multi-modal` of retrieval."""
    gallery: Literal["own", "merged"]
    """`own`: one task by itself; `merged`: all tasks of the stream up to a step."""
    task: Name
    """Name of the evaluated task or data set; `merged` for a merged gallery."""
    tasks: Names = ()
    """Names of all tasks in the gallery."""
    split: Name
    """Split of the evaluated data; two are joined by +, as in `query+gallery`."""
    data: Name
    """Content id with which the evaluated data was made."""
    data_content: Name | None = None
    """Content id of what was evaluated, if `forget` had removed pairs from it."""
    limit: Integer | None = None
    """Number of samples evaluated at most (`--limit`); null for all."""
    options: dict[str, Any]
    """Options that decide the numbers, defaults included. Rows that differ in them are not
    compared."""
    metrics: Metrics
    """Measured values by name; null for one that is not defined on this data."""
    start: Name | None = None
    """Content id of the checkpoint that the run started from; null if it was trained from
    scratch."""
    parent: Name | None = None
    """Content id of the checkpoint given as `--previous`; null without one."""
    preset: Name | None = None
    """Preset of the train-step. Only if a setting came from one."""
    config: Config | None = None
    """Settings of the train-step: `id` and `values`; null for imported checkpoints."""
    checkpoint: Name
    """Content id of the evaluated checkpoint."""
    # Of some rows only.
    alpha: float | None = None
    """Averages of `interpolate`, a command before 0.4: share of the second checkpoint."""
    n_images: Integer | None = None
    """Number of images; not of retrieval of fused pairs."""
    n_texts: Integer | None = None
    """Retrieval and spatial: number of captions."""
    n_queries: Integer | None = None
    """Retrieval of fused pairs: number of pairs used as queries."""
    n_gallery: Integer | None = None
    """Retrieval of fused pairs: number of pairs in the gallery."""
    n_train: Integer | None = None
    """Probe: number of images that it was trained on."""
    n_distractor_images: Integer | None = None
    """Retrieval with `--distractors`: number of images that were added to the gallery."""
    gallery_checkpoint: Name | None = None
    """Retrieval: content id of the checkpoint that embedded the gallery. Only with
    `--gallery-checkpoint`; a report shows such rows in its table of the roll-out alone."""
    map_variant: Name | None = None
    """Retrieval of fused pairs: `--map-variant`, if it is not the default."""
    since: EarlierCheckpoint | None = None
    """Spatial: the earlier checkpoint that this one is compared with: run, step and content id."""
    degrees: dict[Name, Degrees] | None = None
    """Spatial: number of angles by measure and degree: [0, 1], (1, 2], ...; without zeros at the
    end."""
    # Not in lines: the file and line that it was read from, and what it shares with other rows.
    place: str = ""
    model_part: object = None
    data_part: object = None

    def __post_init__(self) -> None:
        """Also after `msgspec.structs.replace`: a changed row shares nothing that is known."""
        self.run, self.alpha = run_label(self.run, self.alpha), None
        self.metrics = _measured(self.metrics)
        self.model_part = self.data_part = object()

    def with_names_of(self, other: Row) -> Row:
        """The row with the names of a row that is equal in all other fields of data."""
        row = copy(self)
        row.task, row.tasks, row.data_part = other.task, other.tasks, other.data_part
        return row

    @property
    def counts(self) -> dict[str, int]:
        """What was evaluated, such as images, by the name of the field; those that apply."""
        found = {name: getattr(self, name) for name in COUNTS}
        return {name: number for name, number in found.items() if number is not None}

    @property
    def of_ranks(self) -> tuple[str, ...]:
        """What names the data in files of ranks: as evaluated, or whole, before a deletion."""
        return (self.data,) if self.data_content is None else (self.data_content, self.data)

    @property
    def searched(self) -> Searched:
        """What the gallery has beside the data."""
        return searched(self.gallery_checkpoint or self.checkpoint, self.options)

    @property
    def models(self) -> tuple[str, str | None]:
        """The checkpoints of the row: its own, and the earlier one it is compared with."""
        return self.checkpoint, self.since.checkpoint if self.since else None


def searched(gallery_checkpoint: str, options: Mapping[str, Any]) -> Searched:
    """What a gallery has beside the data: the checkpoint that embedded them, and distractors."""
    distractors = (options.get(name) for name in ("distractors", "distractors_by"))
    return gallery_checkpoint, canonical_json(list(distractors))


def _measured(metrics: dict[str, Any]) -> dict[str, float]:
    if None not in metrics.values():
        return metrics
    return {name: value for name, value in metrics.items() if value is not None}


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


def read_rows(sources: Iterable[str], allow_mixed: Collection[str] = ()) -> list[Row]:
    """The rows of NDJSON files (`-` is stdin), each evaluation once.

    Rows of one evaluation may differ in the fields of `allow_mixed` (see `differences`). Raises
    BadInput for files that cannot be read, lines that are not rows, rows that contradict each
    other, and more than MOST_ROWS; UsageError if `-` is a terminal.
    """
    return distinct(_rows_of(dict.fromkeys(sources)), allow_mixed)


def firsts(rows: Iterable[Row], part: str) -> list[Row]:
    """The first of all rows that share a part: the others have the same values in its fields."""
    found: dict[object, Row] = {}
    for row in rows:
        found.setdefault(getattr(row, part), row)
    return list(found.values())


class Subjects:
    """What was evaluated, and on what, as numbers: two rows with the same subject must agree."""

    def __init__(self) -> None:
        self._models: dict[object, int] = {}  # by part
        self._data: dict[object, int] = {}
        self._numbers: dict[Hashable, int] = {}  # by the values

    def of(self, row: Row) -> tuple[int, int]:
        """The numbers of the evaluated checkpoint, and of what it was evaluated on."""
        model, data = self._models.get(row.model_part), self._data.get(row.data_part)
        if model is None:
            model = self._models[row.model_part] = self._number((row.run, row.seed, row.step))
        if data is None:
            since = (row.since.run, row.since.step) if row.since else None
            searched = None if row.gallery_checkpoint is None else row.searched
            data = self._data[row.data_part] = self._number((*_EVALUATED_ON(row), since, searched))
        return model, data

    def _number(self, values: Hashable) -> int:
        return self._numbers.setdefault(values, len(self._numbers))


def distinct(rows: Iterable[Row], allow_mixed: Collection[str] = ()) -> list[Row]:
    """The rows, each evaluation once. Raises BadInput for two that contradict each other.

    Different data outside the stream may have one name: rows of these do not contradict each other.
    An evaluation without the pairs that `forget` removed replaces the one with them.
    """
    subjects = Subjects()
    found: dict[tuple[int, int], Row] = {}
    repeated: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        subject = subjects.of(row)
        if found.setdefault(subject, row) is row:
            continue
        known = repeated.setdefault(subject, [found[subject]])
        place = next((n for n, one in enumerate(known) if not are_apart(one, row)), None)
        if place is None:
            known.append(row)
            continue
        first = known[place]
        if _lacks_pairs_of(row, first):
            known[place] = row
        elif not _lacks_pairs_of(first, row):
            _refuse_contradiction(first, row, allow_mixed)
    if not repeated:
        return list(found.values())
    return [row for subject, first in found.items() for row in repeated.get(subject, [first])]


def _lacks_pairs_of(row: Row, other: Row) -> bool:
    """Whether a row is of the same data as another, after `forget` removed pairs from it.

    Of two evaluations after deletions, the one with fewer samples of each kind.
    """
    if row.data != other.data or row.data_content in {None, other.data_content}:
        return False
    names = row.counts.keys() & other.counts.keys()
    is_smaller = all(row.counts[name] < other.counts[name] for name in names)
    return other.data_content is None or (bool(names) and is_smaller)


def _rows_of(sources: Iterable[str]) -> Iterator[Row]:
    read, parts = 0, _Parts()
    for source in sources:
        name = "<stdin>" if source == STDIN else printable(source)
        before = read
        for number, line in enumerate(lines_of(source, name), start=1):
            if line.isspace():
                continue
            read += 1
            if read > MOST_ROWS:
                raise BadInput(f"{name}:{number}: more than {MOST_ROWS} rows; give fewer files")
            yield parts.row(line, f"{name}:{number}")
        if read == before:
            raise BadInput(f"{name} has no rows; eval-retrieval and other evaluators write them")


# Rows share most of their fields with others of the same checkpoint, or of the same data. These
# parts are read once, and known again by their values, or by the text of their lists and objects.
_OF_MODEL = ("run", "method", "seed", "step", "start", "parent", "preset", "checkpoint")
_MODEL_TEXTS = ("alpha", "buffer", "config")
_DATA_TEXTS = ("tasks", "options")
_OWN = ("metrics", "degrees", "place", "model_part", "data_part")
_OF_DATA = tuple(
    name
    for name in Row.__struct_fields__
    if name not in {*_OF_MODEL, *_MODEL_TEXTS, *_DATA_TEXTS, *_OWN}
)
_HASHABLE = (*_OF_MODEL, *_OF_DATA, "tasks")
# The part that has a field: rows with the same object there are equal in it.
PART_OF = dict.fromkeys((*_OF_MODEL, *_MODEL_TEXTS), "model_part") | dict.fromkeys(
    (*_OF_DATA, *_DATA_TEXTS), "data_part"
)


class _Parts:
    """What rows have in common, kept once: they then take a fraction of the time and memory."""

    def __init__(self) -> None:
        self._firsts: dict[tuple[object, ...], Row] = {}  # by the values and texts of a part
        self._values: dict[Any, Any] = {}
        self._objects: dict[bytes, Any] = {}  # by their JSON

    def row(self, text: str, place: str) -> Row:
        """The row of a line, as `parse_row` has it, with the parts that earlier rows have."""
        try:
            line: Any = _LINE.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return parse_row(text, place)  # which says what is wrong
        # No text has a line end.
        of_model = *_get_model(line), b"\n".join(_get_model_texts(line))
        of_data = *_get_data(line), b"\n".join(_get_data_texts(line))
        model, data = self._firsts.get(of_model), self._firsts.get(of_data)
        if model is None or data is None:
            row = self._shared(parse_row(text, place))
            row.model_part = self._firsts.setdefault(of_model, row).model_part
            row.data_part = self._firsts.setdefault(of_data, row).data_part
            return row
        row = copy(data)
        # Name by name: a loop over the names takes three times as long.
        row.run, row.method, row.seed, row.step = model.run, model.method, model.seed, model.step
        row.start, row.parent, row.preset = model.start, model.parent, model.preset
        row.checkpoint, row.buffer, row.config = model.checkpoint, model.buffer, model.config
        row.model_part = model.model_part
        row.metrics, row.degrees, row.place = _measured(line.metrics), line.degrees, place
        return row

    def _shared(self, row: Row) -> Row:
        """The row, with the values of earlier rows where they are equal."""
        for name in _HASHABLE:
            value = getattr(row, name)
            setattr(row, name, self._values.setdefault(value, value))
        row.options = self._known(row.options)
        row.buffer = row.buffer and self._known(row.buffer)
        row.config = row.config and self._known(row.config)
        return row

    def _known(self, value: _Object) -> _Object:
        found: _Object = self._objects.setdefault(msgspec.json.encode(value), value)
        return found


def _line_type() -> type[msgspec.Struct]:
    """A row as it is in a line: the fields that may be shared and are lists or objects as text."""
    kinds = get_type_hints(Row, include_extras=True)
    found: list[Any] = []
    for one in msgspec.structs.fields(Row):
        is_text = one.name in {*_MODEL_TEXTS, *_DATA_TEXTS}
        default = () if one.default is NODEFAULT else (Raw() if is_text else one.default,)
        found.append((one.name, Raw if is_text else kinds[one.name], *default))
    return msgspec.defstruct("_Line", found, kw_only=True, gc=False)


_Object = TypeVar("_Object", dict[str, Any], Config)
_get_model, _get_model_texts = attrgetter(*_OF_MODEL), attrgetter(*_MODEL_TEXTS)
_get_data, _get_data_texts = attrgetter(*_OF_DATA), attrgetter(*_DATA_TEXTS)
_EVALUATED_ON = attrgetter(
    *("evaluator", "protocol", "map_variant", "gallery", "task", "tasks", "split")
)
_LINE = msgspec.json.Decoder(_line_type())
_ROW = msgspec.json.Decoder(Row)


def parse_row(line: str | bytes, place: str) -> Row:
    """The row of a line; `place` (FILE:LINE) is used in messages.

    Raises BadInput if it is not JSON, or not a row: of another schema, or with a field missing or
    of another type.
    """
    try:
        row = decoded(_ROW, line, place)
    except BadInput:
        _check_schema(decoded(_SCHEMA_OF, line, place).schema, place)
        raise
    _check_schema(row.schema, place)
    row.place = place
    return row


def row_of(fields: Mapping[str, Any], place: str) -> Row:
    """The row of these fields, as `write_row` would write them. Raises BadInput as `parse_row`."""
    return parse_row(json.dumps({"schema": SCHEMA, **fields}), place)


class _AnyRow(msgspec.Struct):
    schema: Any = None


_SCHEMA_OF = msgspec.json.Decoder(_AnyRow)


def _check_schema(schema: object, place: str) -> None:
    """Raise BadInput for a schema that is not read; 1.0 was never published."""
    if schema != SCHEMA and not _READ.fullmatch(str(schema)):
        raise BadInput(f"{place} has schema {schema!r:.80}, not that of a row, {SCHEMA!r}")


def differences(one: Row, other: Row) -> dict[str, tuple[object, object]]:
    """What two rows of one evaluation disagree about, by field, with both values."""
    fields: list[tuple[str, object, object]] = [
        ("limit", one.limit, other.limit),
        ("data", one.data_content, other.data_content),
        ("data", one.data, other.data),
    ]
    if None not in (one.config, other.config):
        fields.append(("config", one.config, other.config))
    options = different_options(one, other).items()
    fields += [("options", f"{name} {there}", f"{name} {here}") for name, (there, here) in options]
    for name in one.counts.keys() & other.counts.keys():
        fields += [("counts", f"{name} {one.counts[name]}", f"{name} {other.counts[name]}")]
    return {field: (there, here) for field, there, here in fields if there != here}


def are_apart(one: Row, other: Row) -> bool:
    """Whether two rows are of different data, one of them outside the stream.

    Tasks of different streams often have one name, and so have data for tests.
    """
    is_outside = one.task_step is None or other.task_step is None
    is_own = one.gallery == other.gallery == "own"
    return is_own and is_outside and one.data != other.data


def different_options(one: Row, other: Row) -> dict[str, tuple[object, object]]:
    """The protocol options that differ, with both values; None for one that is missing."""
    if one.options is other.options:
        return {}
    names = sorted(one.options.keys() | other.options.keys())
    pairs = {name: (one.options.get(name), other.options.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _refuse_contradiction(first: Row, second: Row, allow_mixed: Collection[str]) -> None:
    """Raise BadInput if rows of one evaluation disagree, but for the fields of `allow_mixed`."""
    names = sorted(first.metrics.keys() | second.metrics.keys())
    pairs: list[tuple[str, object, object]] = [
        *((name, first.metrics.get(name), second.metrics.get(name)) for name in names),
        *(("checkpoint", *both) for both in zip(first.models, second.models, strict=True)),
    ]
    mixed = differences(first, second)
    pairs += [(name, *mixed[name]) for name in sorted(mixed.keys() - set(allow_mixed))]
    different = next((one for one in pairs if one[1] != one[2]), None)
    if different is None:
        return
    what = "{} is {!r:.200} there and {!r:.200} here".format(*different)
    step = "no step" if first.step is None else f"step {first.step}"
    subject = printable(
        f"run {first.run}, seed {first.seed}, {step}, {first.evaluator}, "
        f"task {first.task} ({first.gallery}, {first.split}): {what}"
    )
    raise BadInput(
        f"{second.place} contradicts {first.place} about {subject}; remove the stale rows"
    )

"""What rows must agree about to share a cell, a matrix, a curve, a table or a mean over seeds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from vlcpctl.core.errors import BadInput, UsageError, unknown_name
from vlcpctl.core.words import printable
from vlcpctl.files.rows import (
    COUNTS,
    OPTIONS_OF_DATA,
    OPTIONS_OF_SEED,
    PART_OF,
    Row,
    different_options,
    firsts,
)

# The fields of --allow-mixed, and what rows cannot share if one of them differs.
FIELDS = {
    "limit": "a table",
    "options": "a table",
    "data": "a column",
    "counts": "a column",
    "checkpoint": "a step of one run",
    "seed": "a checkpoint",
    "config": "a mean over seeds",
}
_ADVICE = {
    "limit": "evaluate them alike",
    "options": "evaluate them alike",
    "data": "evaluate one run on one stream",
    "counts": "evaluate them again",
    "checkpoint": "give each its own run name",
    "seed": "remove the copied rows",
    "config": "give each its own run name",
}
_SHOWN = 3  # differences named in a note, and settings named in a message

Difference = dict[str, tuple[object, object]]  # what differs, with both values


@dataclass(frozen=True)
class Mixed:
    """Rows that are reported together although a field of them differs, on request."""

    field: str
    where: str
    differs: str

    def sentence(self) -> str:
        """The mixture in words."""
        return f"{self.where}: {self.differs}"


@dataclass(frozen=True)
class _Rule:
    """Rows of one group must not differ; a group of None is not compared.

    The `group` looks at no other fields of a row than `of`.
    """

    field: str
    of: Sequence[str]
    group: Callable[[Row], Hashable]
    differ: Callable[[Row, Row], Difference]


def parse_fields(texts: Iterable[str]) -> frozenset[str]:
    """The fields of --allow-mixed FIELD,... . Raises UsageError for an unknown one.

    >>> sorted(parse_fields(["data,limit", "config"]))
    ['config', 'data', 'limit']
    """
    names = [name.strip() for text in texts for name in text.split(",")]
    for name in names:
        if name not in FIELDS:
            raise UsageError(f"--allow-mixed: {unknown_name('field', name, FIELDS)}")
    return frozenset(names)


def require_comparable(rows: Sequence[Row], allow_mixed: Collection[str] = ()) -> tuple[Mixed, ...]:
    """What is mixed in the fields of `allow_mixed`.

    Raises BadInput, naming two rows and both values, if rows that would share a cell, a matrix, a
    curve, a table or a mean over seeds differ in any other field.
    """
    names = {name for one in _RULES for name in (*one.of, *_FACTS[one.field])}
    some = {part: firsts(rows, part) for part in set(PART_OF.values())}
    varied = frozenset(n for n in names if len(set(_column(some[PART_OF[n]], n))) > 1)
    return tuple(
        one for rule in _RULES for one in _mixed(rule, rows, varied, rule.field in allow_mixed)
    )


def require_alike(pairs: Iterable[tuple[Row, Row]], allow_mixed: Collection[str] = ()) -> None:
    """Raise BadInput, naming both rows, if a baseline was measured unlike what it is compared with.

    The rows of a pair may differ in the fields of `allow_mixed`.
    """
    for one, other in pairs:
        for field, differ in _ALIKE.items():
            differs = {} if field in allow_mixed else differ(one, other)
            if differs:
                _refuse(field, one, other, differs)


def mixed_notes(mixed: Iterable[Mixed]) -> list[str]:
    """A note for each field of --allow-mixed that made a difference."""
    found: dict[str, list[str]] = {}
    for one in mixed:
        found.setdefault(one.field, []).append(one.sentence())
    return [
        f"--allow-mixed {field}: {'; '.join(texts[:_SHOWN])}"
        + (f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else "")
        for field, texts in found.items()
    ]


def _mixed(
    rule: _Rule, rows: Sequence[Row], varied: frozenset[str], is_allowed: bool
) -> list[Mixed]:
    """The groups of a rule with rows that differ; BadInput for the first unless allowed.

    `varied` are the fields in which any rows differ.
    """
    facts = _FACTS[rule.field]
    if varied.isdisjoint(facts):
        return []  # as in most reports for most rules: no need to know the group of each row
    names = varied.intersection((*rule.of, *facts))
    parts = {PART_OF[name] for name in names}
    some = rows if len(parts) > 1 else firsts(rows, *parts)
    columns = [_column(some, name) for name in names]
    alike: dict[Hashable, Row] = {}  # the first of the rows with these values
    for values, row in zip(zip(*columns, strict=True), some, strict=True):
        alike.setdefault(values, row)
    groups: dict[Hashable, Row] = {}
    found: dict[Hashable, Mixed] = {}
    for row in alike.values():
        group = rule.group(row)
        if group is None or group in found:
            continue
        first = groups.setdefault(group, row)
        differs = rule.differ(first, row)
        if differs and not is_allowed:
            _refuse(rule.field, first, row, differs)
        if differs:
            found[group] = Mixed(rule.field, _where(rule, row), _words(differs))
    return sorted(found.values(), key=lambda one: (one.where, one.differs))


def _column(rows: Sequence[Row], name: str) -> Iterator[Hashable]:
    """The values of a field, for each row.

    Rows share equal options and settings, which cannot be hashed, and long lists of tasks, so that
    their identity will do: another costs a comparison.
    """
    values = map(attrgetter(name), rows)
    return map(id, values) if name in {"options", "config", "tasks"} else values


def _refuse(field: str, first: Row, second: Row, differs: Difference) -> None:
    raise BadInput(
        f"{first.place} and {second.place} cannot share {FIELDS[field]}: "
        f"{printable(_words(differs))}; {_ADVICE[field]}, or use --allow-mixed {field}"
    )


def _words(differs: Difference) -> str:
    """Such as "lr is 0.1 in one row and 0.01 in another"."""
    texts = [
        f"{name} is {_text(one)} in one row and {_text(other)} in another"
        for name, (one, other) in list(differs.items())[:_SHOWN]
    ]
    more = len(differs) - len(texts)
    return ", ".join(texts) + (f" and {more} more differences" if more > 0 else "")


def _text(value: object) -> str:
    return "not set" if value is None else f"{value!s:.80}"


def _where(rule: _Rule, row: Row) -> str:
    """Which table, column, step or run rows of a rule are in."""
    run = f"run {row.run!r}"
    if rule.field == "config":
        return f"{run}, step {row.step}"
    if rule.field == "checkpoint":
        return f"{run}, seed {row.seed}, step {row.step}"
    track = ", ".join(part for part in (row.evaluator, row.protocol, row.split) if part)
    if rule.field in {"limit", "options"}:
        return track
    return (
        f"{track}, {run}, seed {row.seed}, {row.task if row.gallery == 'own' else column_of(row)}"
    )


def track_of(row: Row) -> tuple[Hashable, ...]:
    """What separates tracks: rows that differ in it are never put together."""
    return row.evaluator, row.protocol, row.map_variant, row.split


def _table(row: Row) -> Hashable:
    """The tables of a track are about its stream; data outside it have a line each."""
    is_outside = row.gallery == "own" and row.task_step is None
    is_apart = is_outside or row.since is not None
    return *track_of(row), row.since is None, (row.task, row.tasks) if is_apart else None


def column_of(row: Row) -> Hashable:
    """The column of a run's matrix, or what data outside the stream are called."""
    if row.gallery == "merged":
        return "merged", len(row.tasks)
    return (row.task, row.tasks) if row.task_step is None else row.task_step


def _curve(row: Row) -> Hashable:
    """A column of one seed's matrix, or its curve on data outside the stream."""
    return *track_of(row), row.since is None, row.run, row.seed, row.gallery, column_of(row)


def _same_data(row: Row) -> Hashable:
    """Rows of the same data, whatever their run."""
    return *track_of(row), row.since is None, row.data, row.data_content


def _counted(row: Row) -> Hashable:
    """Rows of the same data that count the same things alike."""
    return _same_data(row), row.limit, id(row.options), *row.counts


def _at_step(row: Row) -> Hashable:
    return row.run, row.seed, row.step


def _of_checkpoint(row: Row) -> Hashable:
    """Rows of one trained checkpoint; a copy under another seed would count as a second seed."""
    return None if row.step is None else (row.run, row.step, row.checkpoint)


def _over_seeds(row: Row) -> Hashable:
    return None if row.step is None or row.config is None else (row.run, row.step)


def _differ(name: str) -> Callable[[Row, Row], Difference]:
    """Compares one field."""

    def differ(one: Row, other: Row) -> Difference:
        pair = getattr(one, name), getattr(other, name)
        return {} if pair[0] == pair[1] else {name: pair}

    return differ


def _counts_differ(one: Row, other: Row) -> Difference:
    if one.limit != other.limit or different_options(one, other):
        return {}
    if one.data == other.data and one.data_content != other.data_content:
        return {}  # `vlcpctl forget` has removed pairs between the two; a note says so
    mine, others = one.counts, other.counts
    pairs = {name: (mine[name], others[name]) for name in sorted(mine.keys() & others.keys())}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _config_differ(one: Row, other: Row) -> Difference:
    if one.config is None or other.config is None or one.config["id"] == other.config["id"]:
        return {}
    was, now = one.config["values"], other.config["values"]
    return different_values(was, now) or {"config": (one.config["id"], other.config["id"])}


def different_values(was: Mapping[str, object], now: Mapping[str, object]) -> Difference:
    """The settings that differ, those inside objects by their path.

    >>> different_values({"lr": 0.1, "set": {"a": 1}}, {"lr": 0.1, "set": {"a": 2}})
    {'set.a': (1, 2)}
    """
    found: Difference = {}
    for name in sorted(was.keys() | now.keys()):
        one, other = was.get(name), now.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            inner = different_values(one, other)
            found |= {f"{name}.{path}": pair for path, pair in inner.items()}
        elif one != other:
            found[name] = (one, other)
    return found


def _options_differ(names: Callable[[str], bool]) -> Callable[[Row, Row], Difference]:
    def differ(one: Row, other: Row) -> Difference:
        pairs = different_options(one, other)
        return {name: pair for name, pair in pairs.items() if names(name)}

    return differ


def _is_of_protocol(name: str) -> bool:
    return name not in {*OPTIONS_OF_DATA, *OPTIONS_OF_SEED}


_TRACK = ("evaluator", "protocol", "map_variant", "split")
_COLUMN = (*_TRACK, "since", "gallery", "task", "tasks", "task_step")
_RULES = (
    _Rule("limit", _COLUMN, _table, _differ("limit")),
    _Rule("options", _COLUMN, _table, _options_differ(_is_of_protocol)),
    _Rule(
        "options",
        (*_TRACK, "since", "data", "data_content"),
        _same_data,
        _options_differ(lambda name: name in OPTIONS_OF_DATA),
    ),
    _Rule(
        "options",
        (*_TRACK, "run", "seed"),
        lambda row: (*track_of(row), row.run, row.seed),
        _options_differ(lambda name: name in OPTIONS_OF_SEED),
    ),
    _Rule("data", (*_COLUMN, "run", "seed"), _curve, _differ("data")),
    _Rule("counts", (*_TRACK, "since", "limit", "options"), _counted, _counts_differ),
    _Rule("checkpoint", ("run", "seed", "step"), _at_step, _differ("checkpoint")),
    _Rule("seed", ("run", "step", "checkpoint"), _of_checkpoint, _differ("seed")),
    _Rule("config", ("run", "step"), _over_seeds, _config_differ),
)
# By field: all that its rules compare in two rows of a group.
_FACTS: dict[str, tuple[str, ...]] = {
    "limit": ("limit",),
    "options": ("options",),
    "data": ("data",),
    "counts": (*COUNTS, "data", "data_content"),
    "checkpoint": ("checkpoint",),
    "seed": ("seed",),
    "config": ("config",),
}
# A baseline may be of another run, seed and stream.
_ALIKE: dict[str, Callable[[Row, Row], Difference]] = {
    "limit": _differ("limit"),
    "options": _options_differ(lambda name: name not in OPTIONS_OF_SEED),
    "data": _differ("data"),
    "counts": _counts_differ,
}

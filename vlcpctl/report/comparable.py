"""What rows must agree about to share a cell, a matrix, a curve, a table or a mean over seeds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from vlcpctl.core.errors import BadInput, UsageError, some_names, unknown_name
from vlcpctl.core.words import printable
from vlcpctl.files.rows import OPTIONS_OF_DATA, OPTIONS_OF_SEED, Row, firsts
from vlcpctl.report.scores import is_outside, track_key

# The fields of --allow-mixed: what rows cannot share if one of them differs, and what to do.
FIELDS = {
    "limit": ("a table", "evaluate them alike"),
    "options": ("a table", "evaluate them alike"),
    "data": ("a column", "evaluate one run on one stream"),
    "counts": ("a column", "evaluate them again"),
    "checkpoint": ("a step of one run", "give each its own run name"),
    "seed": ("a checkpoint", "remove the copied rows"),
    "config": ("a mean over seeds", "give each its own run name, or add it to --group-by"),
}
_SHOWN = 3  # differences named in a message, and names in one

Difference = dict[str, tuple[object, object]]  # what differs, with both values


class _Rule(NamedTuple):
    """Rows of one group must not differ in values; in a group None, nothing is compared.

    Both are of the model, of the data, or of the data of a curve: of run, seed and data.
    """

    field: str
    part: str
    group: Callable[[Row], Hashable]
    values: Callable[[Row], Mapping[str, object]]


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


def require_comparable(rows: Sequence[Row], allow_mixed: Collection[str] = ()) -> list[str]:
    """A note for each field of `allow_mixed` that made a difference.

    Raises BadInput, naming two rows and both values, if rows that would share a cell, a matrix, a
    curve, a table or a mean over seeds differ in any other field.
    """
    notes: dict[str, str] = {}
    # A row of each: all others have the same checkpoint, or the same data.
    parts = {"model": firsts(rows, "model_part"), "data": firsts(rows, "data_part")}
    parts["curve"] = _of_curves(rows)
    for rule in _RULES:
        first: dict[Hashable, Row] = {}
        for row in parts[rule.part]:
            group = rule.group(row)
            known = row if group is None else first.setdefault(group, row)
            if known is not row and (differs := _differ(rule, known, row)):
                if rule.field not in allow_mixed:
                    _refuse(rule.field, known, row, differs)
                notes.setdefault(rule.field, f"--allow-mixed {rule.field}: {_words(differs)}")
    return list(notes.values())


def require_alike(pairs: Iterable[tuple[Row, Row]], allow_mixed: Collection[str] = ()) -> None:
    """Raise BadInput, naming both rows, if a baseline was measured unlike what it is compared with.

    The rows of a pair may differ in the fields of `allow_mixed`, and a baseline may be of another
    run, seed and stream.
    """
    for one, other in pairs:
        differs = {rule.field: _differ(rule, one, other) for rule in _OF_BASELINE}
        # `vlcpctl forget` has removed pairs between the two; a note says so.
        was_reduced = one.data == other.data and one.data_content != other.data_content
        if was_reduced or differs["limit"] or differs["options"]:
            differs["counts"] = {}
        for field, found in differs.items():
            if found and field not in allow_mixed:
                _refuse(field, one, other, found)


def _differ(rule: _Rule, one: Row, other: Row) -> Difference:
    was, now = rule.values(one), rule.values(other)
    if rule.field == "counts":  # of what both have counted
        was, now = ({name: of[name] for name in was.keys() & now.keys()} for of in (was, now))
    return {} if was == now else different_values(was, now)


def _refuse(field: str, first: Row, second: Row, differs: Difference) -> None:
    shares, advice = FIELDS[field]
    raise BadInput(
        f"{first.place} and {second.place} cannot share {shares}: {printable(_words(differs))}; "
        f"{advice}, or use --allow-mixed {field}"
    )


def _words(differs: Difference) -> str:
    """Such as "lr is 0.1 in one row and 0.01 in another"."""
    texts = [
        f"{name} is {_text(one)} in one row and {_text(other)} in another"
        for name, (one, other) in differs.items()
    ]
    return some_names(texts, _SHOWN)


def _text(value: object) -> str:
    return "not set" if value is None else f"{value!s:.80}"


def _column(row: Row) -> Hashable:
    """The column of a run's matrix, or what data outside the stream are called."""
    if row.gallery == "merged":
        return "merged", len(row.tasks)
    return (row.task, row.tasks) if row.task_step is None else row.task_step


def _table(row: Row) -> Hashable:
    """The tables of a track are about its stream; data outside it have a line each."""
    is_apart = row.since is not None or is_outside(row)
    return *track_key(row), row.since is None, (row.task, row.tasks) if is_apart else None


def _curve(row: Row) -> Hashable:
    """A column of one seed's matrix, or its curve on data outside the stream."""
    return *track_key(row), row.since is None, row.run, row.seed, row.gallery, _column(row)


def _same_data(row: Row) -> tuple[Hashable, ...]:
    """Rows of the same data, whatever their run."""
    return *track_key(row), row.since is None, row.data, row.data_content


def _counted(row: Row) -> Hashable:
    """Rows of the same data that count the same things alike."""
    return *_same_data(row), row.limit, id(row.options)


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


def setting_of(config: Mapping[str, Any] | None, name: str) -> Any:
    """The value of a setting, such as "lr", "ewc.strength" or "strength"; None without one.

    A hyper-parameter of a method may be named with the method or without it. One value of a list
    is named with its place, from 0.

    >>> config = {"values": {"hyper": {"ewc": {"strength": 2.0}}, "settings": {"lr": 0.1}}}
    >>> [setting_of(config, name) for name in ("lr", "ewc.strength", "strength", "momentum")]
    [0.1, 2.0, 2.0, None]
    >>> setting_of({"values": {"settings": {"betas": [0.9, 0.99]}}}, "betas.1")
    0.99
    """
    values = _mapping((config or {}).get("values"))
    hyper = _mapping(values.get("hyper"))
    method, _, rest = name.partition(".")
    places = (
        (_mapping(values.get("settings")), name),
        (_mapping(hyper.get(method)), rest),
        *((_mapping(of_method), name) for of_method in hyper.values()),
        (values, name),
    )
    found = next((one[key] for one, key in places if key in one), None)
    if found is None and rest.isdecimal():
        several = setting_of(config, method)
        is_list = isinstance(several, list) and int(rest) < len(several)
        return several[int(rest)] if is_list else None
    return found


def setting_text(value: object) -> str:
    """The value as text that a pattern can match: a number as short as it can be read back.

    >>> setting_text(0.001), setting_text(True), setting_text([0.9, 0.999]), setting_text(None)
    ('0.001', 'true', '0.9 0.999', 'none')
    """
    if isinstance(value, list | tuple):
        return " ".join(map(setting_text, value))
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _seed(row: Row) -> Hashable:
    """Rows of one seed of a run."""
    return *track_key(row), row.run, row.seed


def _trained(row: Row) -> Hashable:
    """Rows of a step, whatever the seed."""
    return None if row.step is None or row.config is None else (row.run, row.step)


def _options(is_wanted: Callable[[str], bool]) -> Callable[[Row], Mapping[str, object]]:
    return lambda row: {name: value for name, value in row.options.items() if is_wanted(name)}


_OF_TABLE = _options(lambda name: name not in {*OPTIONS_OF_DATA, *OPTIONS_OF_SEED})
_LIMIT = _Rule("limit", "data", _table, lambda row: {"limit": row.limit})
_DATA = _Rule("data", "curve", _curve, lambda row: {"data": row.data})
_COUNTS = _Rule("counts", "data", _counted, lambda row: row.counts)
_RULES = (
    _LIMIT,
    _Rule("options", "data", _table, _OF_TABLE),
    _Rule("options", "data", _same_data, _options(lambda name: name in OPTIONS_OF_DATA)),
    _Rule("options", "curve", _seed, _options(lambda name: name in OPTIONS_OF_SEED)),
    _DATA,
    _COUNTS,
    _Rule(
        "checkpoint",
        "model",
        lambda row: (row.run, row.seed, row.step),
        lambda row: {"checkpoint": row.checkpoint},
    ),
    _Rule(
        "seed",
        "model",
        lambda row: None if row.step is None else (row.run, row.step, row.checkpoint),
        lambda row: {"seed": row.seed},
    ),
    _Rule("config", "model", _trained, lambda row: row.config["values"] if row.config else {}),
)
_OF_BASELINE = (
    _LIMIT,
    _Rule("options", "data", _table, _options(lambda name: name not in OPTIONS_OF_SEED)),
    _DATA,
    _COUNTS,
)


def data_notes(rows: Sequence[Row]) -> list[str]:
    """A note on tasks of which some rows were evaluated on other samples than others.

    Rows of one run and seed cannot differ in them; runs, seeds and starts can.
    """
    known: dict[tuple[Any, ...], set[tuple[str, str | None]]] = {}
    for row in firsts(rows, "data_part"):
        if row.gallery == "own":
            subject = *track_key(row), row.task, row.tasks
            known.setdefault(subject, set()).add((row.data, row.data_content))
    names = sorted({repr(task) for (*_, task, _), found in known.items() if len(found) > 1})
    if not names:
        return []
    listed = some_names(names, _SHOWN)
    return [f"rows of {listed} are not all of the same samples: compare them with care"]


def _of_curves(rows: Iterable[Row]) -> list[Row]:
    """One of each run and seed on the same data, whatever the steps."""
    found: dict[Hashable, Row] = {}
    for row in rows:
        found.setdefault((row.run, row.seed, row.data_part), row)
    return list(found.values())

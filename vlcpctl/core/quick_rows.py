"""Rows of the usual form, read in a fraction of the time; any other is left to the full checks.

A line is of the usual form if it needs no error message and none of the rarer fields. What many
rows share is checked once and kept once: the fields that rows of one checkpoint, or of one task,
have in common, settings, and long lists of tasks. Known texts of the last two are not parsed again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from operator import itemgetter
from sys import intern
from typing import Any

import orjson

from vlcpctl.core import rows
from vlcpctl.core.limits import MOST_TASKS
from vlcpctl.core.rows import Row
from vlcpctl.core.safe_json import MOST_DEPTH

_decode_first = json.JSONDecoder().raw_decode
_STEPS = ("step", "task_step")
_NUMBERS = frozenset({"seed", "limit", *_STEPS, *rows.COUNTS})
_RARE = ("alpha", "since", "degrees")
_OF_CHECKPOINT = (
    *("run", "method", "seed", "step", "evaluator", "protocol", "split", "stream", "limit"),
    *("checkpoint", "start", "parent", "preset", "map_variant"),
)
_OF_TASK = ("gallery", "task", "task_step", "data")
_OBJECTS = ("config", "options", "metrics", "tasks", "data_was", "buffer")
_REQUIRED = frozenset(
    {*("run", "method", "seed", "evaluator", "split", "gallery", "task"), "schema"}
    | {"metrics", "options"}
)
_NUMBER_OR_NONE, _FLOATS = frozenset({int, type(None)}), {float}
_MOST_INTEGER = 2**63  # a larger one is refused; orjson reads some of them as floats
_MOST_SHAPES, _MOST_KEPT, _MOST_LISTS, _MOST_CONFIGS = 200, 20_000, 2000, 8
_LONG = 64  # characters of a list of tasks whose text is kept
_CUT = -1  # in place of a value whose text is known


class _Unusual(ValueError):
    """A line is not of the usual form."""


class _Shape:
    """The names of a row's fields, in their order, and what rows of these names share."""

    def __init__(self, names: tuple[str, ...]) -> None:
        if not _REQUIRED.issubset(names):
            raise _Unusual
        self.of_checkpoint = [name for name in names if name in {*_OF_CHECKPOINT, "schema"}]
        self.of_task = [name for name in names if name in {*_OF_TASK, *rows.COUNTS}]
        known = {*self.of_checkpoint, *self.of_task, *_OBJECTS}
        self.others = [name for name in names if name not in known]
        self.rare = [name for name in _RARE if name in names]
        self.numbers = itemgetter("seed", *(name for name in names if name in _NUMBERS))
        self.checkpoint_key = itemgetter(*self.of_checkpoint)
        self.task_key = itemgetter(*self.of_task)
        self.checkpoints: dict[tuple[object, ...], dict[str, Any]] = {}
        self.tasks: dict[tuple[object, ...], dict[str, Any]] = {}


class QuickRows:
    """Reads lines of rows, and keeps what they share."""

    def __init__(self) -> None:
        self._schemas: set[str] = set()
        self._shapes: dict[tuple[str, ...], _Shape] = {}
        self._configs: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {}
        self._config_texts: list[tuple[str, dict[str, Any]]] = []
        self._options: list[tuple[dict[str, Any], int]] = []
        self._buffers: dict[bytes, tuple[dict[str, Any], int]] = {}
        self._tasks: dict[tuple[object, ...], tuple[str, ...]] = {}
        self._task_texts: dict[str, tuple[str, ...]] = {}
        self._metrics: set[tuple[str, ...]] = set()

    def row(self, line: str, place: str) -> Row | None:
        """The row of a line; None if it is not of the usual form, or not a row at all."""
        # Without backslashes and such spaces, every key is followed by these two characters, so
        # that an object with a key twice has fewer keys than the line.
        if "\\" in line or " :" in line or "\t" in line or "\r:" in line:
            return None
        try:
            return self._row(line, place)
        except (ValueError, TypeError):  # of orjson, and of a list or object in place of a text
            return None

    def knows(self, schema: str) -> None:
        """Accept this schema from now on: a row of it passed the full checks."""
        self._schemas.add(schema)

    def _row(self, line: str, place: str) -> Row:
        rest, config = self._without_config(line)
        rest, tasks = self._without_tasks(rest)
        value = orjson.loads(rest)
        if type(value) is not dict or rest.count("{") + rest.count("[") > MOST_DEPTH:
            raise _Unusual
        shape = self._shape(tuple(value))
        if not _NUMBER_OR_NONE.issuperset(map(type, shape.numbers(value))):
            raise _Unusual
        of_checkpoint, of_task = self._of_checkpoint(shape, value), _of_task(shape, value)
        metrics, get = value["metrics"], value.get
        keys = len(value) + len(metrics)
        if config is None:
            config, found = self._known_config(get("config"))
            self._keep_config(line, config)
            keys += found
        elif get("config") != _CUT:  # it was of another object
            raise _Unusual
        if tasks is None:
            tasks = self._known_tasks(get("tasks"))
            self._keep_tasks(rest, tasks)
        elif get("tasks") != _CUT:
            raise _Unusual
        options, found = self._known_options(value["options"])
        buffer, more = self._known_buffer(get("buffer"))
        keys += found + more + sum([_keys(value[name]) for name in shape.others])
        if keys != rest.count('":') or any(value[name] is not None for name in shape.rare):
            raise _Unusual
        return Row(
            **of_checkpoint,
            **of_task,
            buffer=buffer,
            tasks=tasks,
            metrics=self._checked_metrics(metrics),
            data_was=self._known_tasks(get("data_was")),
            options=options,
            config=config,
            place=place,
        )

    def _without_config(self, line: str) -> tuple[str, dict[str, Any] | None]:
        """The line with a number in place of settings of a known text, and these settings."""
        at = line.find('"config": {') + 10
        if at >= 10:
            for text, config in self._config_texts:
                if line.startswith(text, at):
                    return _cut(line, at, at + len(text), "config"), config
        return line, None

    def _without_tasks(self, line: str) -> tuple[str, tuple[str, ...] | None]:
        """The line with a number in place of a long list of a known text, and the list."""
        at = line.find('"tasks": [') + 9
        end = line.find("]", at) + 1
        if at >= 9 and end - at > _LONG:
            tasks = self._task_texts.get(line[at:end])
            if tasks is not None:
                return _cut(line, at, end, "tasks"), tasks
        return line, None

    def _keep_config(self, line: str, config: dict[str, Any] | None) -> None:
        """Keep the text of settings that a line was found to have."""
        at = line.find('"config": {') + 10
        if config is not None and at >= 10:
            found, end = _decode_first(line, at)
            text = line[at:end]
            if found == self._configs[config["id"]][0] and text.count("{") + text.count("[") < 50:
                self._config_texts = [(text, config), *self._config_texts[: _MOST_CONFIGS - 1]]

    def _keep_tasks(self, line: str, tasks: tuple[str, ...]) -> None:
        """Keep the text of a long list that a line was found to have."""
        at = line.find('"tasks": [') + 9
        text = line[at : line.find("]", at) + 1]
        is_long = at >= 9 and len(text) > _LONG and len(self._task_texts) < _MOST_LISTS
        # The text is cut short where a name has a bracket.
        if is_long and text.count('"') == 2 * len(tasks) and orjson.loads(text) == [*tasks]:
            self._task_texts[text] = tasks

    def _shape(self, names: tuple[str, ...]) -> _Shape:
        found = self._shapes.get(names)
        if found is None:
            if len(self._shapes) >= _MOST_SHAPES:
                raise _Unusual
            found = self._shapes[names] = _Shape(names)
        return found

    def _of_checkpoint(self, shape: _Shape, value: dict[str, Any]) -> dict[str, Any]:
        """The checked fields that rows of a checkpoint share."""
        key = shape.checkpoint_key(value)
        found = shape.checkpoints.get(key)
        if found is None:
            if value["schema"] not in self._schemas:
                raise _Unusual
            found = dict.fromkeys(_OF_CHECKPOINT) | _checked(shape.of_checkpoint, value)
            found["protocol"] = found["protocol"] or ""
            del found["schema"]
            _keep(shape.checkpoints, key, found)
        return found

    def _known_config(self, config: object) -> tuple[dict[str, Any] | None, int]:
        """The id and values of settings, and the number of keys in the line."""
        if config is None:
            return None, 0
        if type(config) is not dict or type(config.get("id")) is not str:
            raise _Unusual
        known = self._configs.get(config["id"])
        if known is None or known[0] != config:
            if type(config.get("values")) is not dict:
                raise _Unusual
            kept = {"id": config["id"], "values": config["values"]}
            known = self._configs[config["id"]] = (config, kept, _keys(config))
        return known[1], known[2]

    def _known_options(self, options: object) -> tuple[dict[str, Any], int]:
        if type(options) is not dict:
            raise _Unusual
        for known, keys in self._options:
            if known == options:
                return known, keys
        found = options, _keys(options)
        if len(self._options) < 10:
            self._options.append(found)
        return found

    def _known_buffer(self, buffer: object) -> tuple[dict[str, Any] | None, int]:
        if buffer is None:
            return None, 0
        if type(buffer) is not dict:
            raise _Unusual
        text = orjson.dumps(buffer)
        known = self._buffers.get(text)
        if known is None:
            known = buffer, _keys(buffer)
            _keep(self._buffers, text, known)
        return known

    def _known_tasks(self, names: object) -> tuple[str, ...]:
        if names is None:
            return ()
        if type(names) is not list or len(names) > MOST_TASKS:
            raise _Unusual
        key = tuple(names)
        known = self._tasks.get(key)
        if known is None:
            if not all(type(one) is str and len(one) <= rows.MOST_NAME for one in names):
                raise _Unusual
            known = self._tasks[key] = tuple(map(intern, names))
        return known

    def _checked_metrics(self, metrics: dict[str, Any]) -> dict[str, float]:
        if type(metrics) is not dict:
            raise _Unusual
        names = tuple(metrics)
        if names not in self._metrics:
            if len(names) > rows.MOST_METRICS or max(map(len, names), default=0) > rows.MOST_NAME:
                raise _Unusual
            if len(self._metrics) < _MOST_KEPT:
                self._metrics.add(names)
        values = metrics.values()
        if _FLOATS.issuperset(map(type, values)) and values:
            if max(values) > rows.MOST_VALUE or min(values) < -rows.MOST_VALUE:
                raise _Unusual
            return metrics
        if not all(one is None or _is_usual_number(one) for one in values):
            raise _Unusual
        return {key: float(one) for key, one in metrics.items() if one is not None}


def _is_usual_number(value: object) -> bool:
    # bool is an int, and not meant
    return isinstance(value, float | int) and (
        not isinstance(value, bool) and abs(value) <= rows.MOST_VALUE
    )


def _cut(line: str, at: int, end: int, name: str) -> str:
    """The line with a number in place of the value of a field, which it must have once."""
    rest = f"{line[:at]}{_CUT}{line[end:]}"
    if rest.count(f'"{name}":') > 1:
        raise _Unusual
    return rest


def _keep(known: dict[Any, Any], key: object, found: object) -> None:
    if len(known) >= _MOST_KEPT:
        known.clear()
    known[key] = found


def _of_task(shape: _Shape, value: dict[str, Any]) -> dict[str, Any]:
    """The checked fields that rows of a task share."""
    key = shape.task_key(value)
    found = shape.tasks.get(key)
    if found is None:
        checked = _checked(shape.of_task, value)
        counts = {name: checked[name] for name in rows.COUNTS if checked.get(name) is not None}
        found = {**{name: checked.get(name) for name in _OF_TASK}, "counts": counts}
        _keep(shape.tasks, key, found)
    return found


def _checked(names: Iterable[str], value: dict[str, Any]) -> dict[str, Any]:
    """These fields, texts kept once. Raises _Unusual if one is not of usual type and size."""
    found = {}
    for name in names:
        one = value[name]
        if one is None:
            is_usual = name not in _REQUIRED
        elif name in _STEPS:
            is_usual = 0 <= one < MOST_TASKS
        elif name in _NUMBERS:
            is_usual = -_MOST_INTEGER <= one < _MOST_INTEGER
        else:
            is_usual = type(one) is str and len(one) <= rows.MOST_NAME
        if not is_usual:
            raise _Unusual
        found[name] = intern(one) if type(one) is str else one
    return found


def _keys(value: Any) -> int:
    """How many keys objects in a value have in all. Raises _Unusual for an unusual value in it."""
    kind = type(value)
    if kind is dict or kind is list:
        parts = map(_keys, value.values() if kind is dict else value)
        return sum(parts) + len(value) * (kind is dict)
    if kind is str:
        is_usual = len(value) <= rows.MOST_NAME
    elif kind is int or kind is float:  # a larger integer is a float to orjson
        is_usual = -_MOST_INTEGER <= value < _MOST_INTEGER
    else:
        is_usual = True
    if not is_usual:
        raise _Unusual
    return 0

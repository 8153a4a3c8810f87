"""Rows of the usual form, read in a fifth of the time; any other is left to the full checks.

A line is of the usual form if it needs no error message and none of the rarer fields. Values that
many rows share, such as settings and lists of tasks, are checked once and kept once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from sys import intern
from typing import Any

from vlcpctl.core import rows
from vlcpctl.core.limits import MOST_TASKS
from vlcpctl.core.rows import Row
from vlcpctl.core.safe_json import MOST_DEPTH

_decode = json.JSONDecoder().decode  # without hooks, which are called for every number and object
_TEXTS = ("run", "method", "evaluator", "gallery", "task", "split")
_MORE_TEXTS = (
    "stream",
    "checkpoint",
    "data",
    "start",
    "parent",
    "preset",
    "map_variant",
    "protocol",
)
_NUMBERS = ("step", "task_step", "limit", *rows.COUNTS)
_RARE = ("alpha", "since", "degrees")
_CHECKED = frozenset(
    {*_TEXTS, *_MORE_TEXTS, "schema", "config", "options", "metrics", "tasks", "data_was"}
)
_NUMBER_OR_NONE, _OBJECT_OR_NONE = frozenset({int, type(None)}), frozenset({dict, type(None)})
_MOST_INTEGER = 2**63


class QuickRows:
    """Reads lines of rows, and keeps what they share."""

    def __init__(self) -> None:
        self._schemas: set[str] = set()
        self._configs: dict[object, tuple[dict[str, Any], dict[str, Any], int]] = {}
        self._options: list[tuple[dict[str, Any], int]] = []
        self._tasks: dict[tuple[object, ...], tuple[str, ...]] = {}

    def row(self, line: str, place: str) -> Row | None:
        """The row of a line; None if it is not of the usual form, or not a row at all."""
        # Without backslashes and such spaces, every key is followed by these two characters, so
        # that an object with a key twice has fewer keys than the line.
        if "\\" in line or " :" in line or "\t" in line:
            return None
        if line.count("{") + line.count("[") > MOST_DEPTH:
            return None
        try:
            value = _decode(line)
        except (ValueError, RecursionError):
            return None
        return self._row(value, line.count('":'), place) if type(value) is dict else None

    def knows(self, schema: str) -> None:
        """Accept this schema from now on: a row of it passed the full checks."""
        self._schemas.add(schema)

    def _row(self, value: dict[str, Any], keys: int, place: str) -> Row | None:
        get = value.get
        metrics, config, options = get("metrics"), get("config"), get("options")
        if type(get("schema")) is not str or get("schema") not in self._schemas:
            return None
        if type(options) is not dict:
            return None
        if not _has_usual_types(get) or type(metrics) is not dict or not _are_usual(metrics):
            return None
        kept, option_keys = self._known_options(options)
        found, config_keys = (None, 0) if config is None else self._known_config(config)
        tasks, data_was = self._known_tasks(get("tasks")), self._known_tasks(get("data_was"))
        others = [_keys(value[name]) for name in value.keys() - _CHECKED]
        parts = [option_keys, config_keys, *others]
        if min(parts) < 0 or sum(parts) + len(value) + len(metrics) != keys:
            return None
        if tasks is None or data_was is None:
            return None
        return Row(
            run=intern(value["run"]),
            method=intern(value["method"]),
            seed=value["seed"],
            buffer=get("buffer"),
            step=get("step"),
            task_step=get("task_step"),
            stream=self._text(get("stream")),
            evaluator=intern(value["evaluator"]),
            protocol=self._text(get("protocol")) or "",
            gallery=intern(value["gallery"]),
            task=intern(value["task"]),
            tasks=tasks,
            split=intern(value["split"]),
            metrics={intern(key): float(one) for key, one in metrics.items() if one is not None},
            checkpoint=self._text(get("checkpoint")),
            data=self._text(get("data")),
            data_was=data_was,
            limit=get("limit"),
            options=kept,
            config=found,
            start=self._text(get("start")),
            parent=self._text(get("parent")),
            preset=self._text(get("preset")),
            map_variant=self._text(get("map_variant")),
            counts={name: value[name] for name in rows.COUNTS if get(name) is not None},
            place=place,
        )

    @staticmethod
    def _text(text: str | None) -> str | None:
        return text and intern(text)

    def _known_config(self, config: object) -> tuple[dict[str, Any] | None, int]:
        """The id and values of settings, and the number of keys in the line; -1 if unusual."""
        if type(config) is not dict or type(config.get("id")) is not str:
            return None, -1
        known = self._configs.get(config["id"])
        if known is None or known[0] != config:
            if type(config.get("values")) is not dict:
                return None, -1
            kept = {"id": config["id"], "values": config["values"]}
            known = self._configs[config["id"]] = (config, kept, _keys(config))
        return known[1], known[2]

    def _known_options(self, options: dict[str, Any]) -> tuple[dict[str, Any], int]:
        for known, keys in self._options:
            if known == options:
                return known, keys
        found = options, _keys(options)
        if len(self._options) < 10:
            self._options.append(found)
        return found

    def _known_tasks(self, names: object) -> tuple[str, ...] | None:
        if names is None:
            return ()
        if type(names) is not list or len(names) > MOST_TASKS:
            return None
        key = tuple(names)
        try:
            known = self._tasks.get(key)
        except TypeError:  # of objects
            return None
        if known is None:
            if not all(type(one) is str and len(one) <= rows.MOST_NAME for one in names):
                return None
            known = self._tasks[key] = tuple(map(intern, names))
        return known


def _has_usual_types(get: Callable[[str], Any]) -> bool:
    """Whether texts are texts of usual length, and numbers numbers of usual size."""
    texts, more, numbers = map(get, _TEXTS), map(get, _MORE_TEXTS), [*map(get, _NUMBERS)]
    all_texts = [*texts, *(one for one in more if one is not None)]
    if {*map(type, all_texts)} != {str} or max(map(len, all_texts)) > rows.MOST_NAME:
        return False
    if not {*map(type, numbers)} <= _NUMBER_OR_NONE or type(get("seed")) is not int:
        return False
    if any(get(name) is not None for name in _RARE) or type(get("buffer")) not in _OBJECT_OR_NONE:
        return False
    step, task = numbers[:2]
    return (step is None or 0 <= step < MOST_TASKS) and (task is None or 0 <= task < MOST_TASKS)


def _are_usual(metrics: dict[str, Any]) -> bool:
    if len(metrics) > rows.MOST_METRICS or any(len(key) > rows.MOST_NAME for key in metrics):
        return False
    return all(
        one is None or (type(one) in (float, int) and abs(one) <= rows.MOST_VALUE)
        for one in metrics.values()
    )


def _keys(value: Any) -> int:
    """How many keys objects in a value have in all; below 0 if one holds an unusual value."""
    kind = type(value)
    if kind is str:
        return 0 if len(value) <= rows.MOST_NAME else -1
    if kind is int:
        return 0 if -_MOST_INTEGER <= value < _MOST_INTEGER else -1
    if kind is float:
        return 0 if math.isfinite(value) else -1
    if kind is dict or kind is list:
        parts = [_keys(one) for one in (value.values() if kind is dict else value)]
        return -1 if min(parts, default=0) < 0 else sum(parts) + len(value) * (kind is dict)
    return 0

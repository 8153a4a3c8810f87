"""Which pairs a deletion request names, and which of them are stored.

Pairs are named by key, by the key of the source, by image, or by a column that indexes have.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.errors import BadInput, UsageError, some_names
from vlcpctl.core.words import printable
from vlcpctl.data.sources.values import is_unicode
from vlcpctl.data.splitting.leaving_out import read_known
from vlcpctl.data.tasks.task import Split, Task, open_task
from vlcpctl.deletion.places import TRIMMED, Artifact
from vlcpctl.deletion.tars import Tars
from vlcpctl.deletion.tasks import Drop, is_among, unlisted_shards
from vlcpctl.files.inputs import read_text

_OPTIONS: Final = {"key": "key", "source_key": "source-key", "sha256": "sha256"}  # by column
_DIGITS: Final = {"key": 32, "sha256": 64}
_IN_TARS = ("key", "source_key", "sha256", "label", "task")


class Condition(NamedTuple):
    """A condition on pairs: the value of a column of indexes, or of one in a list."""

    column: str
    value: str

    @property
    def by(self) -> str:
        """The option that gives it."""
        return _OPTIONS.get(self.column, "where")

    def __str__(self) -> str:
        """It as an option of the command line."""
        return f"--{self.by} {f'{self.column}=' if self.by == 'where' else ''}{self.value}"

    def described(self) -> dict[str, Any]:
        """It as a JSON value; text that may be personal only by its sha256."""
        if self.column in _DIGITS:
            return {"by": self.by, self.by: self.value}
        column = {"column": self.column} if self.by == "where" else {}
        return {"by": self.by, **column, "sha256": hashlib.sha256(self.value.encode()).hexdigest()}


def parse(
    key: Collection[str] = (),
    source_key: Collection[str] = (),
    sha256: Collection[str] = (),
    where: Collection[str] = (),
    keys_from: Collection[Path] = (),
) -> tuple[Condition, ...]:
    """The conditions of a command line, as its options give them: each adds pairs.

    Raises UsageError if there is none or one is malformed, and BadInput if a file of keys cannot
    be read.
    """
    # Not by splitlines, which takes more than newlines for the end of a line.
    listed = (line.strip() for path in keys_from for line in _text(path).split("\n"))
    texts = zip(_OPTIONS, ([*key, *filter(None, listed)], source_key, sha256), strict=True)
    given = [(column, text) for column, found in texts for text in found]
    for text in where:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"--where '{printable(text):.80}' is not COLUMN=VALUE")
        given.append((name, value))
    found = {_condition(column, text) for column, text in given}
    if not found:
        what = "no key is listed in --keys" if keys_from else "no pair is selected"
        raise UsageError(f"{what}; give --key, --source-key, --sha256, --where or --keys")
    order = (*_OPTIONS.values(), "where")
    return tuple(sorted(found, key=lambda one: (order.index(one.by), *one)))


def require_unicode(option: str, text: str) -> str:
    """The text itself. Raises UsageError if it cannot be in an index, which is UTF-8."""
    if not is_unicode(text):
        raise UsageError(f"{option} '{printable(text):.80}' is not UTF-8")
    return text


def _text(path: Path) -> str:
    if path != Path("-"):
        return read_text(path)
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise BadInput(f"<stdin> is not UTF-8 text: {error}") from error


def _condition(column: str, text: str) -> Condition:
    option, digits = f"--{_OPTIONS.get(column, 'where')}", _DIGITS.get(column)
    for part in (column, text):
        require_unicode(option, part)
    if digits is None:
        return Condition(column, text)
    if not re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", text):
        raise UsageError(f"{option} '{printable(text):.80}' is not {digits} hexadecimal digits")
    return Condition(column, text.lower())


@dataclass(frozen=True)
class Selected:
    """The pairs that are to go, and the keys of those that each condition selects.

    Where a column selects them, `evicted` are the keys of samples that no index lists, whose
    columns nothing records: they go, too, since no command reads them. `unlabelled` are the keys
    of pairs without a value in the column, `same_image` of other pairs with one of the images:
    both stay.
    """

    drop: Drop
    matched: dict[Condition, set[str]]
    images: set[str]  # sha256
    evicted: set[str]
    unlabelled: set[str]
    same_image: set[str]


def select(
    stored: Sequence[Artifact], conditions: Sequence[Condition], tars: Tars, known: Collection[str]
) -> Selected:
    """The pairs that the conditions select, and those with the keys `known`.

    Raises BadInput if a column is in no index, or if a task is damaged.
    """
    tasks = [open_task(one.path) for one in stored if one.kind == "task"]
    splits = [(task, task.split(name)) for task in tasks for name in task.manifest.splits]
    listed = [split.table for _, split in splits]
    listed += [read_known(one.path).table for one in stored if one.kind == TRIMMED]
    names = {*_OPTIONS}.union(*(table.column_names for table in listed))
    if lacking := {one.column for one in conditions} - names:
        raise BadInput(
            f"--where: no index has a column {min(lacking)!r}; 'vlcpctl split --keep-columns' "
            f"keeps columns of the source (found: {some_names(sorted(names))})"
        )
    unlisted = pa.Table.from_pylist(
        [sample for task, split in splits for sample in _unlisted(task, split, tars)],
        pa.schema([(name, pa.string()) for name in _IN_TARS]),
    )
    matched: defaultdict[Condition, set[str]] = defaultdict(set)
    for condition, key in (one for table in (*listed, unlisted) for one in _met(table, conditions)):
        matched[condition].add(key)
    keys = {*known, *(one.value for one in conditions if one.by == "key")}.union(*matched.values())
    rows = [_with(table, "key", keys) for table in (*listed, unlisted)]
    images = _texts(rows, "sha256")
    evicted, unlabelled = set[str](), set[str]()
    for name in {one.column for one in conditions}.difference(_IN_TARS):
        evicted = _texts([unlisted], "key") - _texts(listed, "key") - keys
        valued = [_with_values(table, name) for table in listed if name in table.column_names]
        unlabelled |= _texts(listed, "key") - keys - _texts(valued, "key")
    return Selected(
        Drop(frozenset(keys | evicted), frozenset(_texts(rows, "source_key"))),
        matched,
        images,
        evicted,
        unlabelled,
        same_image=_texts([_with(table, "sha256", images) for table in listed], "key") - keys,
    )


def _unlisted(task: Task, split: Split, tars: Tars) -> Iterator[dict[str, str]]:
    """What describes the samples in a buffer's tars that its index does not list any more."""
    shards = unlisted_shards(task, split)
    listed = set(split.keys) if shards else set()
    for path in (task.path / shard for shard in shards):
        for sample in tars.samples(path):
            if sample.key not in listed:
                about = {**tars.description(path, sample), "key": sample.key}
                yield {name: str(about[name]) for name in _IN_TARS if about.get(name) is not None}


def _met(table: pa.Table, conditions: Sequence[Condition]) -> Iterator[tuple[Condition, str]]:
    """Each condition with the key of each pair of an index that it selects."""
    for name in {one.column for one in conditions}.intersection(table.column_names):
        values, rows = table[name], np.arange(len(table))
        if pa.types.is_list(values.type):
            rows = pc.list_parent_indices(values).to_numpy()
            values = pa.chunked_array([pc.list_flatten(values)])
        is_met = is_among(values, (one.value for one in conditions if one.column == name))
        keys = table["key"].take(pa.array(rows[is_met])).to_pylist()
        found = values.filter(pa.array(is_met)).cast(pa.string()).to_pylist()
        yield from ((Condition(name, value), key) for value, key in zip(found, keys, strict=True))


def _with(table: pa.Table, column: str, values: Collection[str]) -> pa.Table:
    """The rows with one of these values."""
    return table.filter(pa.array(is_among(table[column], values)))


def _with_values(table: pa.Table, column: str) -> pa.Table:
    """The rows with a value in a column, or in its list."""
    has_N = [one not in (None, []) for one in table[column].to_pylist()]
    return table.filter(pa.array(has_N, pa.bool_()))


def _texts(tables: Iterable[pa.Table], column: str) -> set[str]:
    return {one for table in tables for one in table[column].to_pylist() if one is not None}

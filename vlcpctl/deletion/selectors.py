"""Which pairs a deletion request names: by key, by the key of the source, by image, by column."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.core.printable import printable
from vlcpctl.data.sources.pairs import is_unicode
from vlcpctl.deletion.tasks import is_among
from vlcpctl.files.input_files import read_text

_DIGITS = {"--key": 32, "--sha256": 64}
_EXACT: Final = {"key": "key", "source-key": "source_key", "sha256": "sha256"}  # columns by option
_ORDER = (*_EXACT, "where")


class Condition(NamedTuple):
    """A condition on pairs: the option that gave it, a column of indexes, and its value."""

    by: str
    column: str
    value: str

    def __str__(self) -> str:
        """It as an option of the command line."""
        return f"--{self.by} {f'{self.column}=' if self.by == 'where' else ''}{self.value}"

    def described(self) -> dict[str, Any]:
        """It as a JSON value; text that may be personal only by its sha256."""
        if self.by in {"key", "sha256"}:
            return {"by": self.by, self.by: self.value}
        column = {"column": self.column} if self.by == "where" else {}
        return {"by": self.by, **column, "sha256": hashlib.sha256(self.value.encode()).hexdigest()}


def met_in(table: pa.Table, conditions: Sequence[Condition]) -> Iterator[tuple[Condition, str]]:
    """Each condition with the key of each pair that it selects in an index."""
    for by, column in _EXACT.items():
        if wanted := [one.value for one in conditions if one.by == by]:
            rows = table.filter(pa.array(is_among(table[column], wanted)))
            for value, key in zip(rows[column].to_pylist(), rows["key"].to_pylist(), strict=True):
                yield Condition(by, column, value), key
    for one in conditions:
        if one.by == "where" and one.column in table.column_names:
            has_N = pa.array(_has_value(table[one.column], one.value))
            yield from ((one, key) for key in table["key"].filter(has_N).to_pylist())


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
    listed = [line.strip() for path in keys_from for line in _text(path).split("\n")]
    found = {
        *(Condition("key", "key", _hex("--key", one)) for one in [*key, *filter(None, listed)]),
        *(
            Condition("source-key", "source_key", require_unicode("--source-key", one))
            for one in source_key
        ),
        *(Condition("sha256", "sha256", _hex("--sha256", one)) for one in sha256),
        *(_where(require_unicode("--where", one)) for one in where),
    }
    if not found:
        what = "no key is listed in --keys" if keys_from else "no pair is selected"
        raise UsageError(f"{what}; give --key, --source-key, --sha256, --where or --keys")
    return tuple(sorted(found, key=lambda one: (_ORDER.index(one.by), *one)))


def require_unicode(option: str, text: str) -> str:
    """The text itself. Raises UsageError if it cannot be in an index, which is UTF-8."""
    if not is_unicode(text):
        raise UsageError(f"{option} '{printable(text):.80}' is not UTF-8")
    return text


def _has_value(column: pa.ChunkedArray, value: str) -> np.ndarray:
    """(N,) bool: which values are this text; of a list, one of its elements."""
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        flat = _has_value(pa.chunked_array([pc.list_flatten(column)]), value)
        rows = pc.list_parent_indices(column).to_numpy()
        found = np.zeros(len(column), dtype=bool)
        found[rows[flat]] = True
        return found
    try:
        return is_among(column, [value])
    except pa.ArrowException:  # of a type without a text
        return np.array([str(one) == value for one in column.to_pylist()], dtype=bool)


def _text(path: Path) -> str:
    if path != Path("-"):
        return read_text(path)
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise BadInput(f"<stdin> is not UTF-8 text: {error}") from error


def _hex(option: str, text: str) -> str:
    digits = _DIGITS[option]
    if not re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", text):
        what = "the sha256 of an image" if option == "--sha256" else "the key of a sample"
        raise UsageError(
            f"{option} '{printable(text):.80}' is not {what}: {digits} hexadecimal digits"
        )
    return text.lower()


def _where(text: str) -> Condition:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"--where '{printable(text):.80}' is not COLUMN=VALUE")
    return Condition("where", name, value)

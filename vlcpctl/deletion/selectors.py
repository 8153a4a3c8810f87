"""Which pairs a deletion request names: by key, by the key of the source, by image, by column."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.core.hashing import content_id
from vlcpctl.core.input_files import read_text
from vlcpctl.core.printable import printable
from vlcpctl.data.sources.records import is_unicode
from vlcpctl.deletion.tasks import is_among

_DIGITS = {"--key": 32, "--sha256": 64}
_DESCRIBED = ("label", "task")  # columns that the .json member of a tar has, too


@dataclass(frozen=True)
class Selectors:
    """A union of conditions on pairs."""

    keys: frozenset[str] = frozenset()
    source_keys: frozenset[str] = frozenset()
    images: frozenset[str] = frozenset()  # sha256 of image files
    columns: tuple[tuple[str, str], ...] = ()  # column and value

    def described(self) -> list[dict[str, str]]:
        """The conditions as JSON values, sorted; text that may be personal only by its sha256."""
        return [
            *({"by": "key", "key": key} for key in sorted(self.keys)),
            *({"by": "source-key", "sha256": _sha256(text)} for text in sorted(self.source_keys)),
            *({"by": "sha256", "sha256": image} for image in sorted(self.images)),
            *(
                {"by": "where", "column": column, "sha256": _sha256(value)}
                for column, value in sorted(self.columns)
            ),
        ]

    def words(self) -> list[str]:
        """The conditions as options of the command line, in the order of `described`."""
        return [
            *(f"--key {key}" for key in sorted(self.keys)),
            *(f"--source-key {text}" for text in sorted(self.source_keys)),
            *(f"--sha256 {image}" for image in sorted(self.images)),
            *(f"--where {column}={value}" for column, value in sorted(self.columns)),
        ]

    def request(self) -> str:
        """An id of the conditions: the same ones continue an interrupted deletion."""
        return content_id(self.described())

    def each(self, table: pa.Table) -> Iterator[tuple[str, str]]:
        """The words of a condition and the key of a pair, for the rows that it selects."""
        for name, wanted in self._exact().items():
            rows = table.filter(pa.array(is_among(table[name], wanted))) if wanted else table[:0]
            for text, key in zip(rows[name].to_pylist(), rows["key"].to_pylist(), strict=True):
                yield f"--{name.replace('_', '-')} {text}", key
        for name, value in self.columns:
            if name in table.column_names:
                has_N = pa.array(_has_value(table[name], value))
                for key in table["key"].filter(has_N).to_pylist():
                    yield f"--where {name}={value}", key

    def of_sample(self, description: Mapping[str, Any]) -> list[str]:
        """The words of the conditions that select a sample by the .json member in its tar."""
        return [
            *(
                f"--{name.replace('_', '-')} {description[name]}"
                for name, wanted in self._exact().items()
                if description.get(name) in wanted
            ),
            *(
                f"--where {name}={value}"
                for name, value in self.columns
                if name in _DESCRIBED and name in description and str(description[name]) == value
            ),
        ]

    def hidden_columns(self) -> list[str]:
        """The columns of conditions that tars do not record, only indexes."""
        return [name for name, _ in self.columns if name not in _DESCRIBED]

    def _exact(self) -> dict[str, frozenset[str]]:
        return {"key": self.keys, "source_key": self.source_keys, "sha256": self.images}


def parse(
    key: Collection[str] = (),
    source_key: Collection[str] = (),
    sha256: Collection[str] = (),
    where: Collection[str] = (),
    keys_from: Collection[Path] = (),
) -> Selectors:
    """The conditions of a command line, as its options give them.

    Raises UsageError if there is none or one is malformed, and BadInput if a file of keys cannot
    be read.
    """
    listed = [line.strip() for path in keys_from for line in _text(path).splitlines()]
    found = Selectors(
        keys=frozenset(_hex("--key", text) for text in [*key, *filter(None, listed)]),
        source_keys=frozenset(require_unicode("--source-key", text) for text in source_key),
        images=frozenset(_hex("--sha256", text) for text in sha256),
        columns=tuple(sorted({_column(require_unicode("--where", text)) for text in where})),
    )
    if not any(vars(found).values()):
        what = "no key is listed in --keys" if keys_from else "no pair is selected"
        raise UsageError(f"{what}; give --key, --source-key, --sha256, --where or --keys")
    return found


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


def _column(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"--where '{printable(text):.80}' is not COLUMN=VALUE")
    return name, value


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

"""Bound the memory that a Parquet file needs, by its page headers, before its values are decoded.

The sizes in a file's footer are not trusted: a page of a few kilobytes may decompress to gigabytes,
and one long value in a dictionary may be referenced by every row. Headers of pages are Thrift
structs in compact encoding, see https://github.com/apache/parquet-format (PageHeader) and
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow.parquet as pq

from vlcpctl.core.errors import BadInput
from vlcpctl.core.printable import shortened
from vlcpctl.data.sources.limits import BATCH_BYTES, PAGE_RATIO, Caps, over

_HEADER_BYTES = 1 << 10  # enough for most headers
_MOST_HEADER_BYTES = 1 << 22  # a header may contain the smallest and largest value of its page
_FREE_VALUES = 1 << 23  # values of a list column that may take less than a byte each
_DICTIONARY_PAGE = 2
_DELTA_BYTE_ARRAY = 7  # an encoding in which a value repeats part of the one before it
# Field numbers: of a page header, and of the headers of the kinds of page that it contains.
_KIND, _DECOMPRESSED, _COMPRESSED = 1, 2, 3
_DATA, _DATA_V2 = 5, 8
_VALUES, _ENCODING, _ENCODING_V2 = 1, 2, 4
_MOST_NESTED = 16  # levels of structs and lists
# Field numbers: of the footer, and of the facts on a column in a row group.
_ROW_GROUPS, _METADATA = 4, 3
_NUM_VALUES, _DATA_OFFSET, _DICTIONARY_OFFSET = 5, 9, 11
_TAIL = 8  # bytes after the footer: its length, and PAR1


@dataclass
class PageFacts:
    """What decides how many rows are decoded at once, over some columns of a file."""

    size: int  # bytes of all columns once decompressed, as the footer claims
    most_rows: int = BATCH_BYTES
    dictionaries: list[str] = field(default_factory=list)  # columns to keep as dictionaries
    by_group: bool = False  # whether a batch must not have rows of two row groups


@dataclass(frozen=True)
class _Page:
    is_dictionary: bool
    size: int  # bytes once decompressed
    stored: int  # bytes in the file
    values: int
    encoding: int

    def largest_value(self) -> int:
        """Bytes that a value takes on average, or at most where one may repeat another."""
        if self.encoding == _DELTA_BYTE_ARRAY:
            return self.size
        return self.size // max(self.values, 1)


def inspect_pages(
    path: Path, file: BinaryIO, schema: pq.ParquetSchema, names: Iterable[str], caps: Caps
) -> PageFacts:
    """How to read the columns `names` in bounded memory, from the headers of all their pages.

    Raises BadInput if a page decompresses to more than the caps allow, or if the footer or the
    header of a page is malformed.
    """
    groups = _row_groups(path, file)
    facts = PageFacts(sum(group.size for group in groups))
    dictionaries = set()
    for number in _leaves(schema, set(names)):
        column = schema.column(number)
        is_list = column.max_repetition_level > 0
        for group in groups:
            values, starts = group.chunk(path, number)
            chunk = _Chunk(path, file, column.path, values, starts, caps)
            for page in chunk.checked(is_list=is_list):
                if not page.is_dictionary:
                    room = max(1, BATCH_BYTES // max(1, page.largest_value()))
                    facts.most_rows = min(facts.most_rows, room)
                # A batch has at most 500 values of a column, but any number of those of lists.
                elif page.size * (values if is_list else 500) > BATCH_BYTES:
                    dictionaries.add(column.path)
                    # Each row group has its own dictionary, and pyarrow cannot join lists of two.
                    facts.by_group |= is_list
    facts.dictionaries = sorted(dictionaries)
    return facts


@dataclass(frozen=True)
class _RowGroup:
    columns: list[Any]
    size: int  # bytes once decompressed

    def chunk(self, path: Path, number: int) -> tuple[int, list[int]]:
        """The number of values of a column, and where its pages may start."""
        try:
            facts = self.columns[number][_METADATA]
            starts = [facts[_DATA_OFFSET], facts.get(_DICTIONARY_OFFSET)]
            return int(facts[_NUM_VALUES]), [int(start) for start in starts if start is not None]
        except (LookupError, TypeError, AttributeError) as error:
            raise BadInput(f"{path}: column {number} in its footer is malformed") from error


def _row_groups(path: Path, file: BinaryIO) -> list[_RowGroup]:
    """The row groups in the footer of a file that pyarrow has opened.

    pyarrow.parquet.FileMetaData also has them, but ends the process for some malformed ones.
    """
    try:
        end = file.seek(-_TAIL, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        file.seek(end - length)
        footer = _Thrift(file.read(length)).struct()
        return [_RowGroup(group[1], int(group[2])) for group in footer[_ROW_GROUPS]]
    except (OSError, LookupError, ValueError, TypeError) as error:
        raise BadInput(f"cannot read {path}: its footer is malformed") from error


def _leaves(schema: pq.ParquetSchema, roots: set[str]) -> list[int]:
    """The numbers of the columns on disk that belong to the columns `roots`."""
    starts = tuple(f"{root}." for root in roots)
    paths = [schema.column(number).path for number in range(len(schema))]
    return [n for n, path in enumerate(paths) if path in roots or path.startswith(starts)]


@dataclass
class _Chunk:
    path: Path
    file: BinaryIO
    column: str
    values: int
    starts: list[int]
    caps: Caps

    def checked(self, *, is_list: bool) -> Iterator[_Page]:
        """Yield the pages. Raises BadInput for one that is malformed or exceeds a cap."""
        size = stored = values = 0
        for page in self._pages():
            size, stored = size + page.size, stored + page.stored
            values += 0 if page.is_dictionary else page.values
            self._check(page.size, page.stored, self.caps.page_bytes)
            if is_list:  # all pages of a list column may belong to one row
                self._check(size, stored, 4 * self.caps.page_bytes)
                if values > max(_FREE_VALUES, stored):
                    raise self._error(f"{values} values in {stored} bytes of a list column")
            yield page

    def _check(self, size: int, stored: int, most: int) -> None:
        if size > max(most, PAGE_RATIO * stored):
            raise self._error(
                f"{stored} bytes decompress to {over('page-bytes', size, self.caps.page_bytes)}"
            )

    def _pages(self) -> Iterator[_Page]:
        # The dictionary comes first; some writers give 0 for one that is missing.
        at = min((start for start in self.starts if start > 0), default=-1)
        seen = 0
        while seen < self.values:
            header, length = self._header(at)
            page = _page_of(header)
            if page is None:
                raise self._error(f"malformed page header at byte {at}")
            yield page
            at += length + page.stored
            seen += 0 if page.is_dictionary else page.values

    def _header(self, at: int) -> tuple[dict[int, Any], int]:
        """The fields of the header at this position, and its length in bytes."""
        size = _HEADER_BYTES
        while size <= _MOST_HEADER_BYTES and at >= 0:
            self.file.seek(at)
            data = self.file.read(size)
            try:
                thrift = _Thrift(data)
                return thrift.struct(), thrift.at
            except IndexError:
                if len(data) < size:
                    break
                size *= 16
            except ValueError:
                break
        raise self._error(f"malformed page header at byte {at}")

    def _error(self, what: str) -> BadInput:
        return BadInput(f"{self.path}, column {shortened(self.column)!r}: {what}")


def _page_of(header: dict[int, Any]) -> _Page | None:
    """The page that a header describes; None if a field is missing or is not possible."""
    inner = header.get(_DATA) or header.get(_DATA_V2) or {}
    if not isinstance(inner, dict):
        return None
    encoding = inner.get(_ENCODING_V2 if _DATA_V2 in header else _ENCODING, 0)
    numbers = [header.get(_DECOMPRESSED), header.get(_COMPRESSED), inner.get(_VALUES, 0), encoding]
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        return None
    kind = header.get(_KIND)
    if kind != _DICTIONARY_PAGE and not inner.get(_VALUES) and numbers[1] == 0:
        return None  # reading would never end
    size, stored, values, encoding = numbers
    return _Page(kind == _DICTIONARY_PAGE, size, stored, values, encoding)


class _Thrift:
    """Decodes a struct; IndexError if the data end before it does, ValueError if malformed."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """The fields of a struct by number: integers, structs, lists, and None for other values."""
        found: dict[int, Any] = {}
        number = 0
        if depth > _MOST_NESTED:
            raise ValueError
        while byte := self._byte():
            step, kind = byte >> 4, byte & 0x0F
            number = number + step if step else self._zigzag()
            found[number] = self._value(kind, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):  # a boolean is in its field's type
            return None
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind == 12:
            return self.struct(depth + 1)
        if kind in (9, 10):
            return self._list(depth + 1)
        sizes = {3: 1, 7: 8}
        return self._skip(sizes[kind] if kind in sizes else self._length(kind))

    def _list(self, depth: int) -> list[Any]:
        byte = self._byte()
        count, kind = byte >> 4, byte & 0x0F
        if depth > _MOST_NESTED:
            raise ValueError
        found = []
        for _ in range(self._varint() if count == 15 else count):
            if kind in (1, 2):
                self._skip(1)  # in a list, a boolean is a byte
            else:
                found.append(self._value(kind, depth))
        return found

    def _length(self, kind: int) -> int:
        if kind != 8:
            raise ValueError
        return self._varint()

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self.data):
            raise IndexError

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 63:
                raise ValueError

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

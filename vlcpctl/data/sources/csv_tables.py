"""Read records from CSV and TSV files; the separator is the commonest one in the first line."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from vlcpctl.core.errors import BadInput
from vlcpctl.core.input_files import open_text
from vlcpctl.core.printable import shortened
from vlcpctl.data.sources.json_lists import NumberedRecord
from vlcpctl.data.sources.limits import RECORD_LENGTH
from vlcpctl.data.sources.records import Record

SEPARATORS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "vertical bars"}
MISSHAPEN = "values that do not match the first line"


def separator_of(path: Path) -> str:
    """The character between columns, guessed from the first line. Raises BadInput if not UTF-8."""
    with open_text(path, newline="") as file:
        try:
            line = file.readline(2**16)
        except UnicodeDecodeError as error:
            raise BadInput(f"{path} is not UTF-8: {error}") from error
    return max(SEPARATORS, key=line.count)


def table_records(path: Path) -> Iterator[NumberedRecord]:
    """One record per row, with its number; empty values are None. Raises BadInput if malformed."""
    separator = separator_of(path)
    csv.field_size_limit(RECORD_LENGTH)  # the default, 131072, is less than some captions have
    with open_text(path, newline="") as file:
        lines = _Lines(file)
        rows = csv.reader(lines, delimiter=separator, strict=True)
        try:
            names = next(rows, [])
            _check_header(path, names)
            filled = (values for values in rows if values)
            for number, values in enumerate(filled):
                lines.of_row = 0
                yield number, _record(names, values, separator)
        except (csv.Error, UnicodeDecodeError) as error:
            raise BadInput(f"{path}, line {rows.line_num}: {error}") from error


class _Lines:
    """The lines of a file, as long as those of one row are within `RECORD_LENGTH` characters.

    A quotation mark without its partner would otherwise make the rest of the file one row.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.of_row = 0  # characters read since the last row

    def __iter__(self) -> Iterator[str]:
        while line := self._file.readline(RECORD_LENGTH + 1):
            self.of_row += len(line)
            if self.of_row > RECORD_LENGTH:
                raise csv.Error(f"a row that does not end within {RECORD_LENGTH} characters")
            yield line


def number_in(value: str | int | float | None) -> str | int | float | None:
    """The number that a text spells, so that 9 sorts before 10; any other value unchanged.

    >>> number_in("9"), number_in("0.5"), number_in("007"), number_in("2024-01-01")
    (9, 0.5, '007', '2024-01-01')
    """
    for kind in (int, float):
        try:
            number = kind(value or "")
        except ValueError:
            continue
        if str(number) == value and abs(number) < 2**63:
            return number
    return value


def _check_header(path: Path, names: list[str]) -> None:
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    if twice:
        raise BadInput(f"{path} has two columns named {shortened(twice[0])!r}")


def _record(names: list[str], values: list[str], separator: str) -> Record:
    if len(values) > len(names) == 2:
        # Flickr30k's lists of 'image,caption' do not quote captions that contain commas.
        values = [values[0], separator.join(values[1:])]
    if len(values) != len(names):
        found = f"{len(values)} values where the first line names {len(names)} columns"
        return {**dict.fromkeys(names), MISSHAPEN: found}
    return {name: value or None for name, value in zip(names, values, strict=True)}

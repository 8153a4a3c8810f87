"""Read records from CSV and TSV files; the separator is the commonest one in the first line.

Between tabs, quotation marks are part of the values, as in the files of CC3M, whose captions may
begin with one.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import shortened
from vlcpctl.data.sources.columns import IMAGE_SUFFIXES, not_utf8
from vlcpctl.data.sources.json_lists import NumberedRecord
from vlcpctl.data.sources.limits import RECORD_LENGTH
from vlcpctl.data.sources.records import Record
from vlcpctl.files.inputs import open_text

SEPARATORS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "vertical bars"}
_LINE_END = re.compile(r"[\r\n]")
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
MISSHAPEN = "values that do not match the first line"


def separator_of(path: Path) -> str:
    """The character between columns, guessed from the first line. Raises BadInput if not UTF-8."""
    line = _first_line(path)
    return max(SEPARATORS, key=line.count)


def _first_line(path: Path) -> str:
    with open_text(path, newline="") as file:
        try:
            return file.readline(2**16)
        except UnicodeDecodeError as error:
            raise BadInput(f"{path} is {not_utf8(error)}") from error


def table_records(path: Path) -> Iterator[NumberedRecord]:
    """One record per row, with its number; empty values are None. Raises BadInput if malformed."""
    separator = separator_of(path)
    # A program that quotes values between tabs may quote all of them, those of the header too.
    is_quoted = separator != "\t" or _first_line(path).startswith('"')
    csv.field_size_limit(RECORD_LENGTH)  # the default, 131072, is less than some captions have
    with open_text(path, newline="") as file:
        lines = _Lines(file)
        rows = csv.reader(
            lines,
            delimiter=separator,
            strict=True,
            quoting=csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE,
        )
        number = last = 0  # the rows so far, and the line with the end of the last one
        try:
            names = next(rows, [])
            _check_header(path, names)
            last = rows.line_num
            for row in rows:
                first, last, lines.of_row = last + 1, rows.line_num, 0
                values = row if is_quoted else list(map(_without_marks, row))
                if last > first and (why := _further_rows(values, separator)):
                    found = f"lines {first} to {last}: {why}"
                    yield number, {**dict.fromkeys(names), MISSHAPEN: found}
                elif values:
                    yield number, _record(names, values, separator)
                number += bool(values)
        except csv.Error as error:
            why = f"{error}; a quotation mark of its row may lack its partner"
            raise BadInput(f"{path}, line {last + 1}: {why}") from error
        except UnicodeDecodeError as error:
            raise BadInput(f"{path} is {not_utf8(error)}") from error


def _without_marks(value: str) -> str:
    """A value between tabs; without marks if these are doubled within, so that it was quoted."""
    inner = value[1:-1]
    return inner.replace('""', '"') if '""' in inner and _QUOTED.fullmatch(value) else value


def _further_rows(values: list[str], separator: str) -> str | None:
    """Why a row of several lines may hold further rows in a value, or None.

    A quotation mark that lacks its partner pairs with that of a later row. What is between them
    has the names of images, unless no value of the table looks like one.
    """
    wide = [value for value in values if separator in value and _LINE_END.search(value)]
    inner = [cell for value in wide for cell in re.split(rf"[{separator}\r\n]", value)]
    if not wide or (_names_image(values) and not _names_image(inner)):
        return None
    return "a value in quotation marks has line breaks and separators, and may hold further rows"


def _names_image(values: list[str]) -> bool:
    return any(value.strip().lower().endswith(IMAGE_SUFFIXES) for value in values)


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

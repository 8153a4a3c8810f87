"""Read records from JSON Lines: one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from vlcpctl.core.errors import BadInput
from vlcpctl.core.input_files import open_regular
from vlcpctl.data.sources.csv_tables import MISSHAPEN
from vlcpctl.data.sources.json_formats import NumberedRecord
from vlcpctl.data.sources.limits import JSON_DEPTH, RECORD_LENGTH, is_too_deep
from vlcpctl.data.sources.records import Record

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def line_records(path: Path) -> Iterator[NumberedRecord]:
    """One record per line that is not blank, with its number, which starts at 0.

    A line that is not a JSON object gives a record with the reason under `MISSHAPEN`: the lines
    after it can still be read. Raises BadInput for a line longer than `RECORD_LENGTH` bytes.
    """
    with open_regular(path) as file:
        number = line_number = 0
        while line := file.readline(RECORD_LENGTH + 1):
            line_number += 1
            if len(line) > RECORD_LENGTH:
                raise BadInput(
                    f"{path}, line {line_number}: a line that does not end within "
                    f"{RECORD_LENGTH} bytes"
                )
            if line_number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if line.strip():
                yield number, _record(line.rstrip(), line_number)
                number += 1


def _record(line: bytes, number: int) -> Record:
    try:
        value = _value(line)
    except ValueError as error:
        return {MISSHAPEN: f"line {number}: {error}"}
    if not isinstance(value, dict):
        return {MISSHAPEN: f"line {number}: expected a record in braces"}
    return value


def _value(line: bytes) -> object:
    """The value of a line. Raises ValueError, whose message says what is wrong."""
    try:
        text = line.decode()  # json.loads would accept UTF-16 and UTF-32 as well
        value = json.loads(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8: {error}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"character {error.pos}: {error.msg}") from error
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    except ValueError as error:  # Python refuses integers of thousands of digits
        raise ValueError("an integer with too many digits") from error
    if text.count("[") + text.count("{") > JSON_DEPTH and is_too_deep(value):
        raise ValueError(_TOO_DEEP)
    return value


_TOO_DEEP = f"a value nested more than {JSON_DEPTH} levels deep"

"""Read records from JSON Lines: one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from vlcpctl.core.errors import BadInput
from vlcpctl.data.sources.columns import not_utf8
from vlcpctl.data.sources.csv_tables import MISSHAPEN
from vlcpctl.data.sources.json_lists import NO_RECORD, NumberedRecord
from vlcpctl.data.sources.limits import RECORD_LENGTH
from vlcpctl.data.sources.records import Record
from vlcpctl.files.inputs import open_regular

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
        value = json.loads(line.decode())  # of bytes, it would accept UTF-16 and UTF-32 as well
    except UnicodeDecodeError as error:
        return {MISSHAPEN: f"line {number}: it is {not_utf8(error)}"}
    except json.JSONDecodeError as error:
        return {MISSHAPEN: f"line {number}: character {error.pos}: {error.msg}"}
    except (ValueError, RecursionError) as error:  # digits by the thousand, brackets
        return {MISSHAPEN: f"line {number}: {error}"}
    return value if isinstance(value, dict) else {MISSHAPEN: f"line {number}: {NO_RECORD}"}

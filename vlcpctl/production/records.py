"""The JSON files of a state directory: written whole, sealed, and read without trust."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import vlcpctl
from vlcpctl.core.atomic import new_part
from vlcpctl.core.errors import BadInput
from vlcpctl.core.fields import Fields
from vlcpctl.core.safe_json import read_json_object
from vlcpctl.core.seals import SEAL, broken_seal, seal_of

STATE, WEEK, VERDICT = "vlcpctl.state/1", "vlcpctl.week/1", "vlcpctl.verdict/1"
_OF_RECORD = frozenset({"schema", SEAL, "made_by"})
_MOST_BYTES = 1 << 26  # 9999 weeks with a dozen verdicts each


def write_record(path: Path, schema: str, body: Mapping[str, Any]) -> None:
    """Write a record that replaces the old one at once. Who wrote it and when is not sealed."""
    record = {
        "schema": schema,
        **body,
        SEAL: seal_of(body),
        "made_by": {
            "version": vlcpctl.__version__,
            "argv": sys.argv,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    }
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    with new_part(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_record(path: Path, schema: str) -> Fields:
    """The fields of a record.

    Raises BadInput if it cannot be read, has another schema, or has changed since it was written.
    """
    found = read_json_object(path, most_bytes=_MOST_BYTES)
    if found.get("schema") != schema:
        raise BadInput(
            f"{path} has schema {found.get('schema')!r:.80}; this version reads {schema}"
        )
    broken = broken_seal(path, found)
    if broken is not None:
        raise BadInput(f"{broken}; restore it from a backup")
    return Fields(found, path)


def refuse_later(take: Fields, known: Iterable[str]) -> None:
    """Raise BadInput for a field that this version does not know, and would lose."""
    later = take.value.keys() - {*known, *_OF_RECORD}
    if later:
        raise BadInput(
            f"{take.place} was written by a later version of vlcpctl: it has the field "
            f"{min(later)!r:.80}, which {vlcpctl.__version__} does not know; use that version"
        )


def objects(take: Fields, name: str) -> list[Fields]:
    """The entries of a field that is a list of objects. Raises BadInput as `Fields` does."""
    found = take(name, list)
    return [Fields(Fields({"entry": one}, take.place)("entry", dict), take.place) for one in found]

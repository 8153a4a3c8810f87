"""Evaluation rows: one JSON object per line, the currency between evaluators and reports."""

from __future__ import annotations

import json
from typing import Any, TextIO

SCHEMA = "vlcpctl.eval/1"


def write_row(stream: TextIO, row: dict[str, Any]) -> None:
    """Write one row and flush, so that a reader downstream sees it at once."""
    stream.write(json.dumps({"schema": SCHEMA, **row}, ensure_ascii=False) + "\n")
    stream.flush()

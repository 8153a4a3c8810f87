"""W&B's files of offline runs, as far as tests need them: protobuf records in LevelDB's log."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

BLOCK, FILE_HEADER, HEADER = 2**15, 7, struct.Struct("<IHB")  # CRC, length, kind
FULL, LAST = 1, 4  # kinds that end a record


@dataclass
class OfflineRun:
    """What one process logged to a run: its history without W&B's own fields, and how it ended."""

    about: Any = None
    history: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    x_axes: dict[str, str] = field(default_factory=dict)  # by the pattern of metrics' names
    exit_code: int | None = None  # None: the process did not say

    @property
    def config(self) -> dict[str, Any]:
        return {one.key: json.loads(one.value_json) for one in self.about.config.update}


def offline_runs(directory: Path) -> list[OfflineRun]:
    """The runs in DIRECTORY/wandb, oldest first."""
    return [_run(path) for path in sorted(directory.glob("wandb/offline-run-*/*.wandb"))]


def _run(path: Path) -> OfflineRun:
    new_record = import_module("wandb.proto.wandb_internal_pb2").Record  # it has no types
    found = OfflineRun()
    for data in _records(path.read_bytes()):
        record = new_record()
        record.ParseFromString(data)
        if record.HasField("history"):
            items = {"/".join(one.nested_key) or one.key: one for one in record.history.item}
            values = {name: json.loads(one.value_json) for name, one in items.items()}
            own = {name: value for name, value in values.items() if not name.startswith("_")}
            found.history.append((record.history.step.num, own))
        elif record.HasField("run"):
            found.about = record.run
        elif record.HasField("metric") and record.metric.step_metric:
            found.x_axes[record.metric.glob_name] = record.metric.step_metric
        elif record.HasField("exit"):
            found.exit_code = record.exit.exit_code
    return found


def _records(data: bytes) -> Iterator[bytes]:
    place, record = FILE_HEADER, b""
    while place + HEADER.size <= len(data):
        if BLOCK - place % BLOCK < HEADER.size:  # too short for a header: filled with zeros
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = HEADER.unpack_from(data, place)
        if kind == 0:
            return
        place += HEADER.size
        record += data[place : place + length]
        place += length
        if kind in {FULL, LAST}:
            yield record
            record = b""

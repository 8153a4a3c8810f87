"""progress.json in the state of an unfinished train-step: what `watch` needs beside metrics.jsonl.

Rows of metrics.jsonl have no times and do not say how many steps will come: this file does. It is
removed with the state when the run is finished. Torch-free.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vlcpctl.core.atomic import new_part
from vlcpctl.core.errors import BadInput, VlcpError
from vlcpctl.core.safe_json import read_json_object
from vlcpctl.core.structs import converted

FILE_NAME = "progress.json"
SCHEMA = "vlcpctl.progress/1"


@dataclass(frozen=True)
class PhaseSteps:
    """A phase as rows of metrics.jsonl name it: its steps are `offset`, ..., offset + steps - 1."""

    name: str
    offset: int
    steps: int


@dataclass(frozen=True)
class Ended:
    """The exit code and the message of an error."""

    code: int
    message: str


@dataclass(frozen=True, kw_only=True)
class ProgressFile:
    """What a process that trains will do, where it started, and how it ended, if it failed.

    `first` is the number of steps, of all phases, that earlier processes did; `started` is the
    time in seconds since 1970.
    """

    run: str
    method: str
    tasks: tuple[str, ...]
    batch_size: int
    epoch_steps: int
    phases: tuple[PhaseSteps, ...]
    first: int
    started: float
    pid: int
    host: str
    ended: Ended | None = None

    @property
    def total(self) -> int:
        """The steps of all phases."""
        return sum(phase.steps for phase in self.phases)

    @classmethod
    def of_this_process(cls, phases: Sequence[PhaseSteps], **facts: Any) -> ProgressFile:
        """The file of a process that starts to train now."""
        started, pid, host = time.time(), os.getpid(), socket.gethostname()
        return cls(phases=tuple(phases), started=started, pid=pid, host=host, **facts)

    @classmethod
    def read(cls, path: Path) -> ProgressFile:
        """The file at a path. Raises BadInput if it is missing or not one."""
        found = read_json_object(path)
        if found.get("schema") != SCHEMA:
            raise BadInput(f"{path} has schema {found.get('schema')!r:.80}, not {SCHEMA!r}")
        return converted(found, cls, path)

    def write(self, directory: Path) -> None:
        """Write the file; errors of the operating system are ignored: only `watch` lacks it."""
        body = {"schema": SCHEMA, **asdict(self)}
        with suppress(OSError), new_part(directory / FILE_NAME) as temporary:
            temporary.write_text(json.dumps(body, indent=1))

    @contextmanager
    def kept_in(self, directory: Path) -> Iterator[None]:
        """Within the block, the file is in the directory; an error that ends it is recorded."""
        self.write(directory)
        try:
            yield
        except VlcpError as error:
            replace(self, ended=Ended(error.exit_code, str(error))).write(directory)
            raise

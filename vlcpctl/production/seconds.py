"""seconds.json: how long each command of a week took, over all calls of `update`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from vlcpctl.files.inputs import converted
from vlcpctl.jobs.script import CommandLine
from vlcpctl.production.layout import SECONDS_FILE
from vlcpctl.production.lines import RunLines
from vlcpctl.production.records import SECONDS, sealed_record, write_record


def timed(run: RunLines, week: Path) -> RunLines:
    """Runs lines one by one, and adds the seconds of each command to those of the week."""

    def run_each(lines: Sequence[CommandLine]) -> tuple[CommandLine, int] | None:
        for line in lines:
            began, name = time.monotonic(), line.words[0]
            failed = run([line])
            seconds = read_seconds(week)
            seconds[name] = round(seconds.get(name, 0.0) + time.monotonic() - began, 1)
            write_record(week / SECONDS_FILE, SECONDS, {"seconds": seconds})
            if failed is not None:
                return failed
        return None

    return run_each


def read_seconds(week: Path) -> dict[str, float]:
    """The seconds of each command. Raises BadInput if the file cannot be read."""
    path = week / SECONDS_FILE
    if not path.exists():
        return {}
    return converted(sealed_record(path, SECONDS).get("seconds"), dict[str, float], path)

"""`vlcpctl inspect`: show what an artifact is and what it was made from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vlcpctl.commands import options

ArtifactPath = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="Stream, task, buffer, checkpoint, targets or pseudo texts."
    ),
]


def run(path: ArtifactPath, json: options.Json = False, quiet: options.Quiet = False) -> None:
    """Show what an artifact is, and follow its parents back to the raw data.

    Parents are found by their content id in the surrounding directories. For a stream, its tasks
    are listed.

    Examples:
      vlcpctl inspect stream
      vlcpctl inspect --json runs/ctp/task-2 | jq .parents
    """
    options.start(quiet=quiet)
    from json import dumps

    from vlcpctl.core.console import emit
    from vlcpctl.inspection.lineage import describe, lines

    facts = describe(path)
    if json:
        emit(dumps(facts, ensure_ascii=False))
        return
    for line in lines(facts):
        emit(line)

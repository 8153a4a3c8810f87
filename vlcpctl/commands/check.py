"""`vlcpctl check`: find out whether artifacts are whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vlcpctl.commands import options

Paths = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...", help="Streams, tasks, buffers, checkpoints, targets, pseudo texts."
    ),
]
Deep = Annotated[bool, typer.Option("--deep", help="Read and hash every byte.")]


def run(
    paths: Paths, deep: Deep = False, json: options.Json = False, quiet: options.Quiet = False
) -> None:
    """Look for damage; print one problem per line and exit 3 when there is any.

    Without --deep: manifests, index and tar headers against each other, and the end of every tar.
    With it: every image and caption against the index, every id against its parts.

    Examples:
      vlcpctl check stream

      vlcpctl check --deep stream/02-animals-nature runs/ctp/task-2
    """
    options.start(quiet=quiet)
    from json import dumps

    from vlcpctl.core.console import emit, say
    from vlcpctl.core.errors import BadInput
    from vlcpctl.data.checking_artifacts import check

    count = 0
    for path in paths:
        for problem in check(path, deep=deep):
            emit(dumps({"path": str(path), "problem": problem}) if json else problem)
            count += 1
    if count:
        raise BadInput(
            f"{count} problem{'s' if count > 1 else ''} found in {', '.join(map(str, paths))}"
        )
    say("no problem found")

"""`vlcpctl check`: verify artifacts against their manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vlcpctl.commands import options

Paths = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH", help="Stream, task, buffer, checkpoint, targets or pseudo texts."
    ),
]
Deep = Annotated[bool, typer.Option("--deep", help="Read and hash every byte, not only headers.")]


def run(
    paths: Paths, deep: Deep = False, json: options.Json = False, quiet: options.Quiet = False
) -> None:
    """Verify artifacts against their manifests: print one problem per line, exit 3 if there is any.

    Without --deep, manifests, index and tar headers are compared with each other, and the end of
    every tar is checked. With --deep, every image and caption is compared with the index, and
    every content id with the parts it was computed from.

    Examples:
      vlcpctl check stream
      vlcpctl check --deep stream/02-animals-nature runs/ctp/task-2
    """
    options.start(quiet=quiet)
    from json import dumps

    from vlcpctl.core.console import emit, say
    from vlcpctl.core.errors import BadInput
    from vlcpctl.inspection.check import check

    count = 0
    for path in paths:
        for problem in check(path, deep=deep):
            emit(dumps({"path": str(path), "problem": problem}) if json else problem)
            count += 1
    if count:
        raise BadInput(
            f"{count} problem{'s' if count > 1 else ''} found in {', '.join(map(str, paths))}"
        )
    say("no problems found")

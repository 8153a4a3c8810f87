"""`vlcpctl interpolate`: average the weights of two checkpoints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from vlcpctl.commands import options
from vlcpctl.core.console import emit, say
from vlcpctl.core.errors import UsageError
from vlcpctl.core.words import parse_number
from vlcpctl.files.rows import share_text

First = Annotated[
    Path, typer.Argument(metavar="FIRST", help="Checkpoint at alpha 0, usually the earlier one.")
]
Second = Annotated[
    Path, typer.Argument(metavar="SECOND", help="Checkpoint at alpha 1, usually the later one.")
]
Alpha = Annotated[
    str,
    typer.Option(
        "--alpha",
        metavar="SHARE[,SHARE...]",
        help="Weight of SECOND in the average, from 0 to 1, or several: 0,0.5,1.",
    ),
]
RunName = Annotated[
    str,
    typer.Option(
        "--run", parser=options.run_name, metavar="NAME", help="Name of the run in the rows."
    ),
]


def run(
    first: First,
    second: Second,
    out: options.Out,
    alpha: Alpha = "0.5",
    run_name: RunName = "interpolate",
    threads: options.Threads = options.DEFAULT_THREADS,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Average the weights of two checkpoints of the same model, as WiSE-FT does.

    The result is (1 - alpha) FIRST + alpha SECOND, a checkpoint that has seen the tasks of both and
    can be trained further. A single alpha is written to --out; several are written to
    --out/alpha-SHARE. The state of methods is copied from SECOND.

    Rows of eval-retrieval include alpha, and forgetting-report shows each alpha as a separate run.

    Examples:
      vlcpctl interpolate run/00 run/01 --alpha 0.5 -o averaged/01
      vlcpctl interpolate run/00 run/01 --alpha 0,0.25,0.5,0.75,1 -o sweep
    """
    options.start(quiet=quiet, threads=threads)
    from vlcpctl.checkpoints.manifest import CheckpointManifest

    for path in (first, second):
        CheckpointManifest.read(path)
    outputs = outputs_of(parse_alphas(alpha), out)
    if dry_run:
        for share, place in outputs:
            say(f"interpolate: {1 - share:g} {first} + {share_text(share)} {second}")
            emit(place)
        return
    from vlcpctl.checkpoints import merging
    from vlcpctl.checkpoints.merge_rules import Interpolate

    rules = ((Interpolate(alpha=share), place) for share, place in outputs)
    request = merging.MergeRequest(
        models=(first, second),
        outputs=tuple(merging.MergeOutput(rule, run_name, place) for rule, place in rules),
        force=force,
    )
    for place in merging.merge(request):
        emit(json.dumps(merging.result(place), ensure_ascii=False) if as_json else place)


def parse_alphas(text: str) -> tuple[float, ...]:
    """The shares of the second checkpoint, each in [0, 1].

    Raises UsageError if one is not a number in [0, 1], or is given twice.

    >>> parse_alphas("0,0.5")
    (0.0, 0.5)
    """
    try:
        alphas = tuple(parse_number(part) for part in text.split(","))
    except ValueError:
        alphas = ()
    if not alphas or not all(0 <= alpha <= 1 for alpha in alphas):
        raise UsageError(
            f"--alpha {text!r} is not a number from 0 to 1, or several separated by commas"
        )
    if len(set(alphas)) < len(alphas):
        raise UsageError(f"--alpha {text!r} contains a share twice")
    return alphas


def outputs_of(alphas: Sequence[float], out: Path) -> tuple[tuple[float, Path], ...]:
    """Each alpha with its output: `out` itself for one, `out`/alpha-SHARE for several."""
    if len(alphas) == 1:
        return ((alphas[0], out),)
    return tuple((alpha, out / f"alpha-{share_text(alpha)}") for alpha in alphas)

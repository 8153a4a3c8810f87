"""`vlcpctl spatial-report`: report how embedding angles drift between checkpoints (Mod-X)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcpctl.commands import options
from vlcpctl.commands.row_files import STDOUT, RowOutput, evaluate_rows
from vlcpctl.core import console
from vlcpctl.tracking.destinations import destinations

if TYPE_CHECKING:
    from vlcpctl.evaluation.driver import Evaluator
    from vlcpctl.evaluation.jobs import Compute
    from vlcpctl.evaluation.spatial.plan import SpatialPlan

Checkpoints = Annotated[
    list[Path],
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="Checkpoint to compare, of one run or several; give at least two.",
        rich_help_panel=options.INPUT,
    ),
]
Between = Annotated[
    str,
    typer.Option(
        "--between",
        metavar="NAME",
        help="Checkpoints to compare: neighbours (each step with the next, and first with last) "
        "or all.",
        rich_help_panel=options.METHOD,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="File to write rows to; - writes them to stdout instead of tables (default: none).",
        rich_help_panel=options.OUTPUT,
    ),
]


def run(
    tasks: options.Tasks,
    checkpoint: Checkpoints,
    between: Between = "neighbours",
    split: options.Split = "test",
    batch_size: options.BatchSize = 256,
    out: Out = None,
    device: options.Device = "auto",
    workers: options.Workers = None,
    nproc: options.Nproc = None,
    threads: options.Threads = options.DEFAULT_THREADS,
    log: options.Log = None,
    embedding_cache: options.EmbeddingCache = None,
    limit: options.Limit = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    r"""Report how embedding angles drift between checkpoints, within and across modalities (Mod-X).

    Prints tables in the bins of Mod-X's paper, for images and for texts. SAM: the change in the
    angle between two samples, over all pairs of samples. RAM: the angle by which a sample rotated.
    ImAV: the change in the angle between an image and its text, over the pairs that the earlier
    checkpoint ranks first. All are in degrees. Images or texts with identical content are one
    sample. The time for SAM grows with the square of the number of samples; see --limit.

    With several runs, the checkpoints of each run are compared by step; two checkpoints of two
    runs are compared in the order given. Each alpha of interpolate counts as a separate run. Pass
    the rows to forgetting-report for charts of the angles.

    Examples:
      vlcpctl spatial-report stream/00-* --checkpoint run/00 --checkpoint run/01 \
          --checkpoint run/02
      vlcpctl spatial-report stream/00-* --split train --checkpoint run/00 \
          --checkpoint run/01 -o - | vlcpctl forgetting-report - -o report
    """
    options.start(quiet=quiet, threads=threads)
    output = RowOutput(
        command="spatial-report",
        out=out,
        force=force,
        dry_run=dry_run,
        as_json=json_,
        log=destinations(log),
    )
    from vlcpctl.data.tasks.task import open_task
    from vlcpctl.distributed.ranks import processes
    from vlcpctl.evaluation.jobs import Compute
    from vlcpctl.evaluation.spatial.plan import SpatialRequest, make_plan

    request = SpatialRequest(
        tasks=tuple(open_task(path) for path in dict.fromkeys(tasks)),
        checkpoints=tuple(dict.fromkeys(checkpoint)),
        between=between,
        split=split,
        limit=limit,
    )
    compute = Compute(
        device=device,
        batch_size=batch_size,
        workers=workers,
        nproc=processes(nproc),
        embedding_cache=embedding_cache,
    )
    rows = evaluate_rows(output, make_plan(request), _evaluator, compute)
    if rows is None:
        return
    if json_:
        found = {"rows": rows} if out is None else {"path": str(out), "rows": len(rows)}
        console.emit(json.dumps(found, ensure_ascii=False))
    elif out != STDOUT:
        _show(rows, out, quiet=quiet)


def _evaluator(plan: SpatialPlan, compute: Compute) -> Evaluator:
    from vlcpctl.evaluation.spatial.run import SpatialEvaluator

    return SpatialEvaluator(plan, compute)


def _show(rows: list[dict[str, Any]], out: Path | None, *, quiet: bool) -> None:
    """Print the tables unless `quiet`, then the path of the file, if there is one."""
    from vlcpctl.core.rows import row_of
    from vlcpctl.report.render.terminal import print_report
    from vlcpctl.report.tables.angles import collect_spatial_tracks

    if not quiet or out is None:
        spaces = collect_spatial_tracks(
            row_of(row, f"row {number}") for number, row in enumerate(rows, 1)
        )
        print_report((), [(space.title, space.tables()) for space in spaces])
    if out is not None:
        console.emit(out)

"""`vlcpctl spatial-report`: what turned in the space of a model between two checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcpctl.commands import options
from vlcpctl.commands.row_files import STDOUT, has_rows, refuse_json_of_rows, rows_to
from vlcpctl.core import console

if TYPE_CHECKING:
    from vlcpctl.engine.evaluation_plan import Means
    from vlcpctl.engine.spatial_plan import Request, SpatialPlan

Tasks = Annotated[list[Path], typer.Argument(help="Task directories.")]
Checkpoints = Annotated[
    list[Path], typer.Option("--checkpoint", help="Give two at least, of one run or several.")
]
Between = Annotated[
    str,
    typer.Option(
        "--between", help="neighbours (each step and the next, the first and the last) or all."
    ),
]
SplitName = Annotated[str, typer.Option("--split", help="The part of each task to measure on.")]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Items encoded at once.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", help="File of rows; - writes them to stdout and no tables. [default: none]"
    ),
]


def run(
    tasks: Tasks,
    checkpoint: Checkpoints,
    between: Between = "neighbours",
    split: SplitName = "test",
    batch_size: BatchSize = 256,
    out: Out = None,
    device: options.Device = "auto",
    workers: options.Workers = 0,
    threads: options.Threads = options.DEFAULT_THREADS,
    limit: options.Limit = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show how angles turned between checkpoints, within modalities and across.

    Tables in the bins of Mod-X's paper, for images and texts. SAM: by how many degrees the angle
    between two samples changed, of every two. RAM: by how many degrees a sample turned. ImAV: by
    how many degrees the angle between an image and its text changed, of the pairs that the earlier
    checkpoint ranks first. Images or texts of identical content are one sample. The time of SAM
    grows with the square of the samples; --limit takes the first ones.

    Of several runs, the checkpoints of each are compared by step; two checkpoints of two runs, in
    the order given. Each alpha of interpolate is a run of its own. The rows go to
    forgetting-report, which draws how the angles spread.

    vlcpctl spatial-report stream/00-* --checkpoint run/00 --checkpoint run/01 --checkpoint run/02

    vlcpctl spatial-report stream/00-* --split train --checkpoint run/00 --checkpoint run/01 -o - |
    vlcpctl forgetting-report - -o report
    """
    options.start(quiet=quiet, threads=threads)
    refuse_json_of_rows(out, as_json=json_)
    from vlcpctl.data.task import open_task
    from vlcpctl.engine.evaluation_plan import Means
    from vlcpctl.engine.spatial_plan import Request, make_plan

    request = Request(
        tasks=tuple(open_task(path) for path in dict.fromkeys(tasks)),
        checkpoints=tuple(dict.fromkeys(checkpoint)),
        between=between,
        split=split,
        limit=limit,
    )
    plan = make_plan(request)
    if dry_run:
        console.say("\n".join(plan.lines()))
        return
    means = Means(backend="auto", device=device, batch_size=batch_size, workers=workers)
    if out is not None and has_rows(out, plan.cells(), force=force):
        console.say(f"spatial-report: {out} is there already")
        rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    else:
        rows = _measured(request, plan, means, out)
    if json_:
        found = {"rows": rows} if out is None else {"path": str(out), "rows": len(rows)}
        console.emit(json.dumps(found, ensure_ascii=False))
    elif out != STDOUT:
        _show(rows, out, quiet=quiet)


def _measured(
    request: Request, plan: SpatialPlan, means: Means, out: Path | None
) -> list[dict[str, Any]]:
    """The rows, each written where rows are wanted as soon as it is known."""
    from vlcpctl.core.rows import write_row
    from vlcpctl.engine.spatial import compare

    if out is None:
        return list(compare(request, plan, means))
    rows = []
    with rows_to(out) as stream:
        for row in compare(request, plan, means):
            write_row(stream, row)
            rows.append(row)
    return rows


def _show(rows: list[dict[str, Any]], out: Path | None, *, quiet: bool) -> None:
    """The tables, unless it is to be quiet; then the file, if there is one."""
    from vlcpctl.core.rows import row_of
    from vlcpctl.report.spaces import collect_spaces
    from vlcpctl.report.terminal import print_report

    if not quiet or out is None:
        spaces = collect_spaces(row_of(row, f"row {number}") for number, row in enumerate(rows, 1))
        print_report((), [(space.title, space.tables()) for space in spaces])
    if out is not None:
        console.emit(out)

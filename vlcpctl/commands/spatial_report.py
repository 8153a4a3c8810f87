"""`vlcpctl spatial-report`: report how embedding angles drift between checkpoints (Mod-X)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vlcpctl.commands import options
from vlcpctl.commands.evaluation import Rows, evaluation

if TYPE_CHECKING:
    from vlcpctl.evaluation.evaluator import Evaluator

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


def _show(rows: Rows) -> None:
    """Print the tables of spatial disorder."""
    from vlcpctl.files.rows import row_of
    from vlcpctl.report.angles import collect_spatial_tracks
    from vlcpctl.report.formats import print_report

    spaces = collect_spatial_tracks(
        row_of(row, f"row {number}") for number, row in enumerate(rows, 1)
    )
    print_report((), [(space.title, space.tables()) for space in spaces])


@evaluation("spatial-report", show=_show)
def run(
    tasks: options.Tasks,
    checkpoint: Checkpoints,
    between: Between = "neighbours",
    split: options.Split = "test",
    limit: options.Limit = None,
) -> Evaluator:
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
    from vlcpctl.data.tasks.task import open_task
    from vlcpctl.evaluation.spatial.evaluator import Spatial

    return Spatial(
        tasks=tuple(open_task(path) for path in dict.fromkeys(tasks)),
        checkpoints=tuple(dict.fromkeys(checkpoint)),
        between=between,
        split=split,
        limit=limit,
    )

"""`vlcpctl spatial-report`: report how embedding angles drift between checkpoints (Mod-X)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vlcpctl.commands.evaluation import Evaluate, Rows
from vlcpctl.commands.shared import Shared, Stored
from vlcpctl.core.options import INPUT, METHOD, MaybePath, Paths, argument, like, option, required

if TYPE_CHECKING:
    from vlcpctl.evaluation.evaluator import Evaluator


class SpatialReport(Evaluate, Stored):
    r"""Report how embedding angles drift between checkpoints, within and across modalities (Mod-X).

    Prints tables in the bins of Mod-X's paper, for images and for texts. SAM: the change in the
    angle between two samples, over all pairs of samples. RAM: the angle by which a sample rotated.
    ImAV: the change in the angle between an image and its text, over the pairs that the earlier
    checkpoint ranks first. All are in degrees. Images or texts with identical content are one
    sample. The time for SAM grows with the square of the number of samples; see --limit.

    With several runs, the checkpoints of each run are compared by step; two checkpoints of two
    runs are compared in the order given. Pass the rows to forgetting-report for charts of the
    angles.

    Examples:
      vlcpctl spatial-report stream/00-* --checkpoint run/00 --checkpoint run/01 \
          --checkpoint run/02
      vlcpctl spatial-report stream/00-* --split train --checkpoint run/00 \
          --checkpoint run/01 -o - | vlcpctl forgetting-report - -o report
    """

    command = "spatial-report"
    shows = True

    tasks: Paths = argument("TASK", "Task directories", kw_only=False, stored=True)
    checkpoint: Paths = required(
        "Checkpoint to compare, of one run or several; give at least two", "DIR", INPUT
    )
    between: str = option(
        "Checkpoints to compare: neighbours (each step with the next, and first with last) or all",
        "NAME",
        METHOD,
        default="neighbours",
        choices=("neighbours", "all"),
        usual=True,
    )
    split: str = like(Shared, "split", default="test", usual=True)
    out: MaybePath = option(
        "File to write rows to; - writes them to stdout instead of tables",
        "FILE",
        short="-o",
        usual=True,
        writes=True,
    )

    def evaluator(self) -> Evaluator:
        from vlcpctl.data.tasks.task import open_task
        from vlcpctl.evaluation.spatial import Spatial

        return self.made(
            Spatial,
            tasks=tuple(open_task(path) for path in dict.fromkeys(self.tasks)),
            checkpoints=tuple(dict.fromkeys(self.checkpoint)),
        )

    def show(self, rows: Rows) -> None:
        """Print the tables of spatial disorder."""
        from vlcpctl.files.rows import row_of
        from vlcpctl.report.angles import collect_spatial_tracks
        from vlcpctl.report.formats import print_report

        spaces = collect_spatial_tracks(
            row_of(row, f"row {number}") for number, row in enumerate(rows, 1)
        )
        print_report((), [(space.title, space.tables()) for space in spaces])

"""What commands that evaluate share: rows to stdout, or to a file that appears when complete."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from vlcpctl.core import console
from vlcpctl.core.errors import OutputExists, UsageError

if TYPE_CHECKING:
    from vlcpctl.evaluation.driver import Evaluator
    from vlcpctl.evaluation.jobs import Compute, Plan
    from vlcpctl.evaluation.planned_rows import PlannedRow
    from vlcpctl.evaluation.rank_files import RankFile
    from vlcpctl.evaluation.session import Note
    from vlcpctl.tracking.destinations import Destination

    P = TypeVar("P", bound=Plan)

STDOUT = Path("-")


@dataclass(frozen=True, kw_only=True)
class RowOutput:
    """The options of a command about its rows; `out` None means that they are only returned.

    With `has_table`, rows for a terminal are shown as a table, unless --json is given. Without,
    raises UsageError for --json with rows on stdout, which are JSON already.
    """

    command: str
    out: Path | None
    force: bool
    dry_run: bool
    as_json: bool
    log: Sequence[Destination] = ()
    has_table: bool = False

    def __post_init__(self) -> None:
        if self.as_json and self.out == STDOUT and not self.has_table:
            raise UsageError(
                "--json has no effect with -o -: rows are JSON; write them to a file with -o FILE"
            )

    @property
    def is_shown(self) -> bool:
        """Whether rows are shown as a table: stdout is a terminal, and no JSON was asked for."""
        on_stdout = self.has_table and self.out == STDOUT and not self.as_json
        return on_stdout and console.results().isatty()


def evaluate_to(
    output: RowOutput,
    plan: P,
    evaluator: Callable[[P, Compute], Evaluator],
    compute: Compute,
    notes: AbstractContextManager[Note] | None = None,
    *,
    has_more: bool = False,
) -> None:
    """Carry out a plan as `evaluate_rows` does, and print the path of the rows.

    Rows for a terminal are printed as one table at the end, however it comes.
    """
    rows = evaluate_rows(output, plan, evaluator, compute, notes, has_more=has_more)
    if rows is not None and output.out != STDOUT:
        found = {"path": str(output.out), "rows": len(rows)}
        console.emit(json.dumps(found) if output.as_json else output.out)


def evaluate_rows(
    output: RowOutput,
    plan: P,
    evaluator: Callable[[P, Compute], Evaluator],
    compute: Compute,
    notes: AbstractContextManager[Note] | None = None,
    *,
    has_more: bool = False,
) -> list[dict[str, Any]] | None:
    """The rows of a plan, each written as soon as it is measured; None for a dry run.

    Rows that `out` already holds are read, unless the plan `has_more` to make than rows. `notes`
    is open while rows are measured, and takes their timings. `evaluator` is called only if there
    is work to do, so that a plan and a refusal do not import torch.
    """
    if output.dry_run:
        console.say(str(compute))
        for line in plan.lines():
            console.say(line)
        return None
    from vlcpctl.core.rows import write_row
    from vlcpctl.core.safe_json import parse_json
    from vlcpctl.evaluation.jobs import planned_rows

    out = output.out
    if out is not None and has_rows(out, planned_rows(plan), force=output.force) and not has_more:
        console.say(f"{output.command}: {out} is already finished")
        return [parse_json(line) for line in out.read_text(encoding="utf-8").splitlines()]
    from vlcpctl.evaluation.driver import evaluate

    rows: list[dict[str, Any]] = []
    from vlcpctl.tracking.row_log import RowLog

    with (
        RowLog.opened(output.log) as row_log,
        _shown_at_end(rows) if output.is_shown else nullcontext(),
        rows_to(None if output.is_shown else out) as stream,
        notes or nullcontext(_ignore) as note,
        _with_means(compute) as compute_,
    ):
        for row in evaluate(plan, evaluator(plan, compute_), compute_, note):
            if stream is not None:
                write_row(stream, row)
            rows.append(row)
            row_log.log(row)
    return rows


@contextmanager
def _shown_at_end(rows: list[dict[str, Any]]) -> Iterator[None]:
    """Show the rows that were measured within the block, also if an error or a signal ends it."""
    from vlcpctl.core.ending import at_signal
    from vlcpctl.report.render.terminal import print_report
    from vlcpctl.report.tables.measured import measured_table

    def show() -> None:
        if rows:
            print_report((), [("", [measured_table(rows)])])

    with at_signal(show):
        try:
            yield
        finally:
            show()


@contextmanager
def _with_means(compute: Compute) -> Iterator[Compute]:
    """Within the block, the processes of --nproc run; yields `compute` with them and its cache."""
    from vlcpctl.distributed.pool import pool_of
    from vlcpctl.evaluation.embedding_cache import EmbeddingCache
    from vlcpctl.models.imports import preload

    directory = compute.embedding_cache
    cache = None if directory is None else EmbeddingCache(directory)
    with pool_of(compute.nproc, compute.device, preload) as pool:
        yield replace(compute, pool=pool, cache=cache)


@contextmanager
def with_ranks(
    ranks: RankFile | None, notes: AbstractContextManager[Note] | None = None
) -> Iterator[Note]:
    """Within the block, the file of ranks (if any) is open; yields what `notes` yields."""
    with notes or nullcontext(_ignore) as note, ranks.opened() if ranks else nullcontext():
        yield note


def _ignore(timing: dict[str, Any]) -> None:
    pass


@contextmanager
def rows_to(out: Path | None) -> Iterator[TextIO | None]:
    """A stream for rows; a file of rows at `out` is replaced when the new one is complete.

    Raises OutputExists for any other file. A pipe or a device is written to directly.
    """
    if out is None or out == STDOUT:
        yield console.results() if out else None
        return
    from vlcpctl.core.atomic import new_file
    from vlcpctl.core.rows import is_row_file

    with new_file(out, is_row_file) as temporary, temporary.open("w", encoding="utf-8") as stream:
        yield stream


def has_rows(out: Path, rows: Sequence[PlannedRow], *, force: bool) -> bool:
    """Whether the file already holds these rows.

    Raises OutputExists if it contains other rows, or anything but rows (that with `force`, too).
    """
    from vlcpctl.core.atomic import is_pipe_or_device, refuse_foreign_file, refuse_link
    from vlcpctl.core.rows import is_row_file

    if out == STDOUT or is_pipe_or_device(out):
        return False
    refuse_foreign_file(out, is_row_file)
    if force or not out.exists():
        refuse_link(out)
        return False
    from vlcpctl.evaluation.planned_rows import holds

    if not holds(out, rows):
        raise OutputExists(
            f"{out} already exists and contains other rows; "
            "choose another --out, or --force to replace it"
        )
    return True

"""What the commands that evaluate share: their options, and the way from an evaluator to rows.

Rows go to stdout, or to a file that appears when it is complete.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TextIO, TypeVar

from vlcpctl.commands.paths import STDOUT
from vlcpctl.commands.shared import Quiet, Result, Shared
from vlcpctl.core import console
from vlcpctl.core.errors import OutputExists, UsageError
from vlcpctl.core.options import (
    EXECUTION,
    Auto,
    MaybePath,
    PathTexts,
    like,
    option,
    printing,
    switch,
)
from vlcpctl.tracking.trackers import destinations

if TYPE_CHECKING:
    from vlcpctl.evaluation.evaluator import Evaluator, Note, Session
    from vlcpctl.evaluation.rows import Row

Rows = list[dict[str, Any]]
_TIMINGS = "vlcpctl.timings/1"
Kind = TypeVar("Kind", bound="Evaluator")


class Evaluate(Quiet):
    """A command that evaluates checkpoints, and writes rows."""

    command: ClassVar[str]
    shows: ClassVar[bool] = False  # tables, unless --quiet is given: a file of rows is not needed

    batch_size: int = option(
        "Images or texts to encode at once", "N", EXECUTION, default=256, within="[1, inf)"
    )
    out: MaybePath = option(
        "File to write rows to; - is stdout, where a terminal shows a table",
        "FILE",
        default=STDOUT,
        short="-o",
        usual=True,
        writes=True,
    )
    device: str = like(Shared, "device", default="auto", usual=True)
    precision: str = option(
        "Floating-point precision in which models are run: fp32 or bf16",
        "NAME",
        EXECUTION,
        default="fp32",
        choices=("fp32", "bf16"),
    )
    tf32: bool = switch(
        "Let the GPU round the inputs of products in fp32 to TF32, which is faster", EXECUTION
    )
    workers: Auto = like(Shared, "workers", default=None)
    nproc: int | None = like(Shared, "nproc", default=None)
    threads: int = like(Shared, "threads", default=1)
    log: PathTexts = like(Shared, "log", default=())
    embedding_cache: MaybePath = option(
        "Directory to read embeddings from, and to store those that it lacks, for evaluations of "
        "the same checkpoint, data and --batch-size on the same kind of machine",
        "DIR",
        EXECUTION,
    )
    limit: int | None = like(Shared, "limit", default=None)
    force: bool = like(Result, "force", default=False)
    wait: float | None = like(Shared, "wait", default=None)
    dry_run: bool = printing("Check the inputs, print the plan and write nothing", usual=True)
    json: bool = printing(
        "Print JSON lines on a terminal, too; with -o FILE, its path and the number of rows as one "
        "JSON object"
    )

    def evaluator(self) -> Evaluator:
        """What is evaluated, and how."""
        raise NotImplementedError

    def made(self, kind: type[Kind], **others: Any) -> Kind:
        """An evaluator of a kind: its fields are the options of the same name, and `others`."""
        from vlcpctl.distributed.ranks import processes

        others["nproc"] = processes(self.nproc)
        names = {one.name for one in fields(kind) if one.init} - others.keys()
        given = {name: getattr(self, name) for name in names if hasattr(self, name)}
        return kind(**given, **others)

    def show(self, rows: Rows) -> None:
        """Print tables of rows, in place of the one of other commands; of rows in a file, too."""

    def execute(self) -> None:
        """Print the plan for --dry-run, and else make the rows and print where they are.

        Rows that --out has already are not measured again, if there is nothing else to make.
        """
        from vlcpctl.evaluation.evaluator import plan_lines, shards_before_rows
        from vlcpctl.files.parts import drop_parts

        if self.json and self.out == STDOUT and self.shows:
            raise UsageError(
                "--json has no effect with -o -: rows are JSON; write them to a file with -o FILE"
            )
        log = destinations(self.log)  # refused before anything is read
        evaluator, out = self.evaluator(), self.out
        sessions = evaluator.plan()
        if self.dry_run:
            for line in plan_lines(evaluator, sessions):
                console.say(line)
            return
        planned = [row for session in sessions for row in session.rows]
        has = out is not None and has_rows(out, planned, force=self.force)
        has_more = evaluator.ranks is not None or any(one.embeddings for one in sessions)
        if out is not None and has and not has_more:
            rows = self._read()
            drop_parts(out)
        elif shards_before_rows(evaluator, sessions):
            rows = self._rows(evaluator, sessions, log)
        else:
            return
        self._print_result(rows)

    def _read(self) -> Rows:
        """The rows in --out."""
        from vlcpctl.files.inputs import parse_json

        assert self.out is not None
        console.say(f"{self.command}: {self.out} is already finished")
        return [parse_json(line) for line in self.out.read_text(encoding="utf-8").splitlines()]

    def _rows(self, evaluator: Evaluator, sessions: Sequence[Session], log: Sequence[str]) -> Rows:
        """The rows, each written as soon as it is measured, or shown at the end."""
        from vlcpctl.evaluation.evaluator import evaluate
        from vlcpctl.files.rows import write_row
        from vlcpctl.tracking.row_log import RowLog

        on_terminal = self.out == STDOUT and console.results().isatty()
        is_table = on_terminal and not self.shows and not self.json
        rows: Rows = []
        with (
            RowLog.opened(log) as row_log,
            _shown_at_end(rows) if is_table else nullcontext(),
            rows_to(None if is_table else self.out) as stream,
            _timings_to(evaluator.timings, self.command) as evaluator.note,
            evaluator.ranks.opened() if evaluator.ranks else nullcontext(),
            evaluator.started(),
        ):
            for row in evaluate(evaluator, sessions):
                if stream is not None:
                    write_row(stream, row)
                rows.append(row)
                row_log.log(row)
        return rows

    def _print_result(self, rows: Rows) -> None:
        """Print the path of the file of rows; without a file, and before it by `show`, the rows."""
        out = self.out
        if out == STDOUT:
            return
        if self.json:
            found = {"rows": rows} if out is None else {"path": str(out), "rows": len(rows)}
            console.emit(json.dumps(found, ensure_ascii=not self.shows))
            return
        if self.shows and (out is None or not self.quiet):
            self.show(rows)
        if out is not None:
            console.emit(out)


@contextmanager
def _shown_at_end(rows: Rows) -> Iterator[None]:
    """Show the rows that were measured within the block, also if an error or a signal ends it."""
    from vlcpctl.core.ending import at_signal
    from vlcpctl.report.formats import print_report
    from vlcpctl.report.tables import measured_table

    def show() -> None:
        if rows:
            print_report((), [("", [measured_table(rows)])])

    with at_signal(show):
        try:
            yield
        finally:
            show()


@contextmanager
def _timings_to(path: Path | None, command: str) -> Iterator[Note]:
    """Collect timings; on exit, log their sums and write all of them to `path`, if given."""
    from vlcpctl.files.outputs import is_pipe_or_device, new_file, refuse_foreign
    from vlcpctl.files.rows import starts_with_schema

    is_ours = functools.partial(starts_with_schema, schema=_TIMINGS)
    if path is not None and not is_pipe_or_device(path):
        # Before the work, not after it.
        refuse_foreign(path, is_ours, is_file=True, option="--timings")
    found: list[dict[str, Any]] = []
    yield found.append
    for what in ("embed", "search"):
        seconds = [row["seconds"] for row in found if row["what"] == what]
        if seconds:
            console.say(f"{command}: {what} {sum(seconds):.1f} s")
    if path is not None:
        with new_file(path, is_ours) as temporary:
            lines = (json.dumps({"schema": _TIMINGS, **row}) for row in found)
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@contextmanager
def rows_to(out: Path | None) -> Iterator[TextIO | None]:
    """A stream for rows; a file of rows at `out` is replaced when the new one is complete.

    Raises OutputExists for any other file. A pipe or a device is written to directly.
    """
    if out is None or out == STDOUT:
        yield console.results() if out else None
        return
    from vlcpctl.files.outputs import new_file
    from vlcpctl.files.parts import drop_parts
    from vlcpctl.files.rows import is_row_file

    with new_file(out, is_row_file) as temporary, temporary.open("w", encoding="utf-8") as stream:
        yield stream
    drop_parts(out)


def has_rows(out: Path, rows: Sequence[Row], *, force: bool) -> bool:
    """Whether the file already holds these rows.

    Raises OutputExists if it contains other rows, or anything but rows (that with `force`, too).
    """
    from vlcpctl.files.outputs import is_pipe_or_device, refuse_foreign
    from vlcpctl.files.rows import is_row_file

    if out == STDOUT or is_pipe_or_device(out):
        return False
    is_new = force or not out.exists()
    refuse_foreign(out, is_row_file, is_file=True, is_read=not is_new)
    if is_new:
        return False
    from vlcpctl.evaluation.rows import holds

    if not holds(out, rows):
        raise OutputExists(
            f"{out} already exists and contains other rows; "
            "choose another --out, or --force to replace it"
        )
    return True

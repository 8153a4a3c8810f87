"""What the commands that evaluate share: their options, and the way from an evaluator to rows.

Rows go to stdout, or to a file that appears when it is complete.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, final, get_type_hints

import typer

from vlcpctl.commands import options
from vlcpctl.core import console
from vlcpctl.core.errors import OutputExists, UsageError
from vlcpctl.tracking.destinations import destinations

if TYPE_CHECKING:
    from vlcpctl.evaluation.evaluator import Evaluator, Note, Session
    from vlcpctl.evaluation.rows import Row

Rows = list[dict[str, Any]]
STDOUT = Path("-")
_TIMINGS = "vlcpctl.timings/1"
RowsFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="File to write rows to; - writes them to stdout instead of tables (default: none).",
        rich_help_panel=options.OUTPUT,
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        "--precision",
        metavar="NAME",
        help="Floating-point precision in which models are run: fp32 or bf16.",
        rich_help_panel=options.EXECUTION,
    ),
]
Tf32 = Annotated[
    bool,
    typer.Option(
        "--tf32",
        help="Let the GPU round the inputs of products in fp32 to TF32, which is faster.",
        rich_help_panel=options.EXECUTION,
    ),
]
# Of the shared options, those that say how models are run.
_OF_MODELS = ("device", "precision", "tf32", "batch_size", "workers", "embedding_cache")
_ONLY_IF_OWN = {"seed"}  # nothing is drawn at random by the others


def _shared(
    batch_size: options.BatchSize = 256,
    out: options.Rows = STDOUT,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    precision: Precision = "fp32",
    tf32: Tf32 = False,
    workers: options.Workers = None,
    nproc: options.Nproc = None,
    threads: options.Threads = options.DEFAULT_THREADS,
    log: options.Log = None,
    embedding_cache: options.EmbeddingCache = None,
    limit: options.Limit = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    json_: options.JsonRows = False,
    quiet: options.Quiet = False,
) -> None:
    """The options of every command that evaluates, in the order of the help."""


def _with_tables(out: RowsFile = None, json_: options.Json = False) -> None:
    """Those of a command that prints tables: a file of rows is not needed."""


def evaluation(
    command: str, show: Callable[[Rows], None] | None = None
) -> Callable[[Callable[..., Evaluator]], Callable[..., None]]:
    """Turn a function that makes an evaluator of its own options into a command.

    The command has the options of `_shared`, too. One of the same name is that of the function: it
    is passed to it, in the place that it has in `_shared`. `show` prints tables of rows, in place
    of the one of other commands; of rows in a file too, unless --quiet is given.
    """

    def decorated(make: Callable[..., Evaluator]) -> Callable[..., None]:
        own, shared = _parameters(make), _parameters(_shared)
        if show is not None:
            shared |= _parameters(_with_tables)
        parameters = {name: one for name, one in own.items() if name not in shared} | {
            name: own.get(name, one)
            for name, one in shared.items()
            if name in own or name not in _ONLY_IF_OWN
        }
        signature = inspect.Signature(list(parameters.values()))

        @functools.wraps(make)
        def run(*positional: Any, **named: Any) -> None:
            bound = signature.bind(*positional, **named)
            bound.apply_defaults()
            flow = _Flow(command, bound.arguments, show)
            flow.finish(make(**{name: bound.arguments[name] for name in own}))

        run.__dict__["__signature__"] = signature
        run.__annotations__ = {name: one.annotation for name, one in parameters.items()}
        return run

    return decorated


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a function by name, with their annotations resolved."""
    # Its result is not: importing it takes time, which --help does not have.
    hints = get_type_hints(function, localns={"Evaluator": object}, include_extras=True)
    parameters = inspect.signature(function).parameters
    return {name: one.replace(annotation=hints[name]) for name, one in parameters.items()}


@final
class _Flow:
    """The way from the options of a command, `given` by name, to its rows."""

    def __init__(
        self, command: str, given: Mapping[str, Any], show: Callable[[Rows], None] | None
    ) -> None:
        self.command, self.given, self.show = command, given, show
        self.out: Path | None = given["out"]
        self.as_json: bool = given["json_"]
        options.start(quiet=given["quiet"], threads=given["threads"])
        if self.as_json and self.out == STDOUT and show is not None:
            raise UsageError(
                "--json has no effect with -o -: rows are JSON; write them to a file with -o FILE"
            )
        self.log = destinations(given["log"])

    def finish(self, evaluator: Evaluator) -> None:
        """Print the plan for --dry-run, and else make the rows and print where they are.

        Rows that --out has already are not measured again, if there is nothing else to make.
        """
        from vlcpctl.distributed.ranks import processes
        from vlcpctl.evaluation.evaluator import plan_lines, shards_before_rows
        from vlcpctl.files.parts import drop_parts

        given = self.given
        evaluator.nproc = processes(given["nproc"])
        for name in _OF_MODELS:
            setattr(evaluator, name, given[name])
        evaluator.out, evaluator.force, out = self.out, given["force"], self.out
        sessions = evaluator.plan()
        if given["dry_run"]:
            for line in plan_lines(evaluator, sessions):
                console.say(line)
            return
        planned = [row for session in sessions for row in session.rows]
        has = out is not None and has_rows(out, planned, force=given["force"])
        has_more = evaluator.ranks is not None or any(map(evaluator.more, sessions))
        if out is not None and has and not has_more:
            rows = self._read()
            drop_parts(out)
        elif shards_before_rows(evaluator, sessions):
            rows = self._rows(evaluator, sessions)
        else:
            return
        self._print_result(rows)

    def _read(self) -> Rows:
        """The rows in --out."""
        from vlcpctl.files.inputs import parse_json

        assert self.out is not None
        console.say(f"{self.command}: {self.out} is already finished")
        return [parse_json(line) for line in self.out.read_text(encoding="utf-8").splitlines()]

    def _rows(self, evaluator: Evaluator, sessions: Sequence[Session]) -> Rows:
        """The rows, each written as soon as it is measured, or shown at the end."""
        from vlcpctl.evaluation.evaluator import evaluate
        from vlcpctl.files.rows import write_row
        from vlcpctl.tracking.row_log import RowLog

        on_terminal = self.out == STDOUT and console.results().isatty()
        is_table = on_terminal and self.show is None and not self.as_json
        rows: Rows = []
        with (
            RowLog.opened(self.log) as row_log,
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
        if self.as_json:
            found = {"rows": rows} if out is None else {"path": str(out), "rows": len(rows)}
            console.emit(json.dumps(found, ensure_ascii=self.show is None))
            return
        if self.show is not None and (out is None or not self.given["quiet"]):
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
        refuse_foreign(path, is_ours, is_file=True)  # before the work, not after it
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

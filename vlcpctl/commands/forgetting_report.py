"""`vlcpctl forgetting-report`: turn evaluation rows into tables, a report and an exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vlcpctl.commands import options

if TYPE_CHECKING:
    from vlcpctl.evaluation.rank_files import SavedRanks


def run(
    rows: Annotated[
        list[str],
        typer.Argument(metavar="ROWS", help="NDJSON files of evaluation rows; - reads stdin."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="Directory for report.html, report.md and summary.json (default: none).",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="KEY",
            help="Key of the metric in tables and charts (default: rm, acc1 or map_1).",
        ),
    ] = None,
    gallery: Annotated[
        str,
        typer.Option(
            "--gallery",
            metavar="NAME",
            help="Galleries to report: own (each task alone), merged or both.",
        ),
    ] = "both",
    runs: Annotated[
        list[str] | None,
        typer.Option(
            "--run", metavar="NAME", help="Run to report; repeat for more (default: all)."
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="CKPT|ID|RUN",
            help="Model to compare the last models with: a run in the rows (its last checkpoint), "
            "the directory of a checkpoint, or the first digits of its content id, at least 6 "
            "(default: the model that each run started from).",
        ),
    ] = None,
    guards: Annotated[
        list[str] | None,
        typer.Option(
            "--guard",
            metavar="GLOB",
            help="Data outside the stream that must not get worse; repeat for more (default: all "
            "data outside the stream).",
        ),
    ] = None,
    ranks: Annotated[
        list[Path] | None,
        typer.Option(
            "--ranks",
            metavar="FILE",
            help="Ranks of queries, from --save-ranks, for 95 % intervals of drops; repeat for "
            "more (default: none).",
        ),
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="METRIC:OP:VALUE",
            help="Condition that makes the command exit with 7; repeat for more.",
        ),
    ] = None,
    allow_missing: Annotated[
        bool,
        typer.Option("--allow-missing", help="Leave values empty if rows they need are missing."),
    ] = False,
    allow_mixed: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-mixed",
            metavar="FIELD,...",
            help="Fields in which rows that share a table, a column or a mean may differ: limit, "
            "options, data, stream, counts, checkpoint, seed, config (default: none).",
        ),
    ] = None,
    force: options.Force = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    r"""Report learning and forgetting from evaluation rows.

    Seeds of the same run are averaged. Every definition of forgetting has its own name; the report
    prints formulas and signs.

    Rows are combined only if they are comparable: the same data in a column, the same --limit and
    protocol options in a table, the same settings in all seeds of a run. Other rows are an error
    unless --allow-mixed names the field in which they differ; the report then has a note. Rows of
    the model that a run started from become the run's row before its first task.

    Data outside the stream are guards: a table compares the last model of each run with the model
    that it started from, or with that of --baseline. Intervals of the drops need --ranks with the
    ranks of both models; they resample the queries 2,000 times, an image with its captions.

    --fail-if METRIC:OP:VALUE, with OP one of lt, le, gt and ge, exits with code 7 if the condition
    holds, and with 3 if its metric is undefined: bwt_gem:lt:-5, bwt_gem.t2i_r1:lt:-5. A bare key is
    the score of the last model on the merged gallery or, without one, the mean over tasks:
    rm:lt:40.

    Examples:
      vlcpctl forgetting-report rows/*.ndjson -o report
      cat rows/*.ndjson | vlcpctl forgetting-report - --metric t2i_r1
      vlcpctl forgetting-report rows.ndjson --run weekly --fail-if fr_dha:gt:10
      vlcpctl forgetting-report rows/*.ndjson --baseline production --guard 'coco*' \
          --ranks production.parquet --ranks week-3.parquet
    """
    options.start(quiet=quiet)
    from vlcpctl.core.console import emit
    from vlcpctl.core.rows import read_rows
    from vlcpctl.report.build import Request, build, identity, write_report
    from vlcpctl.report.comparability import parse_fields
    from vlcpctl.report.gates import enforce
    from vlcpctl.report.render.terminal import print_report
    from vlcpctl.report.summary_json import as_line

    request = Request(
        metric=metric,
        gallery=gallery,
        runs=tuple(runs or ()),
        fail_if=tuple(fail_if or ()),
        allow_missing=allow_missing,
        allow_mixed=tuple(allow_mixed or ()),
        baseline=baseline,
        guards=tuple(guards or ()),
    )
    found = read_rows(rows, parse_fields(request.allow_mixed))
    files = _open_ranks(ranks or [])
    document, identity_ = build(found, request, files), identity(found, request, files)
    if out:
        write_report(document, identity_, out, force=force)
    if json_:
        emit(as_line(document, identity_))
    elif not quiet:
        print_report(document.notes, document.sections())
    if out and not json_:
        emit(out)
    enforce(document.verdicts)


def _open_ranks(paths: list[Path]) -> list[SavedRanks]:
    """The files of ranks, each once; pyarrow is only imported if there are any."""
    if not paths:
        return []
    from vlcpctl.evaluation.rank_files import SavedRanks

    return [SavedRanks.open(path) for path in dict.fromkeys(paths)]

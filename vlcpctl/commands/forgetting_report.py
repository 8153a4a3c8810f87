"""`vlcpctl forgetting-report`: turn evaluation rows into tables, a report and an exit code."""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlcpctl.commands.shared import Json, Quiet, Result, Shared
from vlcpctl.core.options import (
    INPUT,
    TABLES,
    MaybePath,
    MaybePathText,
    Paths,
    PathTexts,
    RowFiles,
    Texts,
    argument,
    like,
    option,
    several,
    switch,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vlcpctl.files.rows import Row
    from vlcpctl.report.report import Document, Files, ReportRequest


_OF_FILES = frozenset({".csv", ".tex", ".pdf", ".png", ".svg"})


class ForgettingReport(Quiet, Json):
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

    With --ranks, --out also has forgotten.html, with at most 200 examples: queries that were right
    just after their task was learned and are wrong at the end, those that fell furthest first, and
    the reverse. --images is where their pictures and captions are; a guard that it names is there,
    too, against the baseline. 'vlcpctl forget' removes a pair from reports, too.

    --checkpoint adds what checkpoints record about the runs: loss terms over the steps, seconds,
    pairs, memory and state, and the settings in which runs differ. Directories are searched four
    levels deep. Checkpoints are matched with rows by content id; a checkpoint of the same run that
    a matched one was trained from is included.

    --fail-if METRIC:OP:VALUE, with OP one of lt, le, gt and ge, exits with code 7 if the condition
    is true. It can be repeated; value, bound and verdict of every condition are printed.

    METRIC is one of
      bwt_gem, forgetting_max, ...  a summary of a run over its tasks
      rm, acc1, ...                 the score of the last checkpoint: on the
                                    merged gallery or else the mean over tasks
      drop                          points lost against the baseline, on each
                                    data set outside the stream
      worst_drop                    the largest of these drops
      step_drop                     the largest loss on data outside the stream
                                    since the step before
      worst_week                    the largest loss on an earlier task with 50 or
                                    more images, since it was learned or since
                                    the step before
      drop_low, drop_high           the ends of the 95 % interval of drop

    Summaries and drops are those of the main metric unless another key follows, as in
    bwt_gem.t2i_r1:lt:-5.

    METRIC@FIELD=GLOB,... applies the condition only where names match. FIELD is data, run, method,
    evaluator, protocol, split, gallery (own or merged) or step. GLOB may contain *, ? and [...]; a
    comma or an opening bracket of a name is written [,] or [[]. With data=, rm is the score on each
    data set and drop also covers tasks of the stream: rm@data=coco*:lt:40.

    --table shows the rows in the layout of a paper's table: a line of printed values, and one of
    the values here. The terminal then shows only these tables. A missing run or value is blank. A
    file of your own has the form of the files in vlcpctl/report/paper_tables.

    --csv and --latex write tables as NAME.csv and NAME.tex: those of --table (in CSV, one line per
    cell) and the others that a terminal shows, but for the task x step matrices.

    --group-by method,lr names each run after its settings, as in "ctp, lr=0.001"; a setting that is
    not in the list must be the same in all runs of a line. --best METRIC, with METRIC as in
    --fail-if, compares the settings of each method (of each value of the first field of --group-by)
    on rows of eval-* --split val, and reports the other splits of the best one alone.

    --figures draws every chart for a paper, by matplotlib: 3.25 or 6.75 inches wide, with colours
    that the colour-blind can tell apart, and markers and dashes that can be read in grey. It needs
    pip install matplotlib.

    With --ranks, a loss counts only if chance hardly shows as much: drop, worst_drop, step_drop,
    worst_week and -bwt_gem must be above the bound and above z standard errors. z is so large that
    --false-alarms of all losses judged together exceed it by chance. A loss that passes may still
    be above its bound: the verdict then says that it is not resolved.

    A condition that matches nothing or whose metric is undefined exits with code 3. After the
    first task, metrics of forgetting are not defined yet: --undefined pass accepts that, and
    nothing else. --junit writes a test case for each verdict.

    Examples:
      vlcpctl forgetting-report rows/*.ndjson -o report
      cat rows/*.ndjson | vlcpctl forgetting-report - --metric t2i_r1
      vlcpctl forgetting-report rows.ndjson --run weekly --fail-if fr_dha:gt:10
      vlcpctl forgetting-report rows/*.ndjson --baseline production \
          --guard 'coco*' --ranks production.parquet --ranks week-3.parquet
      vlcpctl forgetting-report rows/*.ndjson --checkpoint runs -o report
      vlcpctl forgetting-report rows/*.ndjson --figures figures
      vlcpctl forgetting-report rows.ndjson --fail-if worst_drop:gt:3 \
          --junit gates.xml
      vlcpctl forgetting-report rows/*.ndjson --table ctp-1 --latex tables
      vlcpctl forgetting-report rows/*.ndjson --ranks er.parquet \
          --images stream -o report
      vlcpctl forgetting-report rows/*.ndjson --group-by method,lr --best rm
    """

    rows: RowFiles = argument(
        "ROWS",
        "NDJSON files of evaluation rows, or directories with such files; - reads stdin",
        kw_only=False,
    )
    out: MaybePath = option(
        "Directory for report.html, report.md, facts.csv and summary.json",
        "DIR",
        short="-o",
        usual=True,
        writes=True,
    )
    metric: str | None = option(
        "Key of the metric in tables and charts", "KEY", otherwise="rm, acc1 or map_1"
    )
    run: Texts = several(
        "Run to report; repeat for more", "NAME", INPUT, otherwise="all", usual=True
    )
    baseline: MaybePathText = option(
        "Model to compare the last models with: a run in the rows (its last checkpoint) or the "
        "directory of a checkpoint",
        "CKPT|RUN",
        INPUT,
        otherwise="the model that each run started from",
    )
    oracle: str | None = option(
        "Run whose final scores on the same data are subtracted from those of the others",
        "RUN",
        INPUT,
        otherwise="that of joint training, if there is one",
    )
    guard: Texts = several(
        "Data outside the stream that must not get worse; repeat for more",
        "GLOB",
        INPUT,
        otherwise="all data outside the stream",
        usual=True,
    )
    ranks: Paths = several(
        "Ranks of queries, from --save-ranks, for 95 % intervals of drops; repeat for more",
        "FILE",
        INPUT,
        usual=True,
    )
    table: PathTexts = several(
        "Published table to show with the values of these rows: ctp-1, incclip-3, ... or a CSV "
        "file of your own; repeat for more",
        "NAME|FILE",
        TABLES,
        offers="tables",
    )
    csv: MaybePath = option(
        "Directory for the tables of the report as CSV files",
        "DIR",
        TABLES,
        usual=True,
        writes=True,
    )
    latex: MaybePath = option(
        "Directory for the tables of the report as LaTeX tables, for the packages booktabs "
        "and graphicx",
        "DIR",
        TABLES,
        usual=True,
        writes=True,
    )
    images: Paths = several(
        "Directory of a stream, task or guard with the pictures and captions of the queries "
        "that --ranks names; repeat for more",
        "STREAM",
        TABLES,
        otherwise="none, examples are keys",
        goes_with=("ranks", None, "pictures are of the queries in --ranks"),
        usual=True,
    )
    group_by: Texts = several(
        "Settings that make a line: runs with the same values become one, their seeds averaged; "
        "method, preset, buffer, or any setting or hyper-parameter such as lr",
        "FIELD,...",
        TABLES,
        otherwise="a line for each run name",
    )
    best: str | None = option(
        "Report only the best setting of each method, by this metric on the validation split",
        "METRIC",
        TABLES,
        otherwise="report all",
        offers="metrics",
    )
    checkpoint: Paths = several(
        "Checkpoint of a run, or a directory searched for checkpoints, for the loss, cost and "
        "provenance of each run; repeat for more",
        "DIR",
        INPUT,
        usual=True,
    )
    figures: MaybePath = option(
        "Directory for each chart of the report as PDF, SVG and PNG, in the widths of papers",
        "DIR",
        TABLES,
        writes=True,
    )
    fail_if: Texts = several(
        "Condition that makes the command exit with 7; repeat for more",
        "METRIC[@FIELD=GLOB,...]:OP:VALUE",
        offers="conditions",
        usual=True,
    )
    undefined: str = option(
        "Exit code of a --fail-if on forgetting while a run has learned only one task: error "
        "(3) or pass (0)",
        "POLICY",
        default="error",
        choices=("error", "pass"),
    )
    false_alarms: float | None = option(
        "How many losses of a report may be beyond a --fail-if by chance, on average, with "
        "--ranks; for one a year of weekly reports 0.0192",
        "A",
        otherwise="0.02",
        goes_with=("ranks", None, "it is about the losses that --fail-if judges by --ranks"),
    )
    junit: MaybePath = option(
        "File for the verdicts of --fail-if as JUnit XML", "FILE", writes=True
    )
    allow_missing: bool = switch(
        "Leave values empty if rows that they need are missing. Metrics over all tasks then leave "
        "out earlier tasks on which no last model was evaluated",
        INPUT,
    )
    allow_mixed: Texts = several(
        "Fields in which rows that share a table, a column or a mean may differ: limit, "
        "options, data, counts, checkpoint, seed, config",
        "FIELD,...",
        INPUT,
        offers="joined_fields",
    )
    force: bool = like(Result, "force", default=False)
    wait: float | None = like(Shared, "wait", default=None)

    def execute(self) -> None:
        from vlcpctl.core.console import emit
        from vlcpctl.report.formats import print_report
        from vlcpctl.report.gates import enforce
        from vlcpctl.report.report import ReportRequest, as_line

        request = ReportRequest(
            metric=self.metric,
            runs=tuple(self.run),
            fail_if=tuple(self.fail_if),
            allow_missing=self.allow_missing,
            allow_mixed=tuple(self.allow_mixed),
            baseline=self.baseline,
            oracle=self.oracle,
            guards=tuple(self.guard),
            undefined=self.undefined,
            false_alarms=self.false_alarms,
            tables=tuple(self.table),
            group_by=tuple(self.group_by),
            best=self.best,
        )
        names = ("out", "csv", "latex", "figures", "junit")
        places = {f"--{name}": getattr(self, name) for name in names}
        _check_places(places, self.table)
        if self.images and self.out is None:
            from vlcpctl.core.errors import UsageError

            raise UsageError("--images has no effect: pictures are in the report that --out writes")
        with _without_collector():
            document, identity_ = _built(
                self.rows, self.ranks, self.images, self.checkpoint, request
            )
            _write(document, identity_, places, force=self.force)
            if self.json:
                emit(as_line(document, identity_))
            elif not self.quiet:
                print_report(document.notes, document.terminal_sections())
        if self.out and not self.json:
            emit(self.out)
        enforce(document.verdicts)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Leave off looking for cycles: rows, tables and pages are many objects that form none."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # nor look through them all at once afterwards
        gc.unfreeze()
        gc.enable()


def _refuse_names_of_files(given: Mapping[str, Path]) -> None:
    from vlcpctl.core.errors import UsageError

    for name in ("--csv", "--latex", "--figures"):
        path = given.get(name)
        if path is not None and path.suffix in _OF_FILES:
            raise UsageError(
                f"{name} {path} is the name of a file: give a directory, such as "
                f"{path.with_suffix('')}, for all of them"
            )


def _check_places(places: Mapping[str, Path | None], tables: Sequence[str]) -> None:
    """Refuse --figures without matplotlib, and places that are unfit or contain each other."""
    from vlcpctl.core.errors import UsageError
    from vlcpctl.files.outputs import check_output_path, is_pipe_or_device
    from vlcpctl.report.figures import require_matplotlib
    from vlcpctl.report.papers import is_file_name
    from vlcpctl.report.write import check_junit_path

    given = {name: path for name, path in places.items() if path}
    _refuse_names_of_files(given)
    if "--figures" in given:
        require_matplotlib()
    if "--junit" in given:
        check_junit_path(given["--junit"], places["--out"])
    files = [Path(name) for name in tables if is_file_name(name)]
    for path in given.values():
        if not is_pipe_or_device(path):
            check_output_path(path, files)
    real = {name: Path(os.path.realpath(path)) for name, path in given.items()}
    for one, other in permutations(given, 2):
        if real[other] in (real[one], *real[one].parents):
            raise UsageError(
                f"{one} {given[one]} is in {other} {given[other]}, which is replaced as a whole; "
                "choose separate directories"
            )


def _built(
    rows: Sequence[str],
    ranks: Sequence[Path],
    images: Sequence[Path],
    checkpoints: Sequence[Path],
    request: ReportRequest,
) -> tuple[Document, dict[str, Any]]:
    """The report and its identity.

    Rows are read in here: many are not needed to write the report, and take much memory.
    """
    from vlcpctl.files.rows import read_rows
    from vlcpctl.report.comparable import parse_fields
    from vlcpctl.report.report import build, identity

    words = [one for word in rows for one in _row_files(word)]
    found = read_rows(words, parse_fields(request.allow_mixed))
    files = _read_files(ranks, images, checkpoints, found, request)
    return build(found, request, files), identity(found, request, files)


def _row_files(word: str) -> list[str]:
    """The files of rows below a directory, sorted, but for hidden ones; or the word itself.

    Of a state of `update`, they are those of the accepted weeks. Raises BadInput if there are none.
    """
    from vlcpctl.core.console import say
    from vlcpctl.core.errors import BadInput
    from vlcpctl.files.rows import is_row_file
    from vlcpctl.production.lines import counting_files
    from vlcpctl.production.state import State, is_state

    top = Path(word)
    if not top.is_dir():
        return [word]
    if is_state(top):
        state = State.read(top)
        say(f"{word}: rows of the start and the {state.last} accepted weeks, of no other attempt")
        files = (path for one in state.head() for path in counting_files(state, one))
        return [str(path) for path in files if path.suffix == ".ndjson"]
    found = [
        str(path)
        for path in sorted(top.rglob("*.ndjson"))
        if not any(part.startswith(".") for part in path.relative_to(top).parts)
        and is_row_file(path)
    ]
    if not found:
        raise BadInput(f"{word} has no files of evaluation rows (*.ndjson) in it")
    return found


def _read_files(
    ranks: Sequence[Path],
    images: Sequence[Path],
    checkpoints: Sequence[Path],
    rows: Sequence[Row],
    request: ReportRequest,
) -> Files:
    """What the report reads beside rows; what it needs is imported only if any are given."""
    from vlcpctl.report.report import Files

    cards, opened, tasks = None, [], []
    if checkpoints:
        from vlcpctl.report.training import read_cards

        cards = read_cards(checkpoints, rows, request.runs)
    if ranks:
        from vlcpctl.evaluation.rank_files import SavedRanks

        opened = [SavedRanks.open(path) for path in dict.fromkeys(ranks)]
    if images:
        from vlcpctl.report.forgotten import open_library

        tasks = open_library(images)
    return Files(opened, tasks, cards)


def _write(
    document: Document, identity: dict[str, Any], places: Mapping[str, Path | None], *, force: bool
) -> None:
    """Write the files that are wanted."""
    from vlcpctl.report.write import write_figures, write_junit, write_report, write_tables

    if out := places["--out"]:
        write_report(document, identity, out, force=force)
    for form in ("csv", "latex"):
        if out := places[f"--{form}"]:
            write_tables(document, identity, out, form, force=force)
    if out := places["--figures"]:
        write_figures(document, identity, out, force=force)
    if out := places["--junit"]:
        write_junit(document.verdicts, out)

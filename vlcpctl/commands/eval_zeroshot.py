"""`vlcpctl eval-zeroshot`: evaluate zero-shot classification of checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vlcpctl.commands import options
from vlcpctl.commands.row_files import STDOUT, has_rows, refuse_json_of_rows, rows_to, tell_file
from vlcpctl.core import console

if TYPE_CHECKING:
    from vlcpctl.evaluation.classification.zeroshot_plan import Request, ZeroshotPlan
    from vlcpctl.evaluation.jobs import ClassificationCompute

DataSets = Annotated[
    list[str],
    typer.Argument(
        metavar="DATASET",
        help="Task directories, folders in CLIP_benchmark's layout, or data sets by name (above).",
    ),
]
Checkpoints = Annotated[
    list[Path],
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="Checkpoint to evaluate; repeat for more.",
        rich_help_panel=options.INPUT,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Directory that contains the data sets given by name.",
        rich_help_panel=options.INPUT,
    ),
]
Templates = Annotated[
    Path | None,
    typer.Option(
        "--templates",
        metavar="FILE",
        help="Prompt templates with {c}, one per line, or CLIP_benchmark's JSON "
        "(default: those of the data set).",
        rich_help_panel=options.METHOD,
    ),
]
Classes = Annotated[
    str,
    typer.Option(
        "--classes",
        help="Classes to choose from for a task: of its whole stream (all) or its own (task).",
        rich_help_panel=options.METHOD,
    ),
]
SplitName = Annotated[
    str,
    typer.Option(
        "--split",
        metavar="SPLIT",
        help="Split of each data set to evaluate on.",
        rich_help_panel=options.INPUT,
    ),
]
RunName = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="NAME",
        help="Name of the run in the rows (default: the checkpoint's).",
        rich_help_panel=options.OUTPUT,
    ),
]
BatchSize = Annotated[
    int,
    typer.Option(
        "--batch-size",
        min=1,
        metavar="N",
        help="Images or prompts to encode at once.",
        rich_help_panel=options.EXECUTION,
    ),
]


def run(
    data_sets: DataSets,
    checkpoint: Checkpoints,
    data: Data = None,
    templates: Templates = None,
    classes: Classes = "all",
    split: SplitName = "test",
    run_name: RunName = None,
    batch_size: BatchSize = 256,
    max_skip: options.MaxSkip = "0.1%",
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="File to write rows to; - is stdout.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = STDOUT,
    device: options.Device = "auto",
    workers: options.Workers = 0,
    threads: options.Threads = options.DEFAULT_THREADS,
    limit: options.Limit = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    r"""Evaluate zero-shot classification of checkpoints, and write rows.

    Writes one JSON line for each checkpoint and data set as soon as it is computed: acc1, acc5 and
    mean_per_class_recall in percent. A class is represented by the mean of its prompts'
    embeddings; a class that is tied with the correct one ranks before it. For data sets outside
    the stream there is an additional average row.

    The classes of a task are its labels, with the template "a photo of a {c}.". A folder contains
    classnames.txt, zeroshot_classification_templates.txt and test/0.tar, test/1.tar, ...; for
    ImageNet, missing class names and templates are taken from open_clip.

    Data sets found by name in the directory --data: imagenet1k, cifar10, cifar100, caltech101,
    sun397, food101, flowers, dtd (together: incclip), places365, objectnet.

    Examples:
      vlcpctl eval-zeroshot incclip --data benchmarks --checkpoint run/02 \
          -o rows.ndjson
      vlcpctl eval-zeroshot stream/0* --split train --checkpoint run/00 \
          --checkpoint run/01 | vlcpctl forgetting-report -
    """
    options.start(quiet=quiet, threads=threads)
    refuse_json_of_rows(out, as_json=json_)
    from vlcpctl.data.classification.benchmarks import expanded
    from vlcpctl.data.tasks.skips import Tolerance
    from vlcpctl.evaluation.classification.zeroshot_plan import Request, make_plan

    request = Request(
        words=tuple(dict.fromkeys(expanded(data_sets))),
        checkpoints=tuple(dict.fromkeys(checkpoint)),
        data=data,
        templates=templates,
        classes=classes,
        split=split,
        run=run_name,
        limit=limit,
    )
    tolerance = Tolerance.parse(max_skip)
    plan = make_plan(request)
    if dry_run:
        console.say("\n".join(plan.lines()))
        return
    if has_rows(out, plan.cells(), force=force):
        console.say(f"eval-zeroshot: {out} is already finished")
    else:
        from vlcpctl.evaluation.jobs import ClassificationCompute

        means = ClassificationCompute(
            device=device, batch_size=batch_size, workers=workers, tolerance=tolerance
        )
        _measure(request, plan, means, out)
    tell_file(out, len(plan.cells()), as_json=json_)


def _measure(request: Request, plan: ZeroshotPlan, means: ClassificationCompute, out: Path) -> None:
    from vlcpctl.core.rows import write_row
    from vlcpctl.evaluation.classification.zeroshot import evaluate

    with rows_to(out) as stream:
        for row in evaluate(request, plan, means):
            write_row(stream, row)

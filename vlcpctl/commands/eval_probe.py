"""`vlcpctl eval-probe`: evaluate linear probes on the image features of checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcpctl.commands import options
from vlcpctl.commands.row_files import STDOUT, has_rows, refuse_json_of_rows, rows_to, tell_file
from vlcpctl.core import console

if TYPE_CHECKING:
    from vlcpctl.evaluation.classification.probe_plan import ProbePlan, Request

DataSets = Annotated[
    list[str],
    typer.Argument(
        metavar="DATASET",
        help="Task directories, folders in CLIP_benchmark's layout, or data sets by name "
        "(as in eval-zeroshot).",
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
Solver = Annotated[
    str,
    typer.Option(
        "--solver",
        help="Solver that trains the probe: lbfgs or sgd.",
        rich_help_panel=options.OPTIMIZATION,
    ),
]
Strength = Annotated[
    float | None,
    typer.Option(
        "--strength",
        metavar="X",
        help="Strength of the L2 regularization (default: chosen on a held-out part).",
        rich_help_panel=options.OPTIMIZATION,
    ),
]
HeldOut = Annotated[
    float | None,
    typer.Option(
        "--held-out",
        metavar="SHARE",
        help="Share of the train split on which --strength is chosen (default: 0.1).",
        rich_help_panel=options.OPTIMIZATION,
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option(
        "--epochs",
        min=1,
        metavar="N",
        help="Epochs of --solver sgd (default: 100).",
        rich_help_panel=options.OPTIMIZATION,
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--lr",
        metavar="X",
        help="Initial learning rate of --solver sgd (default: 1).",
        rich_help_panel=options.OPTIMIZATION,
    ),
]
TrainSplit = Annotated[
    str,
    typer.Option(
        "--train-split",
        metavar="SPLIT",
        help="Split to train the probes on.",
        rich_help_panel=options.INPUT,
    ),
]
SplitName = Annotated[
    str,
    typer.Option(
        "--split",
        metavar="SPLIT",
        help="Split to evaluate the probes on.",
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
        help="Images to encode at once.",
        rich_help_panel=options.EXECUTION,
    ),
]


def run(
    data_sets: DataSets,
    checkpoint: Checkpoints,
    data: Data = None,
    solver: Solver = "lbfgs",
    strength: Strength = None,
    held_out: HeldOut = None,
    epochs: Epochs = None,
    lr: Rate = None,
    train_split: TrainSplit = "train",
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
    seed: options.Seed = 0,
    device: options.Device = "auto",
    workers: options.Workers = 0,
    threads: options.Threads = options.DEFAULT_THREADS,
    limit: options.Limit = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    r"""Evaluate linear probes on frozen image features, and write rows.

    For each checkpoint and data set, a linear classifier is trained on the image embeddings of one
    split and evaluated on another: acc1, acc5 and mean_per_class_recall in percent, computed as in
    eval-zeroshot. The classes of a task are its labels. A test image whose class does not occur
    in the train split (n_unseen) counts as wrong.

    The loss is the mean cross-entropy plus strength / 2 times the squared weights. The strength
    is the best of 0.1, 0.01, ... 1e-8 on a held-out part of the train split, chosen by the images'
    keys; the probe is then trained on the whole split.

    Examples:
      vlcpctl eval-probe stream/0* --checkpoint run/00 --checkpoint run/01 \
          -o rows.ndjson
      vlcpctl eval-probe imagenet1k --data benchmarks --checkpoint run/02 \
          --strength 1e-7
      vlcpctl eval-probe stream/00-* --checkpoint run/02 --solver sgd \
          --epochs 50 | vlcpctl forgetting-report - --allow-missing
    """
    options.start(quiet=quiet, threads=threads)
    refuse_json_of_rows(out, as_json=json_)
    from vlcpctl.data.classification.benchmarks import expanded
    from vlcpctl.data.tasks.skips import Tolerance
    from vlcpctl.evaluation.classification.probe_plan import Request, make_plan

    request = Request(
        words=tuple(dict.fromkeys(expanded(data_sets))),
        checkpoints=tuple(dict.fromkeys(checkpoint)),
        data=data,
        solver=solver,
        strength=strength,
        held_out=held_out,
        epochs=epochs,
        lr=lr,
        train_split=train_split,
        split=split,
        run=run_name,
        limit=limit,
        seed=seed,
    )
    tolerance = Tolerance.parse(max_skip)
    plan = make_plan(request)
    if dry_run:
        console.say("\n".join(plan.lines()))
        return
    means = {"device": device, "batch_size": batch_size, "workers": workers}
    _measure(request, plan, {**means, "tolerance": tolerance}, out, force=force)
    tell_file(out, len(plan.cells()), as_json=json_)


def _measure(
    request: Request, plan: ProbePlan, how: dict[str, Any], out: Path, *, force: bool
) -> None:
    """Write the rows, unless the file already holds the same rows."""
    if has_rows(out, plan.cells(), force=force):
        console.say(f"eval-probe: {out} is already finished")
        return
    from vlcpctl.core.rows import write_row
    from vlcpctl.evaluation.classification.probe import evaluate
    from vlcpctl.evaluation.jobs import ClassificationCompute

    means = ClassificationCompute(**how)
    with rows_to(out) as stream:
        for row in evaluate(request, plan, means):
            write_row(stream, row)

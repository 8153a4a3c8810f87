"""`vlcpctl import-checkpoint`: convert weights from another program to a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from vlcpctl.commands import options
from vlcpctl.core import console
from vlcpctl.core.errors import BadInput
from vlcpctl.files.inputs import MOST_TASKS
from vlcpctl.models.foreign import OPEN_CLIP, missing_model

Source = Annotated[
    Path,
    typer.Argument(
        metavar="SOURCE",
        help="File of weights, directory with weights and configuration, or "
        "open_clip:MODEL,TAG for pretrained weights of open_clip (downloaded if necessary).",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME|FILE.json",
        help="Model architecture (default: from SOURCE; required if SOURCE does not name it).",
        rich_help_panel=options.MODEL,
    ),
]
Tokenizer = Annotated[
    Path | None,
    typer.Option(
        "--tokenizer",
        metavar="DIR",
        help="Directory with the vocab.txt or tokenizer.json of a fusion model (default: from its "
        "configuration).",
        rich_help_panel=options.MODEL,
    ),
]
RunName = Annotated[
    str | None,
    typer.Option(
        "--run",
        parser=options.run_name,
        metavar="NAME",
        help="Name of the run in rows (default: the file's name).",
        rich_help_panel=options.OUTPUT,
    ),
]
Step = Annotated[
    int | None,
    typer.Option(
        "--step",
        min=0,
        max=MOST_TASKS - 1,
        metavar="I",
        help="Stream step of a model that was trained on tasks of a stream, as a checkpoint of "
        "that run (default: none, for a model that a run starts from).",
        rich_help_panel=options.OUTPUT,
    ),
]
TrustPickle = Annotated[
    bool,
    typer.Option(
        "--trust-pickle",
        help="Run the code in SOURCE if it cannot be read otherwise; use it only if you "
        "trust SOURCE.",
        rich_help_panel=options.INPUT,
    ),
]


def run(
    source: Source,
    out: options.Out,
    model: Model = None,
    tokenizer: Tokenizer = None,
    run_name: RunName = None,
    step: Step = None,
    trust_pickle: TrustPickle = False,
    threads: options.Threads = options.DEFAULT_THREADS,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    r"""Convert weights that another program has trained to a checkpoint.

    Reads open_clip's epoch_N.pt and its directories, the CTP authors' task_NN.pth (as albef-base
    unless --model is given), bare state dicts and safetensors. Missing and unexpected tensors are
    reported by name. Without --step, the result counts as trained on no task of a stream: pass it
    as --previous to the train-step of a first task, and most methods then protect it.

    open_clip:MODEL,TAG is a pretrained model of open_clip; its weights are downloaded to the cache
    of its hub, or read from a file: open_clip:MODEL,FILE. Without a network, fetch the file
    elsewhere.

    A pickle can contain arbitrary code. By default it is read as data, and refused if that is not
    possible. With --trust-pickle, the code in the file is run: use it only for files that you
    trust.

    Examples:
      vlcpctl import-checkpoint open_clip:ViT-B-32,laion2b_s34b_b79k -o start
      vlcpctl import-checkpoint logs/run/checkpoints/epoch_32.pt -o run/start \
          --model ViT-B-32
      vlcpctl import-checkpoint CTP/task_08.pth -o ctp/08 \
          --tokenizer bert-base-chinese --step 8
    """
    options.start(quiet=quiet, threads=threads)
    if not (source.exists() or str(source).startswith(OPEN_CLIP)):  # before torch is imported
        raise BadInput(missing_model(source))
    from vlcpctl.checkpoints.importing import ImportRequest, import_checkpoint, read

    request = ImportRequest(
        source=source,
        out=out,
        model=model,
        tokenizer=tokenizer,
        run=run_name,
        step=step,
        trusts_pickle=trust_pickle,
        force=force,
    )
    if dry_run:
        encoder, _ = read(request)
        tensors = len(encoder.module.state_dict())
        console.say(f"{tensors} tensors fit a {encoder.family} model")
    else:
        import_checkpoint(request)
    console.emit(_result(out) if as_json and not dry_run else out)


def _result(path: Path) -> str:
    from vlcpctl.checkpoints.manifest import CheckpointManifest

    made = CheckpointManifest.read(path)
    return json.dumps(
        {
            "path": str(path),
            "content": made.content,
            "run": made.run,
            "step": made.step,
            "origin": made.origin,
        }
    )

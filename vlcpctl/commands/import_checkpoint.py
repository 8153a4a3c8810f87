"""`vlcpctl import-checkpoint`: weights of another program as a checkpoint of this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from vlcpctl.commands import options
from vlcpctl.core import console

Source = Annotated[
    Path,
    typer.Argument(
        metavar="SOURCE", help="A file of weights, or a directory with its configuration."
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="NAME|FILE.json", help="What the weights are of, where nothing says it."
    ),
]
Tokenizer = Annotated[
    Path | None,
    typer.Option(
        "--tokenizer", metavar="DIR", help="A fusion model's vocab.txt or tokenizer.json."
    ),
]
RunName = Annotated[str | None, typer.Option("--run", help="Name in rows. [the file's name]")]
Step = Annotated[
    int | None,
    typer.Option("--step", min=0, help="The task of a stream after which the model stands."),
]
TrustPickle = Annotated[
    bool,
    typer.Option(
        "--trust-pickle",
        help="Run the code in SOURCE where it cannot be read otherwise: as a program would run.",
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
    """Make a checkpoint of weights that another program has trained.

    Reads open_clip's epoch_N.pt and its directories, the CTP authors' task_NN.pth (as albef-base,
    unless --model says otherwise), bare state dicts and safetensors. Every tensor that is missing
    or does not belong is named. The result has seen no task: train-step takes it as --previous of a
    first one.

    A pickle can hold any program. Without --trust-pickle it is read as data, and refused where that
    is not enough; with it, what the file holds is run. Do that only with files of people whose
    programs you would run.

    vlcpctl import-checkpoint logs/run/checkpoints/epoch_32.pt -o run/start --model ViT-B-32

    vlcpctl import-checkpoint CTP/task_08.pth -o ctp/08 --tokenizer bert-base-chinese --step 8
    """
    options.start(quiet=quiet, threads=threads)
    from vlcpctl.engine.importing import Request, import_checkpoint, read

    request = Request(
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
        encoder, found = read(request)
        console.say(f"{len(found.tensors)} tensors fit a {encoder.family} model")
    else:
        import_checkpoint(request)
    console.emit(_result(out) if as_json and not dry_run else out)


def _result(path: Path) -> str:
    from vlcpctl.core.artifacts import read_manifest

    manifest = read_manifest(path, "checkpoint")
    fields = {name: manifest[name] for name in ("content", "run", "step", "origin")}
    return json.dumps({"path": str(path), **fields})

"""`vlcpctl train-step`: train a model on one task and write the next checkpoint."""

from __future__ import annotations

import dataclasses
from json import dumps as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcpctl.commands import options
from vlcpctl.commands.options import with_pairs
from vlcpctl.core import console
from vlcpctl.core.printable import printable
from vlcpctl.tracking.destinations import destinations

if TYPE_CHECKING:
    from vlcpctl.training.config.request import TrainRequest

Tasks = Annotated[
    list[Path],
    typer.Argument(metavar="TASK", help="Task directory; several are trained on together."),
]
MethodName = Annotated[
    str,
    typer.Option(
        "--method",
        "-m",
        metavar="NAME[+NAME...]",
        help="Method, or several joined with +.",
        rich_help_panel=options.METHOD,
    ),
]
Previous = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Checkpoint of the previous task, for initial weights, teacher and method state; "
        "required after the first task, unless --from-scratch is given.",
        rich_help_panel=options.INPUT,
    ),
]
Buffer = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Buffer of earlier pairs to replay (default: none).",
        rich_help_panel=options.INPUT,
    ),
]
PseudoTexts = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Negative texts from invert-texts (default: generated during training).",
        rich_help_panel=options.INPUT,
    ),
]
Targets = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Teacher embeddings precomputed by distill (default: run the teacher).",
        rich_help_panel=options.INPUT,
    ),
]
Teacher = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Checkpoint of the frozen teacher (default: --previous).",
        rich_help_panel=options.INPUT,
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Training budget: ctp, incclip, modx, modx-finetune, update, dha or tiny (default: "
        "that of the method).",
        rich_help_panel=options.METHOD,
    ),
]
Assign = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="METHOD.PARAMETER=VALUE",
        help="Set a hyper-parameter of a method; repeat for more (default: see vlcpctl methods).",
        rich_help_panel=options.METHOD,
    ),
]

ScalePerStep = Annotated[
    str | None,
    typer.Option(
        "--scale-per-step",
        metavar="N|paper",
        help="Rescale the decays of averages that are updated at each step (ctp.m, dha.main_share, "
        "dha.history_share, ema.decay) from the N steps per task that they were chosen for, or "
        "those of the paper, to the steps of this run (default: as given).",
        rich_help_panel=options.METHOD,
    ),
]


def run(
    tasks: Tasks,
    out: options.Out,
    method: MethodName,
    method_file: options.MethodFiles = None,
    previous: Previous = None,
    buffer: Buffer = None,
    pseudo_texts: PseudoTexts = None,
    targets: Targets = None,
    teacher: Teacher = None,
    preset: Preset = None,
    set_: Assign = None,
    scale_per_step: ScalePerStep = None,
    run_name: Annotated[
        str,
        typer.Option(
            "--run",
            parser=options.run_name,
            metavar="NAME",
            help="Name of the run in rows and reports (default: --method).",
            rich_help_panel=options.OUTPUT,
        ),
    ] = "",
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE.json",
            help="Model of a first task: an open_clip or albef name, or a JSON configuration "
            "(default: from the preset).",
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    pretrained: Annotated[
        str | None,
        typer.Option(
            metavar="WEIGHTS",
            help="Pretrained weights of a first task: an open_clip tag or a file; for albef models "
            "also none or image=NAME|FILE,text=NAME|DIR (timm, BERT) (default: from the preset).",
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    temperature: Annotated[
        str | None,
        typer.Option(
            metavar="fixed:X|learn:X",
            help="Temperature of the contrastive loss: fixed, or learned from an initial value "
            "(default: from the preset).",
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    text_length: Annotated[
        int | None,
        typer.Option(
            min=4,
            max=4096,
            metavar="N",
            help="Number of tokens per caption (default: from the preset).",
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            min=8,
            max=4096,
            metavar="PIXELS",
            help="Side of the square images (default: that of the model).",
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Optimizer: adamw, adam, sgd or lamb (default: from the preset).",
            rich_help_panel=options.OPTIMIZATION,
        ),
    ] = None,
    lr: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Peak learning rate, above 0 (default: from the preset).",
            rich_help_panel=options.OPTIMIZATION,
        ),
    ] = None,
    min_lr: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Final learning rate of the schedule, at most --lr (default: from the preset).",
            rich_help_panel=options.OPTIMIZATION,
        ),
    ] = None,
    weight_decay: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Weight decay of the optimizer (default: from the preset).",
            rich_help_panel=options.OPTIMIZATION,
        ),
    ] = None,
    decay: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Parameters with weight decay: weights (not norms and biases) or all "
            "(default: from the preset).",
            rich_help_panel=options.OPTIMIZATION,
        ),
    ] = None,
    betas: Annotated[
        str | None,
        typer.Option(
            metavar="B1,B2",
            help="Betas of adamw, adam and lamb, below 1 (default: from the preset).",
            rich_help_panel=options.OPTIMIZATION,
        ),
    ] = None,
    eps: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Epsilon of adamw, adam and lamb (default: from the preset).",
            rich_help_panel=options.OPTIMIZATION,
        ),
    ] = None,
    momentum: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Momentum of sgd, below 1 (default: 0.9).",
            rich_help_panel=options.OPTIMIZATION,
        ),
    ] = None,
    clip_norm: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Norm to clip the gradient to, above 0 (default: no clipping).",
            rich_help_panel=options.OPTIMIZATION,
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Learning rate schedule: cosine, constant or plateau (default: from the preset).",
            rich_help_panel=options.OPTIMIZATION,
        ),
    ] = None,
    warmup: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share of the steps with a linear warm-up, below 1 (default: from the preset).",
            rich_help_panel=options.OPTIMIZATION,
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Epochs without improvement before --schedule plateau lowers the learning rate "
            "(default: from the preset).",
            rich_help_panel=options.OPTIMIZATION,
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of epochs (default: from the preset).",
            rich_help_panel=options.OPTIMIZATION,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of optimizer steps, instead of --epochs (default: from --epochs).",
            rich_help_panel=options.OPTIMIZATION,
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            help="Pairs per batch, over all processes (default: from the preset, or all pairs if "
            "they are fewer).",
            rich_help_panel=options.OPTIMIZATION,
        ),
    ] = None,
    micro_batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Pairs to encode at once, to save memory; the loss still sees the whole "
            "batch, but batch norms see these pairs (default: the batch size).",
            rich_help_panel=options.EXECUTION,
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Floating-point precision: fp32, bf16, fp16, or auto: bf16 on a GPU that has it, "
            "else fp32 (default: from the preset, or fp32).",
            rich_help_panel=options.EXECUTION,
        ),
    ] = None,
    compile_: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Compile the model with torch.compile: minutes at the start, then faster steps.",
            rich_help_panel=options.EXECUTION,
        ),
    ] = False,
    tf32: Annotated[
        bool,
        typer.Option(
            "--tf32",
            help="Multiply float32 in TF32, on GPUs that have it: faster, with 10 bits of "
            "mantissa.",
            rich_help_panel=options.EXECUTION,
        ),
    ] = False,
    grad_checkpointing: Annotated[
        bool,
        typer.Option(
            "--grad-checkpointing",
            help="Recompute activations in backward instead of storing them: less memory, slower "
            "steps.",
            rich_help_panel=options.EXECUTION,
        ),
    ] = False,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="union|share=X",
            help="Use of --buffer: union (shuffled with the task), or share=X of each batch "
            "(default: union).",
            rich_help_panel=options.METHOD,
        ),
    ] = None,
    captions: Annotated[
        str | None,
        typer.Option(
            metavar="one|all",
            help="Captions per image and epoch: one or all (default: one).",
            rich_help_panel=options.DATA,
        ),
    ] = None,
    base_loss: Annotated[
        str | None,
        typer.Option(
            metavar="mean|sum",
            help="Reduction of the two directions of the contrastive loss: mean or sum "
            "(default: from the preset).",
            rich_help_panel=options.METHOD,
        ),
    ] = None,
    negatives: Annotated[
        str | None,
        typer.Option(
            metavar="all|distinct",
            help="Negatives of a pair in the contrastive loss: all other pairs, or only distinct "
            "ones, which share neither the image nor a caption with it, directly or through other "
            "pairs (default: from the preset, or all).",
            rich_help_panel=options.METHOD,
        ),
    ] = None,
    crop: options.Crop = None,
    crop_scale: options.CropScale = None,
    flip: options.Flip = None,
    randaugment: options.RandAugment = None,
    jpeg_decode: options.JpegDecode = None,
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Epoch whose weights to keep: last, best:val_loss or best:val_rmean "
            "(default: from the preset).",
            rich_help_panel=options.OPTIMIZATION,
        ),
    ] = None,
    blend_buffers: Annotated[
        bool | None,
        typer.Option(
            "--blend-buffers",
            help="Average BatchNorm statistics, not only weights, in momentum models (default: "
            "weights only).",
            rich_help_panel=options.METHOD,
        ),
    ] = None,
    mask_share: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share of tokens to mask and predict, in fusion models (default: 0.15).",
            rich_help_panel=options.DATA,
        ),
    ] = None,
    masking: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Masking of tokens in fusion models: bert (80/10/10) or all (always [MASK]) "
            "(default: bert).",
            rich_help_panel=options.DATA,
        ),
    ] = None,
    heads: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Projection heads of a new fusion model: linear or cosine (default: from its "
            "configuration).",
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    from_scratch: Annotated[
        bool,
        typer.Option(
            "--from-scratch",
            help="Allow training on a later task without --previous.",
            rich_help_panel=options.METHOD,
        ),
    ] = False,
    fresh_state: Annotated[
        bool,
        typer.Option(
            "--fresh-state",
            help="Initialise the method's state instead of taking it from --previous.",
            rich_help_panel=options.METHOD,
        ),
    ] = False,
    save_every: Annotated[
        str,
        typer.Option(
            metavar="N|TIME",
            help="Interval at which the training state is saved: steps, or a time such as 10min.",
            rich_help_panel=options.EXECUTION,
        ),
    ] = "10min",
    accept_inexact: Annotated[
        bool,
        typer.Option(
            "--accept-inexact",
            help="Resume even on a different kind of machine or with other versions of libraries, "
            "where results are not bit-exact.",
            rich_help_panel=options.EXECUTION,
        ),
    ] = False,
    nproc: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of processes that train together, one per GPU (default: 1, or as started "
            "by torchrun).",
            rich_help_panel=options.EXECUTION,
        ),
    ] = None,
    nodes: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of machines that the processes run on; start the same command on each.",
            rich_help_panel=options.EXECUTION,
        ),
    ] = 1,
    rendezvous: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address on one of the machines; required if --nodes is above 1.",
            rich_help_panel=options.EXECUTION,
        ),
    ] = None,
    local_loss: Annotated[
        bool,
        typer.Option(
            "--local-loss",
            help="With several processes, compute only the loss rows of a process's own pairs, to "
            "save memory and time; the loss is the same (default: every process computes all).",
            rich_help_panel=options.EXECUTION,
        ),
    ] = False,
    log: options.Log = None,
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config",
            help="Print every setting with its origin, and exit.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    workers: options.Workers = None,
    threads: options.Threads = options.DEFAULT_THREADS,
    limit: options.Limit = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
    dry_run: options.DryRun = False,
) -> None:
    r"""Train on one task and write the next checkpoint.

    If it is interrupted, run the same command again: it resumes and ends with the same bytes.

    To start the first task from a pretrained model, convert it with import-checkpoint and pass it
    as --previous: methods then protect it like the model of an earlier task, except for ewc, mas,
    si, rwalk and afec, which have not measured any importance yet. No method protects the weights
    of --pretrained in the first task.

    Examples:
      vlcpctl train-step stream/00-smileys -o run/00 --method ctp --preset tiny
      vlcpctl train-step stream/01-people -o run/01 --method ctp --preset tiny \
          --previous run/00
      vlcpctl train-step stream/01-people -o run/01 --method ctp+dha \
          --set ctp.m=0.8 --previous run/00 --buffer buffer/00
      vlcpctl train-step stream/01-people -o run/01 --method mine \
          --method-file mine.py --set mine.strength=2 --previous run/00
      vlcpctl train-step week-01/00-shop -o model/01 --method ctp \
          --preset update --previous start
      vlcpctl train-step stream/00-smileys -o run/00 --method ctp --nproc 4 \
          --batch-size 1024
    """
    flags = options.given(run, locals())
    options.start(quiet=quiet, threads=threads)
    request = _request(flags)
    if print_config:
        _print_configuration(request, as_json=json)
        return
    if dry_run:
        _say_plan(request)
        return
    from vlcpctl.core.atomic import naming_output
    from vlcpctl.training.launch import train

    with naming_output(out):
        path = train(request, quiet=quiet)
    if path is not None:
        console.emit(_result(path) if json else path)


def _request(flags: dict[str, Any]) -> TrainRequest:
    """The request that the options describe; made without importing torch."""
    from vlcpctl.distributed.ranks import processes
    from vlcpctl.methods.plugins.registry import MethodRegistry
    from vlcpctl.training.config.composition import compose, preset_of, settings_of_methods
    from vlcpctl.training.config.request import TrainRequest, save_every
    from vlcpctl.training.config.settings import SETTINGS, resolve

    registry = MethodRegistry.of(flags.get("method_file"))
    methods = compose(flags["method"], flags.get("set_", ()), registry)
    registry.refuse_idle_files(flags["method"])
    save_every(flags["save_every"])
    log = destinations(flags.get("log"))
    given = with_pairs({name: flags[name] for name in SETTINGS if name in flags})
    settings, origins = resolve(
        flags.get("preset") or preset_of(methods), given, settings_of_methods(methods)
    )
    carried = {field.name for field in dataclasses.fields(TrainRequest)} & flags.keys()
    return TrainRequest(
        **{name: flags[name] for name in carried - {"tasks", "run", "nproc", "log"}},
        nproc=processes(flags.get("nproc")),
        compile=flags["compile_"],
        tasks=tuple(flags["tasks"]),
        run=flags["run_name"] or flags["method"],
        methods=methods,
        settings=settings,
        origins=origins,
        log=log,
    )


def _say_plan(request: TrainRequest) -> None:
    from vlcpctl.training.adaptation import adapted
    from vlcpctl.training.identity import already_trained, semantic
    from vlcpctl.training.plan import make_plan

    request = adapted(request)
    if already_trained(request, semantic(request)):
        console.say(f"{request.out} is already finished")
    else:
        plan = make_plan(request)
        for line in plan.lines():
            console.say(line)
        for warning in plan.all_warnings():
            console.warn(warning)
    console.emit(request.out)


def _print_configuration(request: TrainRequest, *, as_json: bool) -> None:
    from vlcpctl.training.adaptation import adapted_as_far_as_known
    from vlcpctl.training.config.settings import configuration

    request = adapted_as_far_as_known(request)
    rows = [
        (name, request.inherited.get(name, value), origin)
        for name, value, origin in configuration(request.settings, request.origins, request.methods)
    ]
    if as_json:
        console.emit(
            json_text({name: {"value": value, "origin": origin} for name, value, origin in rows})
        )
        return
    for name, value, origin in rows:
        console.emit(printable(f"{name} = {value}  [{origin}]"))


def _result(path: Path) -> str:
    from vlcpctl.checkpoints.manifest import CheckpointManifest

    made = CheckpointManifest.read(path)
    return json_text(
        {
            "path": str(path),
            "content": made.content,
            "run": made.run,
            "method": made.method,
            "step": made.step,
            "pairs": made.pairs,
            "train_seconds": made.train_seconds,
        }
    )

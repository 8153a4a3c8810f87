"""train-step: train a model on one task and write the next checkpoint."""

from __future__ import annotations

import dataclasses
from json import dumps as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcpctl.commands import augmentation, options
from vlcpctl.commands.augmentation import with_pairs
from vlcpctl.core import console

if TYPE_CHECKING:
    from vlcpctl.engine.request import Request

Tasks = Annotated[
    list[Path], typer.Argument(help="A task directory; several are trained on together.")
]
MethodName = Annotated[
    str, typer.Option("--method", "-m", help="A method, or several joined with +.")
]
Previous = Annotated[
    Path | None, typer.Option(help="The checkpoint of the step before: weights, teacher, memory.")
]
Buffer = Annotated[Path | None, typer.Option(help="Earlier pairs to train on again.")]
PseudoTexts = Annotated[
    Path | None,
    typer.Option(help="Negative texts made by invert-texts, instead of making them on the way."),
]
Targets = Annotated[
    Path | None, typer.Option(help="What distill wrote of the teacher, which is then not asked.")
]
Teacher = Annotated[Path | None, typer.Option(help="The frozen model, when it is not --previous.")]
Preset = Annotated[
    str | None, typer.Option(help="Training budget of a paper: ctp, incclip, modx, dha, tiny.")
]
Assign = Annotated[list[str] | None, typer.Option("--set", help="METHOD.PARAMETER=VALUE.")]


def run(
    tasks: Tasks,
    out: options.Out,
    method: MethodName,
    previous: Previous = None,
    buffer: Buffer = None,
    pseudo_texts: PseudoTexts = None,
    targets: Targets = None,
    teacher: Teacher = None,
    preset: Preset = None,
    set_: Assign = None,
    run_name: Annotated[
        str, typer.Option("--run", help="Name in rows and reports (default: the method).")
    ] = "",
    model: Annotated[
        str | None,
        typer.Option(help="open_clip or albef model name or JSON config, for a first task."),
    ] = None,
    pretrained: Annotated[
        str | None,
        typer.Option(
            help="open_clip tag or weight file; of an albef model also none or "
            "image=NAME|FILE,text=NAME|DIR (timm, BERT)."
        ),
    ] = None,
    temperature: Annotated[str | None, typer.Option(metavar="fixed:X|learn:X")] = None,
    text_length: Annotated[int | None, typer.Option(min=4, help="Tokens per caption.")] = None,
    image_size: Annotated[int | None, typer.Option(min=8, help="Pixels per side.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="adamw, adam, sgd or lamb.")] = None,
    lr: Annotated[float | None, typer.Option(help="Highest learning rate.")] = None,
    min_lr: Annotated[float | None, typer.Option(help="Where the schedule ends.")] = None,
    weight_decay: Annotated[float | None, typer.Option()] = None,
    decay: Annotated[
        str | None, typer.Option(help="'weights' spares norms and biases, 'all' does not.")
    ] = None,
    betas: Annotated[
        str | None, typer.Option(metavar="B1,B2", help="Of adamw, adam and lamb.")
    ] = None,
    eps: Annotated[float | None, typer.Option(help="Of adamw, adam and lamb.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Of sgd.")] = None,
    clip_norm: Annotated[float | None, typer.Option(help="Clip the gradient's norm.")] = None,
    schedule: Annotated[str | None, typer.Option(help="cosine, constant or plateau.")] = None,
    warmup: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of steps with a rising rate.")
    ] = None,
    patience: Annotated[
        int | None, typer.Option(min=0, help="Epochs without progress before a plateau drop.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1)] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Instead of --epochs.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=2, help="The global batch, over all processes.")
    ] = None,
    micro_batch: Annotated[
        int | None, typer.Option(min=1, help="Pairs encoded at once (the loss sees all).")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, bf16 or fp16.")] = None,
    replay: Annotated[
        str | None, typer.Option(help="union, or share=X of each batch from the buffer.")
    ] = None,
    captions: Annotated[
        str | None, typer.Option(help="'one' caption per image and epoch, or 'all'.")
    ] = None,
    base_loss: Annotated[
        str | None, typer.Option(help="'mean' or 'sum' of the two directions.")
    ] = None,
    crop: augmentation.Crop = None,
    crop_scale: augmentation.CropScale = None,
    flip: augmentation.Flip = None,
    randaugment: augmentation.RandAugment = None,
    keep: Annotated[str | None, typer.Option(help="last, best:val_loss or best:val_rmean.")] = None,
    blend_buffers: Annotated[
        bool | None,
        typer.Option("--blend-buffers", help="Average BatchNorm statistics in slow models too."),
    ] = None,
    mask_share: Annotated[
        float | None, typer.Option(help="Share of words to mask and guess (fusion models).")
    ] = None,
    masking: Annotated[
        str | None, typer.Option(help="'bert' (80/10/10) or 'all' hidden (fusion models).")
    ] = None,
    heads: Annotated[
        str | None, typer.Option(help="linear or cosine, of a new fusion model.")
    ] = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Begin a later task without --previous.")
    ] = False,
    fresh_state: Annotated[
        bool, typer.Option("--fresh-state", help="Begin the method's memory anew.")
    ] = False,
    save_every: Annotated[str, typer.Option(help="Steps, or a time such as 10min.")] = "10min",
    accept_inexact: Annotated[
        bool, typer.Option("--accept-inexact", help="Resume on another kind of machine.")
    ] = False,
    nproc: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that train together, one per GPU (default: 1)."),
    ] = None,
    nodes: Annotated[
        int, typer.Option(min=1, help="Machines they run on; start the same line on each.")
    ] = 1,
    rendezvous: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="On one of the machines, for --nodes.")
    ] = None,
    tensorboard: Annotated[Path | None, typer.Option(help="Also write scalars there.")] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Show every setting with its origin.")
    ] = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    workers: options.Workers = 0,
    threads: options.Threads = options.DEFAULT_THREADS,
    limit: options.Limit = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
    dry_run: options.DryRun = False,
) -> None:
    """Train on one task and write the next checkpoint.

    The same command, started again, goes on where it was stopped and ends with the same bytes.

    vlcpctl train-step stream/00-smileys -o run/00 --method ctp --preset tiny

    vlcpctl train-step stream/01-people -o run/01 --method ctp --preset tiny --previous run/00

    vlcpctl train-step stream/01-people -o run/01 --method ctp+dha --set ctp.m=0.8
    --previous run/00 --buffer buffer/00

    vlcpctl train-step stream/00-smileys -o run/00 --method ctp --nproc 4 --batch-size 1024
    """
    flags = {name: value for name, value in locals().items() if value is not None}
    options.start(quiet=quiet, threads=threads)
    request = _request(flags)
    if print_config:
        _print_configuration(request, as_json=json)
        return
    if dry_run:
        _say_plan(request)
        return
    from vlcpctl.core.atomic import naming
    from vlcpctl.engine.launch import train

    with naming(out):
        path = train(request, quiet=quiet)
    if path is not None:
        console.emit(_result(path) if json else path)


def _request(flags: dict[str, Any]) -> Request:
    """The request that the options make; no torch is imported for it."""
    from vlcpctl.engine.compose import compose, preset_of, settings_of_methods
    from vlcpctl.engine.journal import check_board
    from vlcpctl.engine.processes import processes
    from vlcpctl.engine.request import Request, save_every
    from vlcpctl.engine.settings import SETTINGS, resolve

    methods = compose(flags["method"], flags.get("set_", ()))
    save_every(flags["save_every"])
    check_board(flags.get("tensorboard"))
    given = with_pairs({name: flags[name] for name in SETTINGS if name in flags})
    settings, origins = resolve(
        flags.get("preset") or preset_of(methods), given, settings_of_methods(methods)
    )
    carried = {field.name for field in dataclasses.fields(Request)} & flags.keys()
    return Request(
        **{name: flags[name] for name in carried - {"tasks", "run", "nproc"}},
        nproc=processes(flags.get("nproc")),
        tasks=tuple(flags["tasks"]),
        run=flags["run_name"] or flags["method"],
        methods=methods,
        settings=settings,
        origins=origins,
    )


def _say_plan(request: Request) -> None:
    from vlcpctl.core.atomic import already_made
    from vlcpctl.engine.identity import semantic
    from vlcpctl.engine.plan import make_plan

    if already_made(request.out, "checkpoint", semantic(request), force=request.force):
        console.say(f"{request.out} is finished already")
    else:
        for line in make_plan(request).lines():
            console.say(line)
    console.emit(request.out)


def _print_configuration(request: Request, *, as_json: bool) -> None:
    from vlcpctl.engine.settings import configuration

    rows = list(configuration(request.settings, request.origins, request.methods))
    if as_json:
        console.emit(
            json_text({name: {"value": value, "origin": origin} for name, value, origin in rows})
        )
        return
    for name, value, origin in rows:
        console.emit(f"{name} = {value}  [{origin}]")


def _result(path: Path) -> str:
    from vlcpctl.core.artifacts import read_manifest

    manifest = read_manifest(path, "checkpoint")
    names = ("content", "run", "method", "step", "pairs", "train_seconds")
    return json_text({"path": str(path), **{name: manifest[name] for name in names}})

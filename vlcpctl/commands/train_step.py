"""`vlcpctl train-step`: train a model on one task and write the next checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from json import dumps as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcpctl.commands import options
from vlcpctl.commands.paths import require_paths
from vlcpctl.core import console
from vlcpctl.core.words import printable
from vlcpctl.training.config.run_options import RunOptions
from vlcpctl.training.config.settings import SETTINGS, Settings

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
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Training budget: ctp, ctp-dual, incclip, modx, modx-finetune, update, dha or tiny "
        "(default: that of the method, and ctp-dual, with a dual encoder, for ctp).",
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
RunName = Annotated[
    str,
    typer.Option(
        "--run",
        parser=options.run_name,
        metavar="NAME",
        help="Name of the run in rows and reports (default: --method).",
        rich_help_panel=options.OUTPUT,
    ),
]
PrintConfig = Annotated[
    bool,
    typer.Option(
        "--print-config",
        help="Print every setting with its origin, and exit.",
        rich_help_panel=options.OUTPUT,
    ),
]


@options.with_fields(Settings, RunOptions)
def run(
    tasks: Tasks,
    out: options.Out,
    method: MethodName,
    method_file: options.MethodFiles = None,
    preset: Preset = None,
    set_: Assign = None,
    run_name: RunName = "",
    *,
    log: options.Log = None,
    print_config: PrintConfig = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    workers: options.Workers = None,
    threads: options.Threads = options.DEFAULT_THREADS,
    limit: options.Limit = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
    dry_run: options.DryRun = False,
    **fields: Any,
) -> None:
    r"""Train on one task and write the next checkpoint.

    If it is interrupted, run the same command again: it resumes and ends with the same bytes.

    To start the first task from a pretrained model, convert it with import-checkpoint and pass it
    as --previous: methods then protect it like the model of an earlier task, except for ewc, mas,
    si, rwalk, afec and gnsp, which have not measured anything yet. No method protects the weights
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
    flags = options.given(run, locals() | fields)
    options.start(quiet=quiet, threads=threads)
    request = _request(flags)
    if print_config:
        _print_configuration(request, as_json=json)
        return
    if dry_run:
        _say_plan(request)
        if method_files := flags.get("method_file"):
            _try_hooks(request, method_files)
        console.emit(request.out)
        return
    given = (request.buffer, request.targets, request.reference, request.pseudo_texts)
    require_paths(*request.tasks, *given)
    from vlcpctl.files.manifest import content_of
    from vlcpctl.files.outputs import naming_output

    for model in (request.previous, request.teacher):
        if model is not None:
            content_of(model, "checkpoint")  # refuses another path before torch is imported
    from vlcpctl.training.launch import train

    with naming_output(out):
        path = train(request, quiet=quiet)
    if path is not None:
        console.emit(_result(path) if json else path)


def _request(flags: dict[str, Any]) -> TrainRequest:
    """The request that the options describe; made without importing torch."""
    from vlcpctl.distributed.ranks import processes
    from vlcpctl.methods.plugins.registry import MethodRegistry
    from vlcpctl.tracking.destinations import destinations
    from vlcpctl.training.config.composition import (
        compose,
        compose_with,
        preset_of,
        settings_of_methods,
    )
    from vlcpctl.training.config.presets import INSTEAD
    from vlcpctl.training.config.request import TrainRequest, save_every
    from vlcpctl.training.config.resolution import resolve

    registry = MethodRegistry.of(flags.get("method_file"))
    words = flags["method"], flags.get("set_", ()), registry
    usual = preset_of(compose(*words), _preset_of_previous(flags))
    preset = flags.get("preset") or usual
    methods, hyper_origins = compose_with(preset, *words)
    registry.refuse_idle_files(flags["method"])
    save_every(flags.get("save_every", TrainRequest.save_every))
    log = destinations(flags.get("log"))
    given = {name: flags[name] for name in SETTINGS if name in flags}
    settings, origins = resolve(preset, given, settings_of_methods(methods))
    notes = []
    if usual in INSTEAD.values() and not flags.keys() & {"preset", "model", "previous"}:
        notes = [f"no --preset is given: {usual} has a dual encoder; --preset ctp is the paper's"]
    carried = {field.name for field in dataclasses.fields(TrainRequest)} & flags.keys()
    return TrainRequest(
        **{name: flags[name] for name in carried - {"tasks", "run", "nproc", "log"}},
        nproc=processes(flags.get("nproc")),
        tasks=tuple(flags["tasks"]),
        run=flags["run_name"] or flags["method"],
        methods=methods,
        settings=settings,
        origins=origins | hyper_origins,
        notes=tuple(notes),
        log=log,
    )


def _preset_of_previous(flags: Mapping[str, Any]) -> str | None:
    """The preset of the checkpoint that --previous names; None before that has been made."""
    from vlcpctl.checkpoints.manifest import CheckpointManifest
    from vlcpctl.checkpoints.step_config import preset_of

    previous = flags.get("previous")
    if previous is None or not previous.exists():
        return None
    return preset_of(CheckpointManifest.read(previous))


def _say_plan(request: TrainRequest) -> None:
    from vlcpctl.training.adaptation import adapted
    from vlcpctl.training.foresight import require_possible
    from vlcpctl.training.identity import already_trained, semantic
    from vlcpctl.training.plan import make_plan

    request = adapted(request)
    if already_trained(request, semantic(request)):
        console.say(f"{request.out} is already finished")
    else:
        require_possible(request)
        plan = make_plan(request)
        for line in plan.lines():
            console.say(line)
        for warning in plan.all_warnings():
            console.warn(warning)


def _try_hooks(request: TrainRequest, files: Sequence[Path]) -> None:
    """Call the hooks of the user's methods on a tiny stream: the run would find a mistake late.

    Only here does a dry run import torch: their code may do so anyway.
    """
    from vlcpctl.methods.plugins.registry import MethodRegistry
    from vlcpctl.models.configuration import fusion_configuration
    from vlcpctl.testing.trial import try_methods

    model = str(request.previous or request.settings.model)
    is_fusion = fusion_configuration(model) is not None
    try_methods(request.methods, MethodRegistry.of(files), is_fusion=is_fusion)
    console.say(f"the hooks of {request.method_name} ran on two tiny tasks")


def _print_configuration(request: TrainRequest, *, as_json: bool) -> None:
    from vlcpctl.training.adaptation import adapted_as_far_as_known
    from vlcpctl.training.config.resolution import configuration

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

"""`vlcpctl train-step`: train a model on one task and write the next checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from json import dumps as json_text
from pathlib import Path
from typing import TYPE_CHECKING

from vlcpctl.commands.paths import require_paths
from vlcpctl.commands.shared import Planned, Shared, Stored, run_name
from vlcpctl.core import console
from vlcpctl.core.options import (
    METHOD,
    Auto,
    Paths,
    PathTexts,
    Texts,
    argument,
    like,
    option,
    options_of,
    printing,
    required,
    several,
)
from vlcpctl.core.words import printable
from vlcpctl.training.settings import SETTINGS, RunOptions, Settings

if TYPE_CHECKING:
    from vlcpctl.training.request import TrainRequest


_CARRIED = ("out", "seed", "limit", "force", "device", "workers", "threads")


class TrainStep(Settings, RunOptions, Planned, Stored):
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

    tasks: Paths = argument(
        "TASK", "Task directory; several are trained on together", kw_only=False, stored=True
    )
    method: str = required(
        "Method, or several joined with +",
        "NAME[+NAME...]",
        METHOD,
        short="-m",
        offers="joined_methods",
    )
    method_file: Paths = like(Shared, "method_file", default=())
    preset: str | None = option(
        "Training budget: ctp, ctp-dual, incclip, modx, modx-finetune, update, dha or tiny",
        "NAME",
        METHOD,
        otherwise="that of the method, and ctp-dual, with a dual encoder, for ctp",
        offers="presets",
        usual=True,
    )
    set: Texts = several(
        "Set a hyper-parameter of a method; repeat for more",
        "METHOD.PARAMETER=VALUE",
        METHOD,
        otherwise="see vlcpctl methods",
        offers="assignments",
        usual=True,
    )
    run: str | None = option(
        "Name of the run in rows and reports", "NAME", otherwise="--method", parse=run_name
    )
    log: PathTexts = like(Shared, "log", default=())
    print_config: bool = printing("Print every setting with its origin, and exit")
    seed: int = like(Shared, "seed", default=0, usual=True)
    device: str = like(Shared, "device", default="auto")
    workers: Auto = like(Shared, "workers", default=None)
    threads: int = like(Shared, "threads", default=1)
    limit: int | None = like(Shared, "limit", default=None)

    def execute(self) -> None:
        request = self.request()
        if self.print_config:
            _print_configuration(request, as_json=self.json)
            return
        if self.dry_run:
            from vlcpctl.training.plan import announced

            announced(request)
            if self.method_file:
                _try_hooks(request, self.method_file)
            console.emit(request.out)
            return
        given = (request.buffer, request.targets, request.reference, request.pseudo_texts)
        require_paths(*request.tasks, *given)
        from vlcpctl.files.outputs import naming_output
        from vlcpctl.training.launch import train

        with naming_output(self.out):
            path = train(request, quiet=self.quiet)
        if path is not None:
            console.emit(_result(path) if self.json else path)

    def request(self) -> TrainRequest:
        """What is asked, with its methods and settings; made without importing torch."""
        from vlcpctl.distributed.ranks import processes
        from vlcpctl.methods.plugins.registry import MethodRegistry
        from vlcpctl.training.methods import compose, compose_with, preset_of, settings_of_methods
        from vlcpctl.training.presets import INSTEAD, resolve
        from vlcpctl.training.request import TrainRequest

        registry = MethodRegistry.of(self.method_file)
        words = self.method, self.set, registry
        usual = preset_of(compose(*words), _preset_of_previous(self.previous))
        methods, hyper_origins = compose_with(self.preset or usual, *words)
        given = {name: value for name, value in vars(self).items() if value is not None}
        flags = {name: given[name] for name in SETTINGS if name in given}
        inherited = settings_of_methods(methods)
        settings, origins = resolve(self.preset or usual, flags, inherited)
        notes = [f"no --preset is given: {usual} has a dual encoder; --preset ctp is the paper's"]
        if usual not in INSTEAD.values() or given.keys() & {"preset", "model", "previous"}:
            notes = []
        used = registry.used_files(self.method)
        unused = [file.path for file in registry.files if file not in used]
        notes += [f"--method {self.method} uses nothing of --method-file {one}" for one in unused]
        names = [*options_of(RunOptions), *_CARRIED]
        return TrainRequest(
            **{name: given[name] for name in names if name in given}
            | {"nproc": processes(given.get("nproc"))},
            tasks=tuple(self.tasks),
            run=self.run or self.method,
            methods=methods,
            settings=settings,
            origins=origins | hyper_origins,
            notes=tuple(notes),
            log=self._destinations(),
        )

    def _destinations(self) -> tuple[str, ...]:
        if not self.log:
            return ()
        from vlcpctl.tracking.trackers import destinations

        return destinations(self.log)


def _preset_of_previous(previous: Path | None) -> str | None:
    """The preset of the checkpoint that --previous names; None before that has been made."""
    from vlcpctl.checkpoints.manifest import CheckpointManifest
    from vlcpctl.checkpoints.step_config import preset_of

    if previous is None or not previous.exists():
        return None
    return preset_of(CheckpointManifest.read(previous))


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
    from vlcpctl.training.presets import configuration

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

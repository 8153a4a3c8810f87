"""What a train-step refuses before a model is loaded: options and inputs that do not fit together.

Torch-free, but for a device that is named.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput, Incompatible, UsageError
from vlcpctl.core.machine import has_tf32, is_gpu
from vlcpctl.core.method import Method
from vlcpctl.core.options import GoesWith, refuse_idle
from vlcpctl.data.tasks.task import Split, Task
from vlcpctl.files.outputs import Output
from vlcpctl.models.checkpoint_files import WEIGHT_SUFFIXES
from vlcpctl.models.configuration import fusion_configuration, is_of_a_hub
from vlcpctl.training.lora import adapted_names, adapted_shapes, parse_lora
from vlcpctl.training.methods import refuse_idle_scale
from vlcpctl.training.phases import PhasePlan
from vlcpctl.training.presets import refuse_idle_settings
from vlcpctl.training.request import Inputs, TrainRequest
from vlcpctl.training.settings import BENCHMARK, SIGMOID
from vlcpctl.training.state import STATE

_FIXED = ("loss", "temperature", "text_length", "pretrained", "heads")
_IDLE = (
    GoesWith("model", "previous", (), "the model is that of the previous checkpoint"),
    *(GoesWith(name, "previous", (), "the previous checkpoint fixes it") for name in _FIXED),
    GoesWith("replay", "buffer"),
    GoesWith("fresh_state", "previous", None, "a first task has no earlier state"),
    GoesWith("from_scratch", "previous", (), "training starts from it"),
)
# Slots that hold a slow copy of the weights, of ctp, dha and ema.
_SLOW = frozenset({"momentum", "history", "average"})


def check_processes(request: TrainRequest) -> None:
    """Raise UsageError if the batch, or the processes among machines, cannot be split evenly."""
    size, nproc, nodes = request.settings.batch_size, request.nproc, request.nodes
    if size % nproc:
        use = f"--batch-size {size - size % nproc}" if size > nproc else f"at most {size} processes"
        raise UsageError(f"--batch-size {size} is not divisible by {nproc} processes; use {use}")
    if request.local_loss and nproc == 1:
        raise UsageError(
            "--local-loss has no effect with one process: all pairs are its own; use --nproc"
        )
    if nproc % nodes:
        raise UsageError(f"--nproc {nproc} is not divisible by --nodes {nodes}")
    if nodes > 1 and not request.rendezvous:
        raise UsageError(f"--nodes {nodes} needs --rendezvous HOST:PORT, the same on every machine")
    if nodes == 1 and request.rendezvous:
        raise UsageError(
            f"--rendezvous {request.rendezvous} has no effect without --nodes: "
            "it is the address at which several machines connect"
        )


def check_execution(request: TrainRequest) -> None:
    """Raise UsageError for a device that is not there, and for options that the device lacks.

    Imports torch only for a device that is named, and on a GPU.
    """
    if request.device not in {"auto", "cpu"}:
        from vlcpctl.core.devices import torch_device

        torch_device(request.device)
    on_gpu = is_gpu(request.device)
    if request.tf32 and not on_gpu:
        raise UsageError("--tf32 has no effect: only GPUs have TF32, and the device is a CPU")
    if request.tf32 and not has_tf32():
        raise UsageError("--tf32 has no effect: this GPU is older than TF32 (NVIDIA Ampere)")
    if request.cudnn == BENCHMARK and not on_gpu:
        raise UsageError("--cudnn has no effect: only GPUs use cuDNN, and the device is a CPU")
    if request.compile:
        _require_compiler(on_gpu=on_gpu)


def _require_compiler(*, on_gpu: bool) -> None:
    """Raise UsageError if torch would not find a compiler, which it reports only after minutes."""
    # As torch's inductor looks for one for a CPU, and triton for a GPU.
    variable, usual = ("CC", ("gcc", "clang")) if on_gpu else ("CXX", ("g++",))
    names = (os.environ[variable],) if os.environ.get(variable) else usual
    if not any(shutil.which(name) for name in names):
        raise UsageError(
            f"--compile needs a C compiler, but {' and '.join(names)} cannot be found; install one "
            f"or set {variable}, or leave out --compile"
        )


def check_inputs(request: TrainRequest, inputs: Inputs) -> None:
    """Refuse what the manifests show to be a mistake, before an index is read.

    Raises UsageError, BadInput or Incompatible.
    """
    _check_tasks(request, inputs.tasks)
    refuse_idle_settings(request.settings, request.origins)
    refuse_idle_inputs(request)
    _check_resume(request)
    if inputs.buffer is not None:
        check_buffer(inputs.tasks, inputs.buffer)
    if inputs.previous is not None:
        _check_previous(request, inputs.tasks, inputs.previous)
    _check_model(request)
    _check_lora(request)
    _check_methods(request, inputs)


def _check_tasks(request: TrainRequest, tasks: Sequence[Task]) -> None:
    """Refuse a task that is given twice, or a later one without the model of the one before."""
    known: dict[str, Task] = {}
    for task in tasks:
        if (same := known.setdefault(task.id, task)) is not task:
            raise UsageError(f"{task.path} contains the same task as {same.path}; give it once")
    steps = [task.step for task in tasks if task.step is not None]
    is_later = bool(steps) and min(steps) > 0
    if is_later and request.previous is None and not request.from_scratch:
        raise UsageError(
            f"{tasks[0].path} is task {min(steps)} of its stream and there is no --previous; "
            "give the checkpoint of the previous task, or --from-scratch"
        )
    if request.from_scratch and request.previous is None and not is_later:
        raise UsageError(f"--from-scratch has no effect: {tasks[0].path} is a first task")


def refuse_idle_inputs(request: TrainRequest) -> None:
    """Raise UsageError for a teacher that no method uses, and options idle after a first task."""
    names, flags = request.method_name, request.flags
    needs = [method.needs(first=False) for method in request.methods]
    uses_features = any(need.previous or need.pseudo_texts for need in needs)
    uses_weights = request.previous is None and any(need.previous_weights for need in needs)
    if request.teacher is not None and not (uses_features or uses_weights):
        raise UsageError(
            f"--teacher has no effect with --method {names}: its current settings use no teacher"
        )
    flags |= {name for name in ("fresh_state", "from_scratch") if getattr(request, name)}
    refuse_idle(_IDLE, vars(request), flags)
    slots = [slot for method in request.methods for slot in method.slots(first=request.is_first)]
    if request.fresh_state and all(slot.lifetime == "task" for slot in slots):
        raise UsageError(
            f"--fresh-state has no effect with --method {names}: it takes no state from the "
            "previous checkpoint"
        )
    if "blend_buffers" in flags and not any(slot.name in _SLOW for slot in slots):
        raise UsageError(
            f"--blend-buffers has no effect with --method {names}: it averages no weights here"
        )
    if request.settings.scale_per_step is not None:
        refuse_idle_scale(request.methods, request.settings.scale_per_step)


def _check_resume(request: TrainRequest) -> None:
    """Refuse --accept-inexact if there is no saved state that it could apply to."""
    if not request.accept_inexact:
        return
    if request.force:
        raise UsageError("--accept-inexact has no effect with --force: it starts over")
    if not (Output(request.out).partial / STATE).exists():
        raise UsageError(
            f"--accept-inexact has no effect: there is no unfinished run of {request.out} to resume"
        )


def check_buffer(tasks: Sequence[Task], buffer: Task) -> None:
    """Refuse a task in the place of a buffer, and a buffer that was updated too early."""
    if buffer.manifest.buffer is None:
        raise BadInput(f"--buffer {buffer.path} is not a buffer; make one with 'vlcpctl buffer'")
    for task in tasks:
        if task.is_among(buffer.buffer.seen):
            raise UsageError(
                f"--buffer {buffer.path} contains pairs of {task.path}, which this run trains on; "
                "use the buffer made before this task"
            )


def _check_previous(
    request: TrainRequest, tasks: Sequence[Task], previous: CheckpointManifest
) -> None:
    """Refuse a model that has learned these tasks, or any if a method starts from an unseen one."""
    for method in request.methods:
        if method.from_unseen and previous.tasks:
            raise UsageError(
                f"method {method.name} needs a model that was not trained on any task; "
                f"{request.previous} was trained on {len(previous.tasks)}"
            )
    # A report could not tell the rows of an imported model from those of the task's own step.
    learned = previous.step if previous.origin is not None else None
    for task in tasks:
        if learned is not None and task.step is not None and task.step <= learned:
            raise UsageError(
                f"{task.path} is task {task.step} of its stream, but {request.previous} was "
                f"imported with --step {learned}, as a model that has learned it; import it "
                "without --step to start from it"
            )
        if task.is_among(previous.tasks):
            raise UsageError(f"{request.previous} was already trained on {task.path}")


def _check_model(request: TrainRequest) -> None:
    """Refuse a new model without weights of its own, and a loss that the model cannot have."""
    model, pretrained = request.model, request.settings.pretrained
    if request.settings.loss == SIGMOID and fusion_configuration(model) is not None:
        raise UsageError(
            f"--loss sigmoid is for dual encoders: {model} is a fusion model, whose similarities "
            "have no bias"
        )
    if request.previous is not None:
        return
    if is_of_a_hub(model) and pretrained in (None, "none"):
        raise UsageError(
            f"--model {model} has the architecture of that model and random weights; download its "
            "directory ('hf download'), convert it with 'vlcpctl import-checkpoint DIR -o CKPT' "
            "and give --previous CKPT, or give its weights with --pretrained FILE"
        )
    if pretrained and Path(pretrained).suffix in WEIGHT_SUFFIXES and not Path(pretrained).exists():
        raise Incompatible(f"cannot read {pretrained}: it does not exist")


def _check_methods(request: TrainRequest, inputs: Inputs) -> None:
    """Refuse methods that need a buffer, or another one, or a queue that groups do not fit."""
    buffer, previous = inputs.buffer, inputs.previous
    for method in request.methods:
        needs = method.needs(first=request.is_first)
        if needs.buffer and buffer is None:
            why = "needs --buffer after the first task"
            if previous is not None and not previous.tasks:
                why = (
                    "needs --buffer: it protects the model of --previous with pairs of its data; "
                    "make one with 'vlcpctl buffer', or use a method that needs none, such as ctp"
                )
            raise UsageError(f"method {method.name} {why}")
        if needs.buffer and buffer is not None:
            policy = buffer.buffer.policy
            if needs.stored_features and not buffer.buffer.features:
                raise UsageError(
                    f"method {method.name} needs the stored features of replayed pairs; "
                    f"{buffer.path} was made without 'vlcpctl buffer --store-features'"
                )
            if needs.policy not in {"", policy}:
                raise UsageError(
                    f"method {method.name} needs a buffer made with 'vlcpctl buffer --policy "
                    f"{needs.policy}'; {buffer.path} was made with {policy!r}"
                )
        # Groups are numbered from 0 in each task, so a queue of several tasks would mix them up.
        slots = method.slots(first=request.is_first) if method.queued else ()
        kept = [slot.name for slot in slots if slot.lifetime == "stream"]
        if kept and request.settings.negatives == "distinct":
            raise UsageError(
                f"--negatives distinct cannot be used with {method.name}'s {kept[0]} kept across "
                "tasks: the groups of pairs have other numbers in each task; use --negatives all, "
                "or keep it for one task only"
            )


def check_steps(
    request: TrainRequest, splits: Sequence[Split], phases: Sequence[PhasePlan]
) -> None:
    """Raise UsageError for --captions all without a second one, and an endless warm-up."""
    settings = request.settings
    is_given = "captions" in request.flags and settings.captions == "all"
    if is_given and all(int(split.caption_counts().max(initial=0)) <= 1 for split in splits):
        raise UsageError("--captions all has no effect: no image has more than one caption")
    for phase in phases:
        if phase.trains and round(settings.warmup * phase.whole) >= phase.whole:
            raise UsageError(
                f"--warmup {settings.warmup:g} makes all {phase.whole} steps warm-up "
                "steps; use a smaller share"
            )


def _check_lora(request: TrainRequest) -> None:
    """Raise UsageError where adapters of the rank cannot hold what the run would train."""
    if request.settings.lora is None:
        return
    size, previous = parse_lora(request.settings.lora), request.previous
    if previous is None:
        raise UsageError(
            "--lora needs --previous: adapters change a model that has learned; 'vlcpctl "
            "import-checkpoint' makes a checkpoint of a pretrained one"
        )
    for method in request.methods:
        if why := _not_held(method):
            raise UsageError(f"--lora cannot be used with method {method.name}, {why}")
    shapes = adapted_shapes(previous)
    for tower in ("image", "text"):
        if not adapted_names(shapes, tower):
            raise UsageError(
                f"--lora is for open_clip's transformers: the {tower} encoder of {request.model} "
                "has none; train all its weights, without --lora"
            )
    name = min(shapes, key=lambda one: min(shapes[one]))
    if size.rank > min(shapes[name]):
        raise UsageError(
            f"--lora {request.settings.lora}: the rank is above {min(shapes[name])}, the smaller "
            f"side of {name}; use a smaller one"
        )


def _not_held(method: Method) -> str:
    """Why adapters of fixed rank cannot hold what a method does to the weights; "" if they can."""
    if type(method).replace_gradients is not Method.replace_gradients:
        return "which replaces the gradients of the weights; train all weights, without --lora"
    if method.overwrites:
        advice = method.overwrites_unless and f"; give --set {method.overwrites_unless}"
        return f"whose hooks change the weights themselves{advice}"
    if any(phase.weights for phase in method.phases(first=False)):
        return "which trains a second model beside this one"
    return ""

"""The plan of a train-step: a request checked against its inputs, before a model is loaded.

Torch-free, so that a dry run and a mistake answer at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput, Incompatible, UsageError
from vlcpctl.core.method import TRAIN, Method
from vlcpctl.core.options import GoesWith, refuse_idle
from vlcpctl.data.loading.groups import pair_groups
from vlcpctl.data.loading.sampler import PairSampler
from vlcpctl.data.tasks.task import Split, Task, open_task
from vlcpctl.files.outputs import Output
from vlcpctl.models.checkpoint_files import WEIGHT_SUFFIXES
from vlcpctl.models.configuration import fusion_configuration, is_of_a_hub
from vlcpctl.training.adaptation import adapted, training_split
from vlcpctl.training.execution import check_execution, check_processes
from vlcpctl.training.history import TaskHistory
from vlcpctl.training.identity import semantic
from vlcpctl.training.lora import check_lora
from vlcpctl.training.methods import refuse_idle_scale, scaled
from vlcpctl.training.phases import PhasePlan, plan_phases
from vlcpctl.training.presets import parse_replay, refuse_idle_settings
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.settings import SIGMOID
from vlcpctl.training.state import STATE
from vlcpctl.training.teachers import (
    PseudoTextSource,
    ReferenceSource,
    open_teacher_targets,
    pseudo_text_source,
    reference_source,
)
from vlcpctl.training.warnings import negative_warnings, warnings_of

if TYPE_CHECKING:
    from vlcpctl.data.precomputed.features import StoredProjections
    from vlcpctl.data.precomputed.targets import TeacherTargets

_FIXED = ("loss", "temperature", "text_length", "pretrained", "heads")
_IDLE = (
    GoesWith("model", "previous", (), "the model is that of the previous checkpoint"),
    *(GoesWith(name, "previous", (), "the previous checkpoint fixes it") for name in _FIXED),
    GoesWith("replay", "buffer"),
    GoesWith("fresh_state", "previous", None, "there is no state to leave out"),
    GoesWith("from_scratch", "previous", (), "training starts from it"),
)
# Slots that hold a slow copy of the weights, of ctp, dha and ema.
_SLOW = frozenset({"momentum", "history", "average"})


@dataclass(frozen=True)
class TrainPlan:
    """A checked request with its opened inputs, its pairs and its phases."""

    request: TrainRequest
    identity: dict[str, Any]
    tasks: tuple[Task, ...]
    buffer: Task | None
    parent: CheckpointManifest | None
    sampler: PairSampler
    phases: tuple[PhasePlan, ...]
    pseudo_texts: PseudoTextSource | None
    taught: TeacherTargets | None
    reference: ReferenceSource | None
    warnings: tuple[str, ...]  # about what the run continues from, which its result records

    @cached_property
    def stored(self) -> StoredProjections | None:
        """The features stored in the buffer, if a method needs them, else None."""
        first = self.request.is_first
        needed = any(one.needs(first=first).stored_features for one in self.request.methods)
        if not needed or self.buffer is None:
            return None
        from vlcpctl.data.precomputed.features import read_features

        return read_features(self.buffer)

    @cached_property
    def groups(self) -> list[np.ndarray] | None:
        """The groups of the rows of each split, (N,) int64 each; None with --negatives all."""
        return self._groups(self.sampler.splits)

    @cached_property
    def reference_groups(self) -> list[np.ndarray] | None:
        """The groups of the pairs of --reference, as `groups` has those of training."""
        return self._groups([self.reference.sampler.buffer]) if self.reference else None

    @cached_property
    def validation_groups(self) -> list[np.ndarray] | None:
        """The groups of the rows of each validation split, as `groups` has those of training."""
        return self._groups([task.split("val") for task in self.tasks])

    def _groups(self, splits: Sequence[Split]) -> list[np.ndarray] | None:
        return pair_groups(splits) if self.request.settings.negatives == "distinct" else None

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods to train with: those of the request, with shares scaled to the steps."""
        scale, first = self.request.settings.scale_per_step, self.request.is_first
        return scaled(self.request.methods, scale, self.trained, first=first)

    @property
    def trained(self) -> int:
        """The number of steps that train the model."""
        return next(phase.whole for phase in self.phases if phase.name == TRAIN.name)

    @property
    def history(self) -> TaskHistory:
        """The stream steps of the tasks in this run."""
        return TaskHistory(self.tasks, self.request.run, self.parent)

    def uses_reference(self, phase: PhasePlan) -> bool:
        """Whether a method of the phase needs the pairs of --reference."""
        methods = [one for one in self.request.methods if one.name in phase.methods]
        return any(one.needs(first=self.request.is_first).reference for one in methods)

    def all_warnings(self) -> tuple[str, ...]:
        """The warnings to show with the plan: also about negatives."""
        steps = sum(phase.steps for phase in self.phases)
        found = negative_warnings(
            self.request,
            self.sampler,
            steps,
            lambda: self.groups or pair_groups(self.sampler.splits),
        )
        return (*self.warnings, *found)


def make_plan(request: TrainRequest, identity: dict[str, Any] | None = None) -> TrainPlan:
    """Open the inputs of a request and check that they fit together.

    `identity` is what `semantic` returns for the request, if that is known.
    Raises BadInput for an input that is not what its option needs, UsageError for options that
    contradict each other or have no effect, and Incompatible for inputs made for other models.
    """
    request = adapted(request)
    settings = request.settings
    check_processes(request)
    check_execution(request)
    tasks = tuple(open_task(path) for path in request.tasks)
    buffer = open_task(request.buffer) if request.buffer else None
    parent = CheckpointManifest.read(request.previous) if request.previous else None
    _check_inputs(request, tasks, buffer, parent)
    sampler = PairSampler(
        [training_split(task) for task in tasks],
        training_split(buffer) if buffer else None,
        batch_size=settings.batch_size,
        captions=settings.captions,
        replay=parse_replay(settings.replay),
        seed=request.drawn_seed,
        limit=request.limit,
    )
    phases = plan_phases(
        request.methods,
        first=request.is_first,
        epoch_steps=sampler.epoch_steps,
        epochs=settings.epochs,
        steps=settings.steps,
    )
    pseudo_texts = pseudo_text_source(request, buffer)
    sources = [*tasks, *([buffer] if buffer else [])]
    taught = open_teacher_targets(request, sources, sampler.splits)
    _check_steps(request, sampler.splits, phases)
    history = TaskHistory(tasks, request.run, parent)
    history.require_room()
    reference = reference_source(request)
    pairs = reference.sampler.buffer if reference else None
    warnings = warnings_of(request, history, sampler, buffer, pairs)
    inputs = (sampler, phases, pseudo_texts, taught, reference, warnings)
    identity = semantic(request) if identity is None else identity
    return TrainPlan(request, identity, tasks, buffer, parent, *inputs)


def _check_inputs(
    request: TrainRequest,
    tasks: Sequence[Task],
    buffer: Task | None,
    parent: CheckpointManifest | None,
) -> None:
    """Refuse what the manifests show to be a mistake, before an index is read."""
    _check_tasks(request, tasks, parent)
    refuse_idle_settings(request.settings, request.origins)
    refuse_idle_inputs(request)
    _check_resume(request)
    if buffer is not None:
        _check_buffer(tasks, buffer)
    if parent is not None:
        _check_parent(request, tasks, parent)
    _check_model(request)
    check_lora(request)
    _check_methods(request, buffer, parent)


def _check_tasks(
    request: TrainRequest, tasks: Sequence[Task], parent: CheckpointManifest | None
) -> None:
    """Refuse a task that is given twice, or a later one without the model of the one before."""
    known: dict[str, Task] = {}
    for task in tasks:
        if (same := known.setdefault(task.id, task)) is not task:
            raise UsageError(f"{task.path} contains the same task as {same.path}; give it once")
    steps = [task.step for task in tasks if task.step is not None]
    is_later = bool(steps) and min(steps) > 0
    if is_later and parent is None and not request.from_scratch:
        raise UsageError(
            f"{tasks[0].path} is task {min(steps)} of its stream and there is no --previous; "
            "give the checkpoint of the previous task, or --from-scratch"
        )
    if request.from_scratch and parent is None and not is_later:
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


def _check_buffer(tasks: Sequence[Task], buffer: Task) -> None:
    """Refuse a task in the place of a buffer, and a buffer that was updated too early."""
    if buffer.manifest.buffer is None:
        raise BadInput(f"--buffer {buffer.path} is not a buffer; make one with 'vlcpctl buffer'")
    for task in tasks:
        if task.is_among(buffer.buffer.seen):
            raise UsageError(
                f"--buffer {buffer.path} contains pairs of {task.path}, which this run trains on; "
                "use the buffer made before this task"
            )


def _check_parent(request: TrainRequest, tasks: Sequence[Task], parent: CheckpointManifest) -> None:
    """Refuse a model that has learned these tasks, or any if a method starts from an unseen one."""
    for method in request.methods:
        if method.from_unseen and parent.tasks:
            raise UsageError(
                f"method {method.name} needs a model that was not trained on any task; "
                f"{request.previous} was trained on {len(parent.tasks)}"
            )
    # A report could not tell the rows of an imported model from those of the task's own step.
    learned = parent.step if parent.origin is not None else None
    for task in tasks:
        if learned is not None and task.step is not None and task.step <= learned:
            raise UsageError(
                f"{task.path} is task {task.step} of its stream, but {request.previous} was "
                f"imported with --step {learned}, as a model that has learned it; import it "
                "without --step to start from it"
            )
        if task.is_among(parent.tasks):
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


def _check_methods(
    request: TrainRequest, buffer: Task | None, parent: CheckpointManifest | None
) -> None:
    """Refuse methods that need a buffer, or another one, or a queue that groups do not fit."""
    for method in request.methods:
        needs = method.needs(first=request.is_first)
        if needs.buffer and buffer is None:
            why = "needs --buffer after the first task"
            if parent is not None and not parent.tasks:
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
        # Each task numbers its groups anew.
        slots = method.slots(first=request.is_first) if method.queued else ()
        kept = [slot.name for slot in slots if slot.lifetime == "stream"]
        if kept and request.settings.negatives == "distinct":
            raise UsageError(
                f"--negatives distinct cannot be used with {method.name}'s {kept[0]} kept across "
                "tasks: the groups of pairs have other numbers in each task; use --negatives all, "
                "or keep it for one task only"
            )


def _check_steps(
    request: TrainRequest, splits: Sequence[Split], phases: Sequence[PhasePlan]
) -> None:
    """Refuse --captions all without a second caption, and a warm-up that never ends."""
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

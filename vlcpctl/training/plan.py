"""The plan of a train-step: a request checked against its inputs, and said, before a model loads.

Torch-free, so that a dry run and a mistake answer at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vlcpctl.checkpoints.model_facts import shown
from vlcpctl.core import console, machine
from vlcpctl.core.errors import some_names
from vlcpctl.core.machine import has_tf32, is_gpu, own_cores
from vlcpctl.core.method import TRAIN, Method, Needs
from vlcpctl.data.loading.groups import pair_groups
from vlcpctl.data.loading.sampler import BufferSampler, PairSampler
from vlcpctl.data.tasks.task import Split
from vlcpctl.files.finished import already_made
from vlcpctl.models.checkpoint_files import SLOTS
from vlcpctl.models.configuration import activation_note, in_words
from vlcpctl.training.adaptation import adapted
from vlcpctl.training.checks import check_execution, check_inputs, check_processes, check_steps
from vlcpctl.training.history import TaskHistory, negative_warnings, warnings_of
from vlcpctl.training.lora import adapted_shapes, parse_lora
from vlcpctl.training.methods import scale_lines, scaled
from vlcpctl.training.phases import PhasePlan, plan_phases
from vlcpctl.training.presets import parse_replay
from vlcpctl.training.request import NUMERIC, Inputs, TrainRequest, opened, semantic
from vlcpctl.training.settings import BENCHMARK, SIGMOID
from vlcpctl.training.teachers import (
    PseudoTextSource,
    pseudo_text_source,
    reference_sampler,
    targets_line,
    teacher_targets,
)

if TYPE_CHECKING:
    from vlcpctl.data.precomputed.features import StoredProjections
    from vlcpctl.data.precomputed.targets import Targets


@dataclass(frozen=True)
class TrainPlan:
    """A checked request with its opened inputs, its pairs and its phases."""

    request: TrainRequest
    identity: dict[str, Any]
    inputs: Inputs
    history: TaskHistory
    sampler: PairSampler
    phases: tuple[PhasePlan, ...]
    pseudo_texts: PseudoTextSource | None
    taught: Targets | None
    reference: BufferSampler | None
    warnings: tuple[str, ...]  # about what the run continues from, which its result records

    @cached_property
    def stored(self) -> StoredProjections | None:
        """The features stored in the buffer, if a method needs them, else None."""
        first = self.request.is_first
        needed = any(one.needs(first=first).stored_features for one in self.request.methods)
        if not needed or self.inputs.buffer is None:
            return None
        from vlcpctl.data.precomputed.features import read_features

        return read_features(self.inputs.buffer)

    @cached_property
    def groups(self) -> list[np.ndarray] | None:
        """The groups of the rows of each split, (N,) int64 each; None with --negatives all."""
        return self._groups(self.sampler.splits)

    @cached_property
    def reference_groups(self) -> list[np.ndarray] | None:
        """The groups of the pairs of --reference, as `groups` has those of training."""
        return self._groups([self.reference.buffer]) if self.reference else None

    @cached_property
    def validation_groups(self) -> list[np.ndarray] | None:
        """The groups of the rows of each validation split, as `groups` has those of training."""
        return self._groups([task.split("val") for task in self.inputs.tasks])

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

    def uses_reference(self, phase: PhasePlan) -> bool:
        """Whether a method of the phase needs the pairs of --reference."""
        methods = [one for one in self.request.methods if one.name in phase.methods]
        return any(one.needs(first=self.request.is_first).reference for one in methods)

    def all_warnings(self) -> tuple[str, ...]:
        """The warnings to show with the plan: also about negatives."""
        steps = sum(phase.steps for phase in self.phases)
        return (*self.warnings, *negative_warnings(self.request, self.sampler, steps))


def announced(request: TrainRequest, *, says: bool = True) -> TrainPlan | None:
    """The plan of a request, said with its warnings; None if its checkpoint is already finished.

    Raises as `make_plan` does, and OutputExists if something else is at the output.
    """
    inputs = opened(request)
    request = adapted(request, inputs)
    identity = semantic(request, inputs)
    if already_made(request.out, "checkpoint", identity, force=request.force):
        if says:
            console.say(f"train-step: {request.out} is already finished")
        return None
    plan = _planned(request, inputs, identity)
    if says:
        for line in lines(plan):
            console.say(line)
        for warning in plan.all_warnings():
            console.warn(warning)
    return plan


def make_plan(request: TrainRequest) -> TrainPlan:
    """Open the inputs of a request and check that they fit together.

    Raises BadInput for an input that is not what its option needs, UsageError for options that
    contradict each other or have no effect, and Incompatible for inputs made for other models.
    """
    inputs = opened(request)
    request = adapted(request, inputs)
    return _planned(request, inputs, semantic(request, inputs))


def _planned(request: TrainRequest, inputs: Inputs, identity: dict[str, Any]) -> TrainPlan:
    """The plan of an adapted request; raises as `make_plan` does."""
    settings = request.settings
    check_processes(request)
    check_execution(request)
    check_inputs(request, inputs)
    sampler = PairSampler(
        [task.split("train") for task in inputs.tasks],
        inputs.buffer.split("train") if inputs.buffer else None,
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
    check_steps(request, sampler.splits, phases)
    history = TaskHistory(inputs.tasks, request.run, inputs.previous)
    reference = reference_sampler(request, inputs.reference)
    return TrainPlan(
        request,
        identity,
        inputs,
        history,
        sampler,
        phases,
        pseudo_text_source(request, inputs),
        teacher_targets(request, inputs, sampler.splits),
        reference,
        warnings_of(request, history, sampler, inputs.buffer, reference),
    )


def lines(plan: TrainPlan) -> Iterator[str]:
    """The plan as lines of text, for --dry-run and the log."""
    request = plan.request
    tasks, held = plan.inputs.tasks, plan.inputs.buffer
    names = ", ".join(task.name for task in tasks)
    images = sum(task.counts["train"] for task in tasks)
    buffer = f" + buffer of {held.counts['train']}" if held else ""
    yield _model_line(plan)
    yield f"{request.method_name} on {names}: {images} images{buffer}"
    yield f"  {_execution_line(request)}"
    yield from (f"  note: {note}" for note in _notes(plan))
    yield from (f"  {line}" for line in _of_methods(plan))
    for name in dict.fromkeys(phase.name for phase in plan.phases):
        steps = sum(phase.steps for phase in plan.phases if phase.name == name)
        epochs = steps / plan.sampler.epoch_steps
        batch = request.settings.batch_size
        yield (
            f"  {name}: {steps} steps of {batch} pairs ({epochs:.3g} "
            f"epoch{'' if epochs == 1 else 's'} of {len(plan.sampler)}), "
            f"{_time(plan, steps * batch)}"
        )


def _model_line(plan: TrainPlan) -> str:
    """What is trained, and which option or preset says so."""
    request, settings = plan.request, plan.request.settings
    name, origin = settings.model, request.origins.get("model", "flag").partition(",")[0]
    words = in_words(str(request.previous or name), settings.text_length, settings.image_size)
    if request.previous is not None:
        made = plan.inputs.previous and plan.inputs.previous.model
        name, origin = shown(made) if made else name, str(request.previous)
    elif origin == "flag":
        origin = "--model"
    loss = ", for a sigmoid loss" if settings.loss == SIGMOID else ""
    return f"model {name}{f' ({words})' if words else ''} from {origin}{loss}"


def _execution_line(request: TrainRequest) -> str:
    """The device, its cores, the workers, the precision and the options, for the plan."""
    names = [words for name, words in NUMERIC.items() if getattr(request, name)]
    where = machine.in_words(request.workers, request.device)
    names += ["cudnn benchmark"] if request.cudnn == BENCHMARK else []
    cores = own_cores()
    if request.threads < cores and request.nproc == 1 and not is_gpu(request.device):
        names.append(f"{request.threads} of {cores} cores; --threads auto")
    return ", ".join((where, request.settings.precision, *names))


def _time(plan: TrainPlan, pairs: int) -> str:
    """An estimate of the time from the speed at which the parent was trained."""
    parent = plan.inputs.previous
    if not parent or not parent.train_seconds or not parent.pairs:
        return "time: shown with the progress after the first steps"
    seconds = pairs * parent.train_seconds / parent.pairs
    return f"about {seconds / 60:.1f} min at the speed of the previous checkpoint"


def _of_methods(plan: TrainPlan) -> Iterator[str]:
    """What a user should know about the methods, and what they get beside the batch."""
    request, first = plan.request, plan.request.is_first
    scale = request.settings.scale_per_step
    yield from (f"{one.name}: {one.note}" for one in request.methods if one.note)
    yield from scale_lines(request.methods, scale, plan.trained, first=first)
    if request.settings.lora is not None and request.previous is not None:
        size, shapes = parse_lora(request.settings.lora), adapted_shapes(request.previous)
        trained = sum(size.rank * sum(shape) for shape in shapes.values())
        yield (
            f"lora: rank {size.rank}, alpha {size.alpha:g}, in {len(shapes)} matrices: {trained} "
            "weights train"
        )
    if plan.taught is not None:
        yield targets_line(plan.taught, request.methods)
    if plan.pseudo_texts is not None:
        yield f"{plan.pseudo_texts.method}: {plan.pseudo_texts}"
    if plan.reference is not None:
        pairs, count = plan.reference.size, len(plan.reference.buffer)
        yield f"reference: {pairs} pairs per step, of {count} in {request.reference}"


def _notes(plan: TrainPlan) -> Iterator[str]:
    """What differs from what the options say or a user may expect."""
    request, settings = plan.request, plan.request.settings
    is_file = bool(settings.pretrained) and Path(str(settings.pretrained)).is_file()
    if is_file and (note := activation_note(settings.model)):
        yield note
    yield from _unprotected(request) if request.previous is None else _unmeasured(plan)
    yield from request.notes
    if settings.precision == "fp32" and not request.tf32 and is_gpu(request.device) and has_tf32():
        yield (
            "fp32 leaves the tensor cores unused, most of what the GPU computes with; --tf32 or "
            "--precision bf16 uses them"
        )
    if plan.inputs.buffer is not None and parse_replay(settings.replay).is_least:
        share = plan.sampler.replay_share
        what = "the buffer is shuffled with the task" if share is None else f"share={share:g}"
        yield f"--replay {settings.replay}: {what}"
    left_out, pairs = plan.sampler.left_out, plan.sampler.epoch_pairs
    if left_out:
        which = "it does" if left_out == 1 else "they do"
        yield f"each epoch leaves out {left_out} of {pairs} pairs: {which} not fill a batch"


def _unprotected(request: TrainRequest) -> Iterator[str]:
    """A note on pretrained weights of a first task, which no method protects."""
    pretrained = request.settings.pretrained
    # Parts of a fusion model, such as a BERT, are not a model that could be continued.
    is_whole = pretrained not in (None, "none") and "=" not in str(pretrained)
    names = [one.name for one in request.methods if _of_task(one, first=False) != _of_task(one)]
    if is_whole and request.teacher is None and names:
        yield (
            f"nothing of the pretrained model is protected by {some_names(names)}; for that, make "
            "a checkpoint of it with 'vlcpctl import-checkpoint' and give it as --previous"
        )


def _of_task(method: Method, *, first: bool = True) -> tuple[Needs, int]:
    """What a method uses in a task: its inputs, and the number of its slots."""
    return method.needs(first=first), len(method.slots(first=first))


def _unmeasured(plan: TrainPlan) -> Iterator[str]:
    """A note on the methods that protect what they have measured, and have measured nothing."""
    request, previous, parent = plan.request, plan.request.previous, plan.inputs.previous
    if previous is None or parent is None or (parent.tasks and not request.fresh_state):
        return
    names = [
        method.name
        for method in request.methods
        if method.measures
        and (request.fresh_state or not (previous / SLOTS / method.name).is_dir())
    ]
    if names:
        have = "has" if len(names) == 1 else "have"
        yield (
            f"{some_names(names)} {have} measured no importance of the weights yet: nothing of "
            "the model of --previous is protected in this task"
        )

"""The plan of a train-step: a request checked against its inputs, before a model is loaded.

Torch-free, so that a dry run and a mistake answer at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.model_facts import shown
from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.core.method import TRAIN, Method
from vlcpctl.core.options import GoesWith, refuse_idle
from vlcpctl.data.loading.groups import pair_groups, sizes
from vlcpctl.data.loading.sampler import PairSampler
from vlcpctl.data.precomputed.features import StoredProjections, read_features
from vlcpctl.data.precomputed.targets import TeacherTargets
from vlcpctl.data.tasks.task import Split, Task, open_task
from vlcpctl.files.outputs import Output
from vlcpctl.models.configuration import activation_note, in_words
from vlcpctl.training.adaptation import adapted
from vlcpctl.training.adapters import check_lora, lora_lines
from vlcpctl.training.config.execution import (
    check_execution,
    check_processes,
    execution_line,
    execution_notes,
)
from vlcpctl.training.config.per_step import dependence, refuse_idle_scale, scale_lines, scaled
from vlcpctl.training.config.phases import PhasePlan, plan_phases
from vlcpctl.training.config.request import TrainRequest
from vlcpctl.training.config.resolution import parse_replay, refuse_idle_settings
from vlcpctl.training.config.settings import SIGMOID
from vlcpctl.training.lineage import lineage_warnings
from vlcpctl.training.loop.state import STATE
from vlcpctl.training.method_notes import (
    policy_notes,
    queue_notes,
    shape_notes,
    shape_warnings,
    unprotected,
)
from vlcpctl.training.model_checks import batch_norm_notes, check_model
from vlcpctl.training.negatives import Negatives, warnings_if_distinct
from vlcpctl.training.offline_teacher import open_teacher_targets, targets_line
from vlcpctl.training.pseudo_text_source import PseudoTextSource, pseudo_text_source
from vlcpctl.training.reference_source import ReferenceSource, reference_source
from vlcpctl.training.task_history import TaskHistory

_FIXED = ("loss", "temperature", "text_length", "pretrained", "heads")
_AFTER_THE_FIRST = (
    GoesWith("model", "previous", (), "the model is that of the previous checkpoint"),
    *(GoesWith(name, "previous", (), "the previous checkpoint fixes it") for name in _FIXED),
)
_ALWAYS = (
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
    tasks: tuple[Task, ...]
    buffer: Task | None
    sampler: PairSampler
    phases: tuple[PhasePlan, ...]
    parent: CheckpointManifest | None
    pseudo_texts: PseudoTextSource | None = None
    taught: TeacherTargets | None = None
    reference: ReferenceSource | None = None
    warnings: tuple[str, ...] = ()  # about what the run continues from, which its result records

    @cached_property
    def stored(self) -> StoredProjections | None:
        """The features stored in the buffer, if a method needs them, else None."""
        first = _is_first(self.request)
        needed = any(one.needs(first=first).stored_features for one in self.request.methods)
        return read_features(self.buffer) if needed and self.buffer is not None else None

    @cached_property
    def groups(self) -> list[np.ndarray] | None:
        """The groups of the rows of each split, (N,) int64 each; None with --negatives all."""
        return pair_groups(self.sampler.splits) if self._is_distinct else None

    @cached_property
    def reference_groups(self) -> list[np.ndarray] | None:
        """The groups of the pairs of --reference, as `groups` has those of training."""
        if self.reference is None or not self._is_distinct:
            return None
        return pair_groups([self.reference.sampler.buffer])

    @cached_property
    def validation_groups(self) -> list[np.ndarray] | None:
        """The groups of the rows of each validation split, as `groups` has those of training."""
        splits = [task.split("val") for task in self.tasks] if self._is_distinct else None
        return None if splits is None else pair_groups(splits)

    @property
    def _is_distinct(self) -> bool:
        return self.request.settings.negatives == "distinct"

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods to train with: those of the request, with shares scaled to the steps."""
        scale = self.request.settings.scale_per_step
        return scaled(self.request.methods, scale, self._trained, first=_is_first(self.request))

    @property
    def _trained(self) -> int:
        """The number of steps that train the model."""
        return next(phase.whole for phase in self.phases if phase.name == TRAIN.name)

    @property
    def history(self) -> TaskHistory:
        """The stream steps of the tasks in this run."""
        return TaskHistory(self.tasks, self.request.run, self.parent)

    def uses_reference(self, phase: PhasePlan) -> bool:
        """Whether a method of the phase needs the pairs of --reference."""
        first = _is_first(self.request)
        needs = {method.name: method.needs(first=first) for method in self.request.methods}
        return any(needs[name].reference for name in phase.methods)

    @property
    def steps(self) -> int:
        """The number of steps over all phases."""
        return sum(phase.steps for phase in self.phases)

    def all_warnings(self) -> tuple[str, ...]:
        """The warnings to show with the plan: also about negatives."""
        return (*self.warnings, *self._of_negatives())

    def _of_negatives(self) -> Iterator[str]:
        batch = self.request.settings.batch_size
        queued = max(method.queued for method in self.request.methods)
        negatives = Negatives(batch, min(queued, batch * (self.steps - 1)))
        splits, visited = self.sampler.splits, self.sampler.visited_rows()
        if not negatives.are_looked_at(sum(map(len, visited))):
            return
        groups = pair_groups(splits) if self.groups is None else self.groups
        sizes_G = sizes([group[rows] for group, rows in zip(groups, visited, strict=True)])
        if self._is_distinct:
            yield from warnings_if_distinct(sizes_G)
        else:
            yield from negatives.warnings_if_all(sizes_G)

    def lines(self) -> Iterator[str]:
        """The plan as lines of text, for --dry-run and the log."""
        settings = self.request.settings
        names = ", ".join(task.name for task in self.tasks)
        buffer = f" + buffer of {self.buffer.counts['train']}" if self.buffer else ""
        images = sum(task.counts["train"] for task in self.tasks)
        yield self._model_line()
        yield f"{self.request.method_name} on {names}: {images} images{buffer}"
        yield f"  {execution_line(self.request)}"
        for note in self._notes():
            yield f"  note: {note}"
        for note in self._method_notes():
            yield f"  {note}"
        for line in (*shape_notes(self.request), *lora_lines(self.request)):
            yield f"  {line}"
        if self.taught is not None:
            yield f"  {targets_line(self.taught.targets, self.request.methods)}"
        if self.pseudo_texts is not None:
            yield f"  {self.pseudo_texts.method}: {self.pseudo_texts}"
        if self.reference is not None:
            yield f"  {self.reference}"
        for name in dict.fromkeys(phase.name for phase in self.phases):
            steps = sum(phase.steps for phase in self.phases if phase.name == name)
            epochs = steps / self.sampler.epoch_steps
            yield (
                f"  {name}: {steps} steps of {settings.batch_size} pairs "
                f"({epochs:.3g} epoch{'' if epochs == 1 else 's'} of {len(self.sampler)}), "
                f"{self._time(steps * settings.batch_size)}"
            )

    def _model_line(self) -> str:
        """What is trained, and which option or preset says so."""
        request, settings = self.request, self.request.settings
        name, origin = settings.model, request.origins.get("model", "flag").partition(",")[0]
        sizes = (settings.text_length, settings.image_size)
        words = in_words(str(request.previous or name), *sizes)
        if request.previous is not None:
            made = self.parent and self.parent.model
            name, origin = shown(made) if made else name, str(request.previous)
        elif origin == "flag":
            origin = "--model"
        loss = ", for a sigmoid loss" if settings.loss == SIGMOID else ""
        return f"model {name}{f' ({words})' if words else ''} from {origin}{loss}"

    def _method_notes(self) -> Iterator[str]:
        """What a user should know about the methods, and what --scale-per-step changes."""
        request = self.request
        scale, first = request.settings.scale_per_step, _is_first(request)
        for method in request.methods:
            notes = (method.note, dependence(method, scale, first=first))
            yield from (f"{method.name}: {note}" for note in notes if note)
        yield from queue_notes(request, first=first)
        yield from scale_lines(request.methods, scale, self._trained, first=first)

    def _notes(self) -> Iterator[str]:
        """What differs from what the options say or a user may expect."""
        settings = self.request.settings
        is_file = bool(settings.pretrained) and Path(str(settings.pretrained)).is_file()
        if is_file and (note := activation_note(settings.model)):
            yield note
        yield from self.history.notes()
        yield from unprotected(self.request, self.parent)
        yield from policy_notes(self.request, self.buffer)
        yield from batch_norm_notes(self.request)
        yield from self.request.notes
        yield from execution_notes(self.request)
        yield from self._replay_note()
        left_out, pairs = self.sampler.left_out, self.sampler.epoch_pairs
        if left_out:
            which = "it does" if left_out == 1 else "they do"
            yield f"each epoch leaves out {left_out} of {pairs} pairs: {which} not fill a batch"

    def _replay_note(self) -> Iterator[str]:
        """Which way of replaying `least=X` is for these pairs."""
        replay = self.request.settings.replay
        if self.buffer is None or not parse_replay(replay).is_least:
            return
        share = self.sampler.replay_share
        what = "the buffer is shuffled with the task" if share is None else f"share={share:g}"
        yield f"--replay {replay}: {what}"

    def _time(self, pairs: int) -> str:
        """An estimate of the time from the speed at which the parent was trained."""
        parent = self.parent
        if not parent or not parent.train_seconds or not parent.pairs:
            return "time: shown with the progress after the first steps"
        seconds = pairs * parent.train_seconds / parent.pairs
        return f"about {seconds / 60:.1f} min at the speed of the previous checkpoint"


def make_plan(request: TrainRequest) -> TrainPlan:
    """Open the inputs of a request and check that they fit together.

    Raises BadInput for an input that is not what its option needs, UsageError for options that
    contradict each other or have no effect, and Incompatible for inputs made for other models.
    """
    request = adapted(request)
    check_processes(request)
    check_execution(request)
    tasks = tuple(open_task(path) for path in request.tasks)
    buffer = open_task(request.buffer) if request.buffer else None
    parent = CheckpointManifest.read(request.previous) if request.previous else None
    _check_chain(request, tasks, buffer, parent)
    splits = [_train_split(task) for task in tasks]
    buffer_split = _train_split(buffer) if buffer else None
    sampler = PairSampler(
        splits,
        buffer_split,
        batch_size=request.settings.batch_size,
        captions=request.settings.captions,
        replay=parse_replay(request.settings.replay),
        seed=request.drawn_seed,
        limit=request.limit,
    )
    settings = request.settings
    phases = plan_phases(
        request.methods,
        first=_is_first(request),
        epoch_steps=sampler.epoch_steps,
        epochs=settings.epochs,
        steps=settings.steps,
    )
    pseudo_texts = pseudo_text_source(request, buffer, first=_is_first(request))
    sources = [*tasks, *([buffer] if buffer else [])]
    taught = open_teacher_targets(request, sources, sampler.splits, first=_is_first(request))
    _check_captions(request, sampler.splits)
    _check_warm_up(request, phases)
    history = TaskHistory(tasks, request.run, parent)
    history.require_room()
    reference = reference_source(request, first=_is_first(request))
    pairs = reference.sampler.buffer if reference else None
    warnings = lineage_warnings(request, history, sampler.splits, buffer, pairs)
    warnings += (*shape_warnings(request), *_replay_warnings(request, sampler))
    inputs = (sampler, phases, parent, pseudo_texts, taught, reference, warnings)
    return TrainPlan(request, tasks, buffer, *inputs)


def _replay_warnings(request: TrainRequest, sampler: PairSampler) -> Iterator[str]:
    """A warning if the buffer's share of a batch rounds to no pair."""
    share, size = sampler.replay_share, request.settings.batch_size
    if share is not None and not round(share * size):
        yield (
            f"no pair of the buffer is replayed: {share:g} of a batch of {size} rounds to 0; "
            "use a larger share or a larger --batch-size"
        )


def _train_split(task: Task) -> Split:
    task.require("train")  # a buffer may be empty, but nothing can be replayed from it
    return task.split("train")


def _check_chain(
    request: TrainRequest,
    tasks: tuple[Task, ...],
    buffer: Task | None,
    parent: CheckpointManifest | None,
) -> None:
    """Refuse likely mistakes: --previous left out, a missing input, a task trained twice."""
    _refuse_twice(tasks)
    steps = [task.step for task in tasks if task.step is not None]
    if steps and min(steps) > 0 and parent is None and not request.from_scratch:
        raise UsageError(
            f"{tasks[0].path} is task {min(steps)} of its stream and there is no --previous; "
            "give the checkpoint of the previous task, or --from-scratch"
        )
    if request.from_scratch and parent is None and not (steps and min(steps) > 0):
        raise UsageError(f"--from-scratch has no effect: {tasks[0].path} is a first task")
    refuse_idle_settings(request.settings, request.origins)
    refuse_idle_inputs(request)
    _refuse_kept_groups(request)
    _check_resume(request)
    if buffer is not None and buffer.manifest.buffer is None:
        raise BadInput(f"--buffer {buffer.path} is not a buffer; make one with 'vlcpctl buffer'")
    if buffer is not None:
        _refuse_repeated(tasks, buffer)
    if parent is not None:
        _check_parent(request, tasks, parent)
    check_model(request)
    check_lora(request)
    _check_needs(request, buffer, parent)


def _refuse_twice(tasks: tuple[Task, ...]) -> None:
    """Refuse a task that is given twice: its pairs would count twice, and its step too."""
    first: dict[str, Task] = {}
    for task in tasks:
        same = first.setdefault(task.id, task)
        if same is not task:
            raise UsageError(f"{task.path} contains the same task as {same.path}; give it once")


def _refuse_repeated(tasks: tuple[Task, ...], buffer: Task) -> None:
    for task in tasks:
        if task.is_among(buffer.buffer.seen):
            raise UsageError(
                f"--buffer {buffer.path} contains pairs of {task.path}, which this run trains on; "
                "use the buffer made before this task"
            )


def _is_first(request: TrainRequest) -> bool:
    """Whether there is neither a previous model nor a teacher."""
    return request.previous is None and request.teacher is None


def _check_needs(
    request: TrainRequest, buffer: Task | None, parent: CheckpointManifest | None
) -> None:
    """Refuse methods that need a buffer, or another one."""
    for method in request.methods:
        needs = method.needs(first=_is_first(request))
        if not needs.buffer:
            continue
        if buffer is None:
            why = "needs --buffer after the first task"
            if parent is not None and not parent.tasks:
                why = (
                    "needs --buffer: it protects the model of --previous with pairs of its data; "
                    "make one with 'vlcpctl buffer', or use a method that needs none, such as ctp"
                )
            raise UsageError(f"method {method.name} {why}")
        if needs.stored_features and not buffer.buffer.features:
            raise UsageError(
                f"method {method.name} needs the stored features of replayed pairs; "
                f"{buffer.path} was made without 'vlcpctl buffer --store-features'"
            )
        policy = buffer.buffer.policy
        if needs.policy not in {"", policy}:
            raise UsageError(
                f"method {method.name} needs a buffer made with 'vlcpctl buffer --policy "
                f"{needs.policy}'; {buffer.path} was made with {policy!r}"
            )


def _check_parent(
    request: TrainRequest, tasks: tuple[Task, ...], parent: CheckpointManifest
) -> None:
    for method in request.methods:
        if method.from_unseen and parent.tasks:
            raise UsageError(
                f"method {method.name} needs a model that was not trained on any task; "
                f"{request.previous} was trained on {len(parent.tasks)}"
            )
    _refuse_learned_step(request, tasks, parent)
    seen = [task.path for task in tasks if task.is_among(parent.tasks)]
    if seen:
        raise UsageError(f"{request.previous} was already trained on {seen[0]}")


def _refuse_learned_step(
    request: TrainRequest, tasks: tuple[Task, ...], parent: CheckpointManifest
) -> None:
    """Refuse a task that an imported model counts as having learned: a mistaken --step."""
    # A report could not tell the rows of the model from those of the task's own step.
    learned = parent.step if parent.origin is not None else None
    for task in tasks:
        if learned is not None and task.step is not None and task.step <= learned:
            raise UsageError(
                f"{task.path} is task {task.step} of its stream, but {request.previous} was "
                f"imported with --step {learned}, as a model that has learned it; import it "
                "without --step to start from it"
            )


def refuse_idle_inputs(request: TrainRequest) -> None:
    """Raise UsageError for a teacher that no method uses, and options idle after a first task."""
    needs = [method.needs(first=False) for method in request.methods]
    uses_features = any(need.previous or need.pseudo_texts for need in needs)
    uses_weights = request.previous is None and any(need.previous_weights for need in needs)
    if request.teacher is not None and not (uses_features or uses_weights):
        raise UsageError(
            f"--teacher has no effect with --method {request.method_name}: its current settings "
            "use no teacher"
        )
    flags = [name for name, origin in request.origins.items() if origin == "flag"]
    flags += [name for name in ("fresh_state", "from_scratch") if getattr(request, name)]
    refuse_idle(_AFTER_THE_FIRST + _ALWAYS, vars(request), flags)
    slots = [slot for method in request.methods for slot in method.slots(first=_is_first(request))]
    if request.fresh_state and all(slot.lifetime == "task" for slot in slots):
        raise UsageError(
            f"--fresh-state has no effect with --method {request.method_name}: it takes no state "
            "from the previous checkpoint"
        )
    if "blend_buffers" in flags and not any(slot.name in _SLOW for slot in slots):
        raise UsageError(
            f"--blend-buffers has no effect with --method {request.method_name}: it averages no "
            "weights here"
        )
    if request.settings.scale_per_step is not None:
        refuse_idle_scale(request.methods, request.settings.scale_per_step)


def _refuse_kept_groups(request: TrainRequest) -> None:
    """Refuse groups of pairs beside a queue of earlier tasks: each task numbers its own anew."""
    if request.settings.negatives != "distinct":
        return
    for method in request.methods:
        slots = method.slots(first=_is_first(request)) if method.queued else ()
        for slot in slots:
            if slot.lifetime == "stream":
                raise UsageError(
                    f"--negatives distinct cannot be used with {method.name}'s {slot.name} kept "
                    "across tasks: the groups of pairs have other numbers in each task; use "
                    "--negatives all, or keep it for one task only"
                )


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


def _check_captions(request: TrainRequest, splits: Sequence[Split]) -> None:
    """Refuse --captions all if no image has more than one caption."""
    is_given = request.origins.get("captions") == "flag" and request.settings.captions == "all"
    if is_given and all(int(split.caption_counts().max(initial=0)) <= 1 for split in splits):
        raise UsageError("--captions all has no effect: no image has more than one caption")


def _check_warm_up(request: TrainRequest, phases: Sequence[PhasePlan]) -> None:
    """Refuse a warm-up that leaves no step of training at the full learning rate."""
    for phase in phases:
        warm = round(request.settings.warmup * phase.whole)
        if phase.trains and warm >= phase.whole:
            raise UsageError(
                f"--warmup {request.settings.warmup:g} makes all {phase.whole} steps warm-up "
                "steps; use a smaller share"
            )

"""train_step: train as planned and write the checkpoint, resuming an unfinished run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing, nullcontext
from functools import partial as bound
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vlcpctl.checkpoints.checkpoint import (
    ParentCheckpoint,
    all_tensors,
    write_checkpoint,
)
from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.model_facts import facts_of_encoder, model_facts
from vlcpctl.core import console
from vlcpctl.core.devices import set_arithmetic, torch_device
from vlcpctl.core.ending import StopFlag, stop_flag
from vlcpctl.core.errors import Diverged, Incompatible, UsageError
from vlcpctl.core.machine import peak_memory
from vlcpctl.data.tasks.task import ids_by_content
from vlcpctl.distributed.world import World
from vlcpctl.files.ids import content_id
from vlcpctl.models import encoders
from vlcpctl.models.configuration import has_logit_bias
from vlcpctl.models.encoders import Encoder, NewModelOptions
from vlcpctl.models.execution import place
from vlcpctl.training.batches import training_batches, training_transform
from vlcpctl.training.loop import Observer, TrainingLoop, ignore_point, restore_run
from vlcpctl.training.lora import parse_lora
from vlcpctl.training.method_run import carried_slots, start_slots, stream_slots
from vlcpctl.training.phases import steps_before
from vlcpctl.training.plan import TrainPlan, announced
from vlcpctl.training.presets import configuration
from vlcpctl.training.request import TrainRequest, numeric
from vlcpctl.training.run import TrainRun
from vlcpctl.training.settings import BENCHMARK, OF_ITS_MODEL, SIGMOID, save_every
from vlcpctl.training.state import (
    MetricsLog,
    PhaseSteps,
    ProgressFile,
    ResumeDirectory,
    SavedProgress,
    outcome,
)
from vlcpctl.training.teachers import check_targets, weight_users

if TYPE_CHECKING:
    from vlcpctl.tracking.trackers import Trackers
    from vlcpctl.training.adapters import Adapters

_LOOKED_AT = 200  # images of a task whose captions are measured


def train_step(
    request: TrainRequest, observe: Observer = ignore_point, world: World | None = None
) -> Path:
    """Train, write the checkpoint at `request.out` and return that path.

    Returns at once if this very checkpoint is already finished; resumes an unfinished run from its
    last saved state. Raises OutputExists if something else is at `request.out` or another process
    is writing it, UsageError, BadInput or Incompatible if options and inputs do not fit together,
    Diverged if the loss is not finite, and Interrupted after a signal.
    """
    world = world or World()
    partial = ResumeDirectory(request.out)
    # The other processes write nothing, and must not look at the output before rank 0 may.
    with partial.output.locked() if world.rank == 0 else nullcontext():
        world.barrier()
        plan = announced(request, says=world.rank == 0)
        if plan is not None:
            train_planned(plan, observe, world)
        elif world.rank == 0:
            partial.remove()
    return request.out


def train_planned(
    plan: TrainPlan, observe: Observer = ignore_point, world: World | None = None
) -> None:
    """Train as planned, with the output locked; raises as `train_step` does."""
    torch.set_num_threads(plan.request.threads)
    with stop_flag() as stop:
        _train(plan, world or World(), stop, observe)


def _train(plan: TrainPlan, world: World, stop: StopFlag, observe: Observer) -> None:
    request, leads = plan.request, world.rank == 0
    partial = ResumeDirectory(request.out)
    parent = _parent(plan)
    run = _new_run(plan, parent, world)
    validation = _validation(plan, run)
    if leads:
        _say_of_long_captions(plan, run.encoder)
        partial.claim(
            plan.identity,
            numeric(request, run.device),
            force=request.force,
            accept_inexact=request.accept_inexact,
        )
    # Rank 0 may move an older run aside: the others must not read its state before that.
    world.barrier()
    state = partial.load()
    saved, tensors = state or (SavedProgress(), {})
    if state:
        restore_run(run, plan.phases, saved, tensors)
        run.inverting_seconds = saved.inverting_seconds
        phase = plan.phases[saved.phase].name
        console.say(f"resuming {request.out} at step {saved.step} of phase {phase}")
    with (
        _tracking(plan, saved) if leads and request.log else nullcontext() as trackers,
        _progress(plan, saved).kept_in(partial.path) if leads else nullcontext(),
    ):
        loop = TrainingLoop(
            run=run,
            phases=plan.phases,
            epoch_steps=plan.sampler.epoch_steps,
            batches=bound(training_batches, plan, run),
            partial=partial,
            metrics_log=MetricsLog(partial.journal if leads else None, saved.journal_bytes),
            every=save_every(request.save_every),
            stop=stop,
            validate=validation,
            track=trackers.log if trackers else None,
            observe=observe,
            saved=saved,
        )
        resumed = bool(tensors)
        with closing(loop):
            best = loop.train(tensors)
        if best:
            run.load(best)
        if leads:
            _write(plan, loop, parent)
            since = " since it resumed" if resumed else ""
            rate = f" ({loop.pairs_per_second():.0f} pairs/s{since})"
            journal, keep = request.out / partial.journal.name, request.settings.keep
            for line in outcome(journal, loop.seconds(), saved.pairs, rate, keep):
                console.say(line)
    world.barrier()  # no process returns before the checkpoint exists


def _parent(plan: TrainPlan) -> ParentCheckpoint | None:
    """The checkpoint of --previous, its slots verified: they are carried over after the training.

    Raises Incompatible if one has changed. The weights are verified when the model is loaded.
    """
    if plan.request.previous is None or plan.inputs.previous is None:
        return None
    parent = ParentCheckpoint(plan.request.previous, plan.inputs.previous)
    parent.slot_files()
    return parent


def _say_of_long_captions(plan: TrainPlan, encoder: Encoder) -> None:
    """A note on captions that fill the text length, as the tokenizer cuts what is beyond it.

    It comes after the plan, which has no tokenizer: that imports torch.
    """
    splits = plan.sampler.splits
    rows = [(one, np.linspace(0, len(one) - 1, _LOOKED_AT).astype(int)) for one in splits]
    texts = [text for one, found in rows for row in {*found.tolist()} for text in one.captions(row)]
    ids = encoder.tokenizer(texts)
    padding = encoder.tokenizer([""])[0].mode().values
    full = int(((ids[:, 0] != padding) & (ids[:, -1] != padding)).sum())
    if 100 * full >= len(texts):
        share = f"about {100 * full / len(texts):.0f} %"
        console.say(
            f"  note: {share} of the captions fill the text length of {ids.shape[1]} tokens; what "
            "is beyond it is cut"
        )


def _write(plan: TrainPlan, loop: TrainingLoop, parent: ParentCheckpoint | None) -> None:
    """Write the checkpoint in the place of the saved state."""
    run, partial = loop.run, loop.partial

    def finish(directory: Path) -> None:
        shutil.copyfile(partial.journal, directory / partial.journal.name)
        # The change of averaged weights has no rank.
        if run.lora is not None and not run.written_slot:
            run.lora.write(directory)
        loop.observe("before-rename")

    try:
        write_checkpoint(
            plan.request.out,
            run.encoder,
            _manifest(plan, loop),
            slots=stream_slots(run),
            parent=parent,
            finish=finish,
        )
    except Diverged as error:  # in the last step, which no later loss shows: said as the loop does
        raise Diverged(loop.diverged(str(error))) from error
    loop.observe("renamed")
    partial.remove()


def _progress(plan: TrainPlan, saved: SavedProgress) -> ProgressFile:
    """What `inspect` finds beside the journal of this process."""
    request = plan.request
    return ProgressFile(
        phases=tuple(PhaseSteps(one.name, one.offset, one.steps) for one in plan.phases),
        run=request.run,
        method=request.method_name,
        tasks=tuple(task.name for task in plan.inputs.tasks),
        batch_size=request.settings.batch_size,
        epoch_steps=plan.sampler.epoch_steps,
        first=steps_before(plan.phases, saved.phase) + saved.step,
    )


def _tracking(plan: TrainPlan, saved: SavedProgress) -> Trackers:
    """The trackers of --log, to be closed after the checkpoint is written.

    Uploads can then take their time, or fail.
    """
    from vlcpctl.tracking.trackers import TrackedRun, Trackers

    request, more = plan.request, len(plan.inputs.tasks) - 1
    settings = configuration(request.settings, request.origins, request.methods)
    run = TrackedRun(
        run=request.run,
        seed=request.seed,
        part=plan.inputs.tasks[0].slug + (f"+{more}" if more else ""),
        id=content_id(plan.identity),
        config={
            "method": request.method_name,
            "tasks": [task.slug for task in plan.inputs.tasks],
            "seed": request.seed,
            **{name: value for name, value, _ in settings},
        },
        first=steps_before(plan.phases, saved.phase) + saved.step,
    )
    return Trackers.of(request.log, run)


def _new_run(plan: TrainPlan, parent: ParentCheckpoint | None, world: World) -> TrainRun:
    request, device = plan.request, torch_device(plan.request.device)
    targets = plan.taught
    encoder = _encoder(request, parent)
    set_arithmetic(tf32=request.tf32, times_convolutions=request.cudnn == BENCHMARK)
    place(encoder.module, device)
    encoder.compiles = request.compile
    if request.grad_checkpointing:
        encoder.checkpoint_gradients()
    # With precomputed targets, the teacher is loaded only for methods that need its weights.
    needs_teacher = targets is None or weight_users(request.methods)
    teacher = encoders.load(request.teacher) if needs_teacher and request.teacher else None
    source = teacher or (encoder if needs_teacher and parent else None)
    frozen = all_tensors(source) if source else {}
    penalises = any(one.needs(first=False).previous_weights for one in request.methods)
    run = TrainRun(
        encoder=encoder,
        methods=plan.methods,
        settings=request.settings,
        seed=request.drawn_seed,
        device=device,
        previous={name: value.to(device) for name, value in frozen.items()} or None,
        # With --teacher, `previous` is the teacher: penalties on weights need a copy of the
        # weights that the run starts from.
        initial=all_tensors(encoder) if parent and request.teacher and penalises else None,
        targets_scale=targets.scale if targets else None,
        world=world,
        local_loss=request.local_loss,
        lora=_adapters(request, encoder),
    )
    if targets is not None:
        distils = run.methods if encoder.family == "fusion" else ()
        check_targets(targets, training_transform(run), run.width, distils)
    if frozen and frozen.keys() != run.everything().keys():
        student = request.previous or request.settings.model
        raise Incompatible(f"the teacher {request.teacher} is a different model than {student}")
    _check_built(request, encoder)
    carried = carried_slots(parent, request.methods, fresh_state=request.fresh_state)
    start_slots(run, carried, request.previous)
    return run


def _adapters(request: TrainRequest, encoder: Encoder) -> Adapters | None:
    if request.settings.lora is None:
        return None
    from vlcpctl.training.adapters import Adapters

    size = parse_lora(request.settings.lora)
    return Adapters.of(encoder.weights(), size, request.drawn_seed)


def _encoder(request: TrainRequest, parent: ParentCheckpoint | None) -> Encoder:
    """The parent's model, or a new one. Raises UsageError for another image size than its own."""
    settings = request.settings
    if parent:
        encoder = parent.encoder()
        if settings.image_size not in (None, encoder.transform.image_size):
            raise UsageError(
                f"--image-size {settings.image_size} has no effect with --previous: "
                f"the previous checkpoint fixes it at {encoder.transform.image_size}"
            )
        return encoder
    origin = request.origins.get("loss")
    start = NewModelOptions(
        pretrained=settings.pretrained,
        temperature=settings.temperature,
        seed=request.drawn_seed,
        text_length=settings.text_length,
        image_size=settings.image_size,
        heads=settings.heads,
        # Only if it is asked for: that of a hub's model is not known yet, and stays as it is.
        is_sigmoid=None if origin == OF_ITS_MODEL else settings.loss == SIGMOID,
        batch_size=settings.batch_size,
    )
    return encoders.build(settings.model, start)


def _check_built(request: TrainRequest, encoder: Encoder) -> None:
    """Refuse options and methods that the model, now that it is built, turns out not to fit."""
    if has_logit_bias(encoder.config) and request.settings.loss != SIGMOID:
        raise UsageError(
            f"{request.model} is made for a sigmoid loss (its configuration has init_logit_bias), "
            "which is known only now; give --loss sigmoid, or --loss softmax to train it without "
            "the bias"
        )
    averages = any(one.is_floating_point() for one in encoder.buffers().values())
    if "blend_buffers" in request.flags and not averages:
        raise UsageError("--blend-buffers has no effect: the model has no BatchNorm statistics")
    if encoder.family == "fusion":
        return
    for name in ("mask_share", "masking", "heads"):
        if name in request.flags:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} has no effect: the model is not a fusion model")
    for method in request.methods:
        if method.needs(first=False).fusion:
            raise UsageError(
                f"method {method.name} with its current settings needs a fusion model, such as "
                f"albef-tiny; see 'vlcpctl methods {method.name}'"
            )


def _validation(plan: TrainPlan, run: TrainRun) -> Callable[[], dict[str, float]] | None:
    """The validation to run after each epoch; None if not every task has a validation split.

    Raises UsageError if a setting depends on validation and a task lacks the split.
    """
    settings = plan.request.settings
    missing = [task for task in plan.inputs.tasks if "val" not in task.counts]
    if missing and (settings.schedule == "plateau" or settings.keep != "last"):
        what = "--schedule plateau" if settings.schedule == "plateau" else f"--keep {settings.keep}"
        raise UsageError(
            f"{what} needs a validation split, but {missing[0].path} has none; "
            "use 'vlcpctl split --holdout test=0.1,val=0.05'"
        )
    if missing:
        return None
    from vlcpctl.training.validation import validate

    return lambda: validate(plan, run, recalls=settings.keep == "best:val_rmean")


def _model_facts(plan: TrainPlan, encoder: Encoder) -> dict[str, Any]:
    """The facts about the trained model: a step with --previous keeps its name and source."""
    if plan.inputs.previous is not None and plan.request.previous is not None:
        inherited = model_facts(plan.request.previous, plan.inputs.previous)
        names = inherited["name"], inherited["pretrained"]
        return facts_of_encoder(encoder, *names, inherited.get("files"))
    settings, given = plan.identity["settings"], plan.request.settings
    files = {"name": Path(given.model).name, "pretrained": Path(given.pretrained or "").name}
    return facts_of_encoder(encoder, settings["model"], settings["pretrained"], files)


def _manifest(plan: TrainPlan, loop: TrainingLoop) -> CheckpointManifest:
    """The manifest of the trained checkpoint; reports the time spent on pseudo texts, if any."""
    request, seconds, inverting = plan.request, loop.seconds(), loop.run.inverting_seconds
    if inverting:
        share = f"{inverting / seconds:.0%} of the {seconds:.0f} s of training"
        console.say(f"generating pseudo texts took {share}")
    inputs, buffer = plan.inputs, plan.inputs.buffer and plan.inputs.buffer.buffer
    beside = [one for one in (inputs.buffer, inputs.reference) if one is not None]
    return CheckpointManifest(
        identity=plan.identity,
        ids=ids_by_content([*inputs.tasks, *beside]),
        model=_model_facts(plan, loop.run.encoder),
        run=request.run,
        method=request.method_name,
        seed=request.seed,
        buffer={"policy": buffer.policy, "size": buffer.size} if buffer else None,
        **plan.history.body(),
        pairs=loop.saved.pairs,
        train_seconds=round(seconds, 3),
        parent=inputs.previous.content if inputs.previous else None,
        **plan.history.start(),
        fresh_state=request.fresh_state,
        origins=request.origins,
        asked=request.asked or None,
        inverting_seconds=round(inverting, 3) if inverting else None,
        peak_memory=peak_memory() or None,
        warnings=plan.warnings or None,
    )

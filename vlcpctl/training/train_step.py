"""train_step: train as requested and write the checkpoint, resuming an unfinished run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial as bound
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vlcpctl.checkpoints.checkpoint import (
    ParentCheckpoint,
    all_tensors,
    open_parent,
    write_checkpoint,
)
from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.model_facts import facts_of_encoder, model_facts
from vlcpctl.core import console
from vlcpctl.core.batch import Weights
from vlcpctl.core.devices import set_arithmetic, torch_device
from vlcpctl.core.errors import Diverged, Incompatible, UsageError
from vlcpctl.core.machine import peak_memory
from vlcpctl.data.precomputed.targets import TargetsDirectory
from vlcpctl.data.tasks.task import ids_by_content, open_task
from vlcpctl.distributed.signals import StopFlag, stop_flag
from vlcpctl.distributed.world import World
from vlcpctl.files.ids import content_id
from vlcpctl.files.tensors import write_tensors
from vlcpctl.models import encoders
from vlcpctl.models.encoders import Encoder, NewModelOptions
from vlcpctl.models.execution import place
from vlcpctl.tracking.destinations import TrackedRun
from vlcpctl.tracking.trackers import Trackers
from vlcpctl.training import identity
from vlcpctl.training.adaptation import adapted
from vlcpctl.training.adapters import size_of
from vlcpctl.training.batches import training_batches, training_transform, validation_batches
from vlcpctl.training.config.execution import BENCHMARK
from vlcpctl.training.config.phases import steps_before
from vlcpctl.training.config.request import TrainRequest
from vlcpctl.training.config.resolution import configuration
from vlcpctl.training.config.settings import OF_ITS_MODEL, SIGMOID, save_every
from vlcpctl.training.loop.adapters import FILE as ADAPTER
from vlcpctl.training.loop.adapters import Adapters
from vlcpctl.training.loop.loop import (
    Observer,
    TrainingLoop,
    ignore_point,
    restore_run,
)
from vlcpctl.training.loop.metrics_log import FILE_NAME as METRICS
from vlcpctl.training.loop.metrics_log import MetricsLog
from vlcpctl.training.loop.outcome import Outcome
from vlcpctl.training.loop.slots import carried_slots, check_slots, start_slots, stream_slots
from vlcpctl.training.loop.state import PhaseSteps, ProgressFile, ResumeDirectory, SavedProgress
from vlcpctl.training.loop.train_run import TrainRun
from vlcpctl.training.model_checks import require_known_loss
from vlcpctl.training.offline_teacher import check_transform, refuse_tokens, weight_users
from vlcpctl.training.plan import TrainPlan, make_plan
from vlcpctl.training.validation import validate

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
        return _locked_train_step(request, partial, observe, world)


def _locked_train_step(
    request: TrainRequest, partial: ResumeDirectory, observe: Observer, world: World
) -> Path:
    request = adapted(request)
    semantic = identity.semantic(request)
    if identity.already_trained(request, semantic):
        if world.rank == 0:
            partial.remove()
            console.say(f"train-step: {request.out} is already finished")
        return request.out
    plan = make_plan(request)
    if world.rank == 0:
        for line in plan.lines():
            console.say(line)
        for warning in plan.all_warnings():
            console.warn(warning)
    torch.set_num_threads(request.threads)
    with stop_flag() as stop:
        _train(plan, partial, semantic, world, stop, observe)
    return request.out


def _train(
    plan: TrainPlan,
    partial: ResumeDirectory,
    semantic: dict[str, Any],
    world: World,
    stop: StopFlag,
    observe: Observer,
) -> None:
    request, leads = plan.request, world.rank == 0
    parent = open_parent(request.previous) if request.previous else None
    run = _new_run(plan, parent, world)
    validation = _validation(plan, run)
    if leads:
        _say_of_long_captions(plan, run.encoder)
        numeric = identity.numeric(request, run.device)
        partial.claim(
            semantic,
            numeric,
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
        _tracking(plan, semantic, saved) if leads else Trackers() as trackers,
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
            trackers=trackers,
            observe=observe,
            saved=saved,
        )
        _finish(plan, partial, semantic, loop, tensors, parent)
    world.barrier()  # no process returns before the checkpoint exists


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
    if full:
        share = f"about {100 * full / len(texts):.0f} %"
        console.say(
            f"  note: {share} of the captions fill the text length of {ids.shape[1]} tokens; what "
            "is beyond it is cut"
        )


def _finish(
    plan: TrainPlan,
    partial: ResumeDirectory,
    semantic: dict[str, Any],
    loop: TrainingLoop,
    tensors: Weights,
    parent: ParentCheckpoint | None,
) -> None:
    """Train to the end; rank 0 then writes the checkpoint and reports the outcome."""
    request, run, saved, observe = plan.request, loop.run, loop.saved, loop.observe
    resumed = bool(tensors)
    with closing(loop):
        best = loop.train(tensors)
    if best:
        run.load(best)
    if run.world.rank == 0:
        facts = _model_facts(plan, semantic, run.encoder)
        manifest = replace(
            _manifest(plan, semantic, saved, loop.seconds(), run.inverting_seconds), model=facts
        )

        def finish(directory: Path) -> None:
            shutil.copyfile(partial.journal, directory / partial.journal.name)
            # The change of averaged weights has no rank.
            if run.lora is not None and not run.written_slot:
                write_tensors(directory / ADAPTER, run.lora.tensors)
            observe("before-rename")

        with _last_step(loop):
            write_checkpoint(
                request.out,
                run.encoder,
                manifest,
                slots=stream_slots(run),
                parent=parent,
                finish=finish,
            )
        observe("renamed")
        partial.remove()
        _say_outcome(request, loop, resumed=resumed)


def _progress(plan: TrainPlan, saved: SavedProgress) -> ProgressFile:
    """What `inspect` finds beside the journal of this process."""
    request = plan.request
    return ProgressFile(
        phases=tuple(PhaseSteps(one.name, one.offset, one.steps) for one in plan.phases),
        run=request.run,
        method=request.method_name,
        tasks=tuple(task.name for task in plan.tasks),
        batch_size=request.settings.batch_size,
        epoch_steps=plan.sampler.epoch_steps,
        first=steps_before(plan.phases, saved.phase) + saved.step,
    )


def _tracking(plan: TrainPlan, semantic: dict[str, Any], saved: SavedProgress) -> Trackers:
    """The trackers of --log, to be closed after the checkpoint is written.

    Uploads can then take their time, or fail.
    """
    request, more = plan.request, len(plan.tasks) - 1
    run = TrackedRun(
        run=request.run,
        seed=request.seed,
        part=plan.tasks[0].slug + (f"+{more}" if more else ""),
        id=content_id(semantic),
        config=_configuration(plan),
        first=steps_before(plan.phases, saved.phase) + saved.step,
    )
    return Trackers.of(request.log, run)


def _configuration(plan: TrainPlan) -> dict[str, Any]:
    """The settings and hyper-parameters that trackers record, by the names of --print-config."""
    request = plan.request
    settings = configuration(request.settings, request.origins, request.methods)
    about = {"method": request.method_name, "tasks": [task.slug for task in plan.tasks]}
    return {**about, "seed": request.seed, **{name: value for name, value, _ in settings}}


def _say_outcome(request: TrainRequest, loop: TrainingLoop, *, resumed: bool) -> None:
    outcome = Outcome.read(request.out / METRICS)
    rate = f" ({loop.pairs_per_second():.0f} pairs/s{' since it resumed' if resumed else ''})"
    seconds, pairs = loop.seconds(), loop.saved.pairs
    for line in outcome.lines(seconds, pairs, rate, request.settings.keep):
        console.say(line)


@contextmanager
def _last_step(loop: TrainingLoop) -> Iterator[None]:
    """Report weights that diverged in the last step as the loop does: no later loss shows it."""
    try:
        yield
    except Diverged as error:
        raise Diverged(loop.diverged(str(error))) from error


def _new_run(plan: TrainPlan, parent: ParentCheckpoint | None, world: World) -> TrainRun:
    request, device = plan.request, torch_device(plan.request.device)
    targets = plan.taught.targets if plan.taught else None
    encoder = _encoder(request, parent)
    _set_execution(request, encoder, device)
    # With precomputed targets, the teacher is loaded only for methods that need its weights.
    needs_teacher = targets is None or weight_users(request.methods)
    frozen = _frozen(request, encoder, parent) if needs_teacher else {}
    size = size_of(request)
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
        lora=None if size is None else Adapters.of(encoder.weights(), size, request.drawn_seed),
    )
    if targets is not None:
        _check_targets(targets, run)
    if frozen and frozen.keys() != run.everything().keys():
        student = request.previous or request.settings.model
        raise Incompatible(f"the teacher {request.teacher} is a different model than {student}")
    require_known_loss(request, encoder.config)
    _check_family(request, encoder.family)
    _check_blend(request, encoder)
    parent_slots = carried_slots(parent, request.methods, fresh_state=request.fresh_state)
    start_slots(run, parent_slots)
    check_slots(run, parent_slots, request.previous)
    return run


def _set_execution(request: TrainRequest, encoder: Encoder, device: torch.device) -> None:
    """Move the model to its device, and make it run as the options say."""
    set_arithmetic(tf32=request.tf32, times_convolutions=request.cudnn == BENCHMARK)
    place(encoder.module, device)
    encoder.compiles = request.compile
    if request.grad_checkpointing:
        encoder.checkpoint_gradients()


def _frozen(request: TrainRequest, encoder: Encoder, parent: ParentCheckpoint | None) -> Weights:
    """Copies of the teacher's tensors, else of the previous model's; {} if there is neither."""
    teacher = open_parent(request.teacher) if request.teacher else None
    source = teacher.encoder() if teacher else encoder if parent else None
    return all_tensors(source) if source else {}


def _check_targets(targets: TargetsDirectory, run: TrainRun) -> None:
    """Refuse targets that do not fit the model's width, image transform or methods."""
    check_transform(targets, training_transform(run))
    if run.encoder.family == "fusion":
        refuse_tokens(targets, run.methods)
    if targets.width != run.width:
        raise Incompatible(
            f"{targets.path} has embeddings of {targets.width} channels, "
            f"but the model has {run.width}"
        )


def _encoder(request: TrainRequest, parent: ParentCheckpoint | None) -> Encoder:
    """The parent's model, or a new one."""
    settings = request.settings
    if parent:
        encoder = parent.encoder()
        _refuse_other_shape(request, encoder.transform.image_size)
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


def _check_family(request: TrainRequest, family: str) -> None:
    """Refuse options and methods that need a fusion model if the model is a dual encoder."""
    if family == "fusion":
        return
    for name in ("mask_share", "masking", "heads"):
        if request.origins.get(name) == "flag":
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} has no effect: the model is not a fusion model")
    for method in request.methods:
        if method.needs(first=False).fusion:
            raise UsageError(
                f"method {method.name} with its current settings needs a fusion model, such as "
                "albef-tiny; "
                f"see 'vlcpctl methods {method.name}'"
            )


def _check_blend(request: TrainRequest, encoder: Encoder) -> None:
    """Refuse --blend-buffers for a model without statistics that could be averaged."""
    is_given = request.origins.get("blend_buffers") == "flag"
    if is_given and not any(one.is_floating_point() for one in encoder.buffers().values()):
        raise UsageError("--blend-buffers has no effect: the model has no BatchNorm statistics")


def _refuse_other_shape(request: TrainRequest, image_size: int) -> None:
    """Refuse an image size other than the one that the previous checkpoint fixes."""
    wanted = request.settings.image_size
    if wanted not in (None, image_size):
        raise UsageError(
            f"--image-size {wanted} has no effect with --previous: "
            f"the previous checkpoint fixes it at {image_size}"
        )


def _validation(plan: TrainPlan, run: TrainRun) -> Callable[[], dict[str, float]] | None:
    """The validation to run after each epoch; None if not every task has a validation split.

    Raises UsageError if a setting depends on validation and a task lacks the split.
    """
    settings = plan.request.settings
    needed = settings.schedule == "plateau" or settings.keep != "last"
    missing = [task for task in plan.tasks if "val" not in task.counts]
    if missing and needed:
        what = "--schedule plateau" if settings.schedule == "plateau" else f"--keep {settings.keep}"
        raise UsageError(
            f"{what} needs a validation split, but {missing[0].path} has none; "
            "use 'vlcpctl split --holdout test=0.1,val=0.05'"
        )
    if missing:
        return None
    return lambda: validate(
        run, validation_batches(plan, run), recalls=settings.keep == "best:val_rmean"
    )


def _model_facts(plan: TrainPlan, semantic: dict[str, Any], encoder: Encoder) -> dict[str, Any]:
    """The facts about the trained model: a step with --previous keeps its name and source."""
    if plan.parent is not None and plan.request.previous is not None:
        inherited = model_facts(plan.request.previous, plan.parent)
        names = inherited["name"], inherited["pretrained"]
        return facts_of_encoder(encoder, *names, inherited.get("files"))
    settings, given = semantic["settings"], plan.request.settings
    names = settings["model"], settings["pretrained"]
    files = {"name": Path(given.model).name, "pretrained": Path(given.pretrained or "").name}
    return facts_of_encoder(encoder, *names, files)


def _manifest(
    plan: TrainPlan,
    semantic: dict[str, Any],
    saved: SavedProgress,
    seconds: float,
    inverting: float,
) -> CheckpointManifest:
    """The manifest of the trained checkpoint; reports the time spent on pseudo texts, if any."""
    if inverting:
        share = f"{inverting / seconds:.0%} of the {seconds:.0f} s of training"
        console.say(f"generating pseudo texts took {share}")
    request = plan.request
    buffer = plan.buffer.buffer if plan.buffer else None
    paths = [path for path in (request.buffer, request.reference) if path is not None]
    return CheckpointManifest(
        identity=semantic,
        ids=ids_by_content([*plan.tasks, *map(open_task, paths)]),
        run=request.run,
        method=request.method_name,
        seed=request.seed,
        buffer={"policy": buffer.policy, "size": buffer.size} if buffer else None,
        **plan.history.body(),
        pairs=saved.pairs,
        train_seconds=round(seconds, 3),
        parent=plan.parent.content if plan.parent else None,
        **plan.history.start(),
        fresh_state=request.fresh_state,
        origins=request.origins,
        asked=request.asked or None,
        inverting_seconds=round(inverting, 3) if inverting else None,
        peak_memory=peak_memory() or None,
        warnings=plan.warnings or None,
    )

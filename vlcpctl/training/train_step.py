"""train_step: train as requested and write the checkpoint, resuming an unfinished run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial as bound
from pathlib import Path
from typing import Any

import torch

from vlcpctl.checkpoints.checkpoint import (
    Parent,
    Record,
    all_tensors,
    open_parent,
    write_checkpoint,
)
from vlcpctl.core import console
from vlcpctl.core.atomic import already_made
from vlcpctl.core.batch import Weights
from vlcpctl.core.devices import torch_device
from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.models import encoders
from vlcpctl.models.encoders import Encoder, Start
from vlcpctl.training import identity
from vlcpctl.training.batches import training_batches, training_view, validation_batches
from vlcpctl.training.config.request import Request, save_every
from vlcpctl.training.loop.loop import Loop, Observer, optimizer_states, restore_run, unobserved
from vlcpctl.training.loop.metrics_log import Board, Journal
from vlcpctl.training.loop.process_group import World
from vlcpctl.training.loop.resume import Partial, Saved
from vlcpctl.training.loop.signals import Stop, stop_flag
from vlcpctl.training.loop.slots import carried_slots, check_slots, start_slots, stream_slots
from vlcpctl.training.loop.state import TrainRun
from vlcpctl.training.offline_teacher import Teaching, check_transform, refuse_tokens
from vlcpctl.training.plan import Plan, make_plan
from vlcpctl.training.validation import validate


def train_step(
    request: Request, observe: Observer = unobserved, world: World | None = None
) -> Path:
    """Train, write the checkpoint at `request.out` and return that path.

    Returns at once if this very checkpoint is already finished; resumes an unfinished run from its
    last saved state. Raises OutputExists if something else is at `request.out`, UsageError,
    BadInput or Incompatible if options and inputs do not fit together, Diverged if the loss is not
    finite, and Interrupted after a signal.
    """
    world = world or World()
    semantic = identity.semantic(request)
    partial = Partial(request.out)
    if already_made(request.out, "checkpoint", semantic, force=request.force):
        if world.rank == 0:
            partial.remove()
        return request.out
    plan = make_plan(request)
    if world.rank == 0:
        for line in plan.lines():
            console.say(line)
    torch.set_num_threads(request.threads)
    with stop_flag() as stop:
        context = TrainContext(torch_device(request.device), world, stop, observe)
        _train(plan, partial, semantic, context)
    return request.out


@dataclass(frozen=True)
class TrainContext:
    """What a run is executed with: its device, processes, stop flag and observer."""

    device: torch.device
    world: World
    stop: Stop
    observe: Observer


def _train(plan: Plan, partial: Partial, semantic: dict[str, Any], context: TrainContext) -> None:
    request, rank = plan.request, context.world.rank
    parent = open_parent(request.previous) if request.previous else None
    run = _new_run(plan, parent, context)
    validates = _validation(plan, run)
    if rank == 0:
        numeric = identity.numeric(request, context.device.type)
        partial.claim(semantic, numeric, force=request.force, accept_inexact=request.accept_inexact)
    # Rank 0 may move an older run aside: the others must not read its state before that.
    context.world.wait()
    saved, tensors = partial.load() or (Saved(), {})
    if tensors:
        restore_run(run, tensors)
        run.inverting_seconds = saved.inverting_seconds
        console.say(f"resuming {request.out} at phase {saved.phase}, step {saved.step}")
    loop = _loop(plan, run, partial, saved, context)
    loop.validate = validates
    loop.best = tensors.get("best", {})
    with closing(loop):
        best = loop.train(optimizer_states(tensors))
    if best:
        run.load(best)
    if rank == 0:
        body = _body(plan, parent, saved, loop.seconds())
        body |= _inverting(run.inverting_seconds, loop.seconds())
        record = Record(partial.journal, semantic, body, bound(context.observe, "before-rename"))
        write_checkpoint(request.out, run.encoder, stream_slots(run), record, parent)
        context.observe("renamed")
        partial.remove()
    context.world.wait()  # no process returns before the checkpoint exists


def _loop(plan: Plan, run: TrainRun, partial: Partial, saved: Saved, context: TrainContext) -> Loop:
    request, leads = plan.request, context.world.rank == 0
    return Loop(
        run=run,
        phases=plan.phases,
        epoch_steps=plan.pairs.epoch_steps,
        batches=bound(training_batches, plan, run),
        partial=partial,
        journal=Journal(partial.journal if leads else None, saved.journal_bytes),
        every=save_every(request.save_every),
        stop=context.stop,
        board=Board(request.tensorboard) if request.tensorboard and leads else None,
        observe=context.observe,
        saved=saved,
    )


def _new_run(plan: Plan, parent: Parent | None, context: TrainContext) -> TrainRun:
    request, teaching = plan.request, plan.teaching
    encoder = _encoder(request, parent)
    encoder.module.to(context.device)
    # With precomputed targets, the teacher is loaded only for methods that need its weights.
    frozen = _frozen(request, encoder, parent) if teaching is None or teaching.holders else {}
    run = TrainRun(
        encoder=encoder,
        methods=request.methods,
        settings=request.settings,
        seed=request.seed,
        device=context.device,
        previous={name: value.to(context.device) for name, value in frozen.items()} or None,
        # With --teacher, `previous` is the teacher: penalties on weights need a copy of the
        # weights that the run starts from.
        anchored=all_tensors(encoder) if parent and request.teacher and _anchors(request) else None,
        taught_scale=teaching.taught.targets.scale if teaching else None,
        world=context.world,
    )
    if teaching is not None:
        _check_teaching(teaching, run)
    if frozen and frozen.keys() != run.everything().keys():
        student = request.previous or request.settings.model
        raise Incompatible(f"the teacher {request.teacher} is a different model than {student}")
    _check_family(request, encoder.family)
    carried = carried_slots(parent, request.methods, fresh_state=request.fresh_state)
    start_slots(run, carried)
    check_slots(run, carried, request.previous)
    return run


def _anchors(request: Request) -> bool:
    return any(method.needs(first=False).previous_weights for method in request.methods)


def _frozen(request: Request, encoder: Encoder, parent: Parent | None) -> Weights:
    """Copies of the teacher's tensors, else of the previous model's; {} if there is neither."""
    teacher = open_parent(request.teacher) if request.teacher else None
    source = teacher.encoder() if teacher else encoder if parent else None
    return all_tensors(source) if source else {}


def _check_teaching(teaching: Teaching, run: TrainRun) -> None:
    """Refuse targets that do not fit the model's width, image transform or methods."""
    targets = teaching.taught.targets
    check_transform(targets, training_view(run))
    if run.encoder.family == "fusion":
        refuse_tokens(targets, run.methods)
    if targets.width != run.width:
        raise Incompatible(
            f"{targets.path} has embeddings of {targets.width} channels, "
            f"but the model has {run.width}"
        )


def _encoder(request: Request, parent: Parent | None) -> Encoder:
    """The parent's model, or a new one."""
    settings = request.settings
    if parent:
        encoder = parent.encoder()
        _refuse_other_shape(request, encoder.view.image_size)
        return encoder
    start = Start(
        pretrained=settings.pretrained,
        temperature=settings.temperature,
        seed=request.seed,
        text_length=settings.text_length,
        image_size=settings.image_size,
        heads=settings.heads,
    )
    return encoders.build(settings.model, start)


def _check_family(request: Request, family: str) -> None:
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


def _refuse_other_shape(request: Request, image_size: int) -> None:
    """Refuse flags for settings that the previous checkpoint fixes."""
    for name in ("temperature", "text_length", "pretrained", "heads"):
        if request.origins.get(name) == "flag":
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} has no effect with --previous: the previous checkpoint fixes it"
            )
    wanted = request.settings.image_size
    if wanted not in (None, image_size):
        raise UsageError(
            f"--image-size {wanted} has no effect with --previous: "
            f"the previous checkpoint fixes it at {image_size}"
        )


def _validation(plan: Plan, run: TrainRun) -> Callable[[], dict[str, float]] | None:
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
        run, lambda: validation_batches(plan, run), recalls=settings.keep == "best:val_rmean"
    )


def _inverting(seconds: float, whole: float) -> dict[str, Any]:
    """The manifest entry for time spent on pseudo texts; {} if none were generated."""
    if not seconds:
        return {}
    console.say(
        f"generating pseudo texts took {seconds / whole:.0%} of the {whole:.0f} s of training"
    )
    return {"inverting_seconds": round(seconds, 3)}


def _body(plan: Plan, parent: Parent | None, saved: Saved, seconds: float) -> dict[str, Any]:
    """The manifest's entries besides the identity."""
    request = plan.request
    seen = parent.tasks if parent else []
    names = list(parent.manifest["task_names"]) if parent else []
    buffer = plan.buffer.manifest["buffer"] if plan.buffer else None
    return {
        "run": request.run,
        "method": request.method_name,
        "seed": request.seed,
        "buffer": {"policy": buffer["policy"], "size": buffer["size"]} if buffer else None,
        **plan.history.body(),
        "tasks": [*seen, *(task.content for task in plan.tasks)],
        "task_names": [*names, *(task.name for task in plan.tasks)],
        "pairs": saved.pairs,
        "train_seconds": round(seconds, 3),
        "parent": parent.content if parent else None,
        "fresh_state": request.fresh_state,
        "origins": dict(request.origins),
    }

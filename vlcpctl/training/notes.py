"""The plan of a train-step as lines of text, with notes on what a user may not expect.

Torch-free.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vlcpctl.checkpoints.model_facts import shown
from vlcpctl.core import console
from vlcpctl.core.errors import some_names
from vlcpctl.core.machine import has_tf32, is_gpu
from vlcpctl.core.method import Method
from vlcpctl.core.words import as_word
from vlcpctl.files.finished import already_made
from vlcpctl.models.checkpoint_files import SLOTS
from vlcpctl.models.configuration import activation_note, fusion_configuration, in_words
from vlcpctl.training.adaptation import adapted
from vlcpctl.training.execution import execution_line
from vlcpctl.training.identity import semantic
from vlcpctl.training.lora import lora_lines
from vlcpctl.training.methods import dependence, scale_lines
from vlcpctl.training.plan import TrainPlan, make_plan
from vlcpctl.training.presets import parse_replay
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.settings import SIGMOID
from vlcpctl.training.teachers import targets_line
from vlcpctl.training.warnings import with_width


def announced(request: TrainRequest, *, says: bool = True) -> TrainPlan | None:
    """The plan of a request, said with its warnings; None if its checkpoint is already finished.

    Raises as `make_plan` does, and OutputExists if something else is at the output.
    """
    request = adapted(request)
    identity = semantic(request)
    if already_made(request.out, "checkpoint", identity, force=request.force):
        if says:
            console.say(f"train-step: {request.out} is already finished")
        return None
    plan = make_plan(request, identity)
    if says:
        for line in lines(plan):
            console.say(line)
        for warning in plan.all_warnings():
            console.warn(warning)
    return plan


def lines(plan: TrainPlan) -> Iterator[str]:
    """The plan as lines of text, for --dry-run and the log."""
    request = plan.request
    names = ", ".join(task.name for task in plan.tasks)
    images = sum(task.counts["train"] for task in plan.tasks)
    buffer = f" + buffer of {plan.buffer.counts['train']}" if plan.buffer else ""
    yield _model_line(plan)
    yield f"{request.method_name} on {names}: {images} images{buffer}"
    yield f"  {execution_line(request)}"
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
        made = plan.parent and plan.parent.model
        name, origin = shown(made) if made else name, str(request.previous)
    elif origin == "flag":
        origin = "--model"
    loss = ", for a sigmoid loss" if settings.loss == SIGMOID else ""
    return f"model {name}{f' ({words})' if words else ''} from {origin}{loss}"


def _time(plan: TrainPlan, pairs: int) -> str:
    """An estimate of the time from the speed at which the parent was trained."""
    parent = plan.parent
    if not parent or not parent.train_seconds or not parent.pairs:
        return "time: shown with the progress after the first steps"
    seconds = pairs * parent.train_seconds / parent.pairs
    return f"about {seconds / 60:.1f} min at the speed of the previous checkpoint"


def _of_methods(plan: TrainPlan) -> Iterator[str]:
    """What a user should know about the methods, and what they get beside the batch."""
    request, first = plan.request, plan.request.is_first
    scale = request.settings.scale_per_step
    for method in request.methods:
        notes = (method.note, dependence(method, scale, first=first))
        yield from (f"{method.name}: {note}" for note in notes if note)
    yield from scale_lines(request.methods, scale, plan.trained, first=first)
    for method, width in with_width(request):
        if note := method.shape_note(pairs=request.settings.batch_size, width=width):
            yield f"{method.name}: {note}"
    yield from lora_lines(request)
    if plan.taught is not None:
        yield targets_line(plan.taught.targets, request.methods)
    if plan.pseudo_texts is not None:
        yield f"{plan.pseudo_texts.method}: {plan.pseudo_texts}"
    if plan.reference is not None:
        yield str(plan.reference)


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
    if plan.buffer is not None and parse_replay(settings.replay).is_least:
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
    names = [method.name for method in request.methods if _protects(method)]
    if not is_whole or request.teacher is not None or not names:
        return
    verb = "protects" if len(names) == 1 else "protect"
    yield (
        f"{some_names(names)} {verb} nothing of the pretrained model, because this run has no "
        f"--previous; to protect it, run 'vlcpctl import-checkpoint {_as_source(request)} -o DIR' "
        "and give --previous DIR"
    )


def _as_source(request: TrainRequest) -> str:
    """The pretrained weights of a request as import-checkpoint takes them."""
    model, pretrained = request.settings.model, str(request.settings.pretrained)
    if Path(pretrained).is_file() and (Path(model).is_file() or fusion_configuration(model)):
        return f"{as_word(pretrained)} --model {as_word(model)}"
    return as_word(f"open_clip:{model},{pretrained}")


def _protects(method: Method) -> bool:
    """Whether a method uses the previous model, or data of it, in a task that has one."""
    needs = method.needs(first=False)
    later, first = ({slot.name for slot in method.slots(first=one)} for one in (False, True))
    uses_model = needs.previous or needs.previous_weights or needs.previous_tokens
    return uses_model or needs.buffer or bool(later - first)


def _unmeasured(plan: TrainPlan) -> Iterator[str]:
    """A note on the methods that protect what they have measured, and have measured nothing."""
    request, previous, parent = plan.request, plan.request.previous, plan.parent
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

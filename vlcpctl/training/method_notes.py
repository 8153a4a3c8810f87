"""What a user should know about the methods of a run, for its plan. Torch-free.

What they make of the buffer, the batch and the model's width, and what of the model that the run
starts from they do not protect.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import some_names
from vlcpctl.core.method import Method
from vlcpctl.core.words import as_word
from vlcpctl.data.tasks.task import Task
from vlcpctl.models.checkpoint_files import SLOTS
from vlcpctl.models.configuration import fusion_configuration, shared_width
from vlcpctl.training.config.request import TrainRequest


def policy_notes(request: TrainRequest, buffer: Task | None) -> Iterator[str]:
    """A note for each method whose paper chooses the buffer by another policy."""
    if buffer is None:
        return
    policy = buffer.buffer.policy
    for method in request.methods:
        if method.usual_policy not in {"", policy}:
            yield (
                f"{method.name} replays a buffer made by {policy}; its paper has "
                f"{method.usual_policy} ('vlcpctl buffer --policy {method.usual_policy}')"
            )


def queue_notes(request: TrainRequest, *, first: bool) -> Iterator[str]:
    """Why the loss rises at the start of a task, for each method that then fills a queue."""
    for method in request.methods:
        # One that is kept over tasks starts full, of random directions.
        is_kept = any(one.lifetime == "stream" for one in method.slots(first=first))
        if method.queued and not is_kept:
            steps = math.ceil(method.queued / request.settings.batch_size)
            yield (
                f"{method.name}: the loss rises in the first {steps} steps, while its queue of "
                f"{method.queued} fills: each batch adds negatives"
            )


def shape_notes(request: TrainRequest) -> Iterator[str]:
    """Each method's choice that follows from the batch and the width, after the method's name."""
    for method, width in _with_width(request):
        note = method.shape_note(pairs=request.settings.batch_size, width=width)
        if note:
            yield f"{method.name}: {note}"


def shape_warnings(request: TrainRequest) -> Iterator[str]:
    """Warnings of methods about such choices."""
    for method, width in _with_width(request):
        warning = method.shape_warning(pairs=request.settings.batch_size, width=width)
        if warning:
            yield warning


def _with_width(request: TrainRequest) -> Iterator[tuple[Method, int]]:
    """The methods that use the previous model and have something to say, and the model's width."""
    used = request.previous is not None or request.teacher is not None
    asked = [
        method
        for method in request.methods
        if type(method).shape_note is not Method.shape_note
        and used
        and method.needs(first=False).previous
    ]
    # The configuration is read for them alone.
    width = shared_width(request.model) if asked else None
    for method in asked:
        if width is not None:
            yield method, width


def unprotected(request: TrainRequest, parent: CheckpointManifest | None) -> Iterator[str]:
    """Notes on pretrained weights of a first task, and on methods that have measured nothing yet.

    `parent` is the manifest of --previous, if there is one.
    """
    if request.previous is None:
        yield from _of_first_task(request)
    elif parent is not None:
        yield from _of_importance(request, request.previous, parent)


def _of_first_task(request: TrainRequest) -> Iterator[str]:
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
    later, first = (
        {slot.name for slot in method.slots(first=is_first)} for is_first in (False, True)
    )
    uses_model = needs.previous or needs.previous_weights or needs.previous_tokens
    return uses_model or needs.buffer or bool(later - first)


def _of_importance(
    request: TrainRequest, previous: Path, parent: CheckpointManifest
) -> Iterator[str]:
    """A note on the methods that protect what they have measured, and have measured nothing."""
    if parent.tasks and not request.fresh_state:
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

"""What methods make of the buffer, the batch and the model's width, for the plan. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator

from vlcpctl.core.method import Method
from vlcpctl.data.buffer.manifest import BUFFER_NAME
from vlcpctl.data.tasks.task import Task
from vlcpctl.models.configuration import shared_width
from vlcpctl.training.config.request import TrainRequest


def policy_notes(request: TrainRequest, buffer: Task | None) -> Iterator[str]:
    """A note for each method whose paper chooses the buffer by another policy."""
    if buffer is None:
        return
    policy = buffer.manifest[BUFFER_NAME]["policy"]
    for method in request.methods:
        if method.usual_policy not in {"", policy}:
            yield (
                f"{method.name} replays a buffer made by {policy}; its paper has "
                f"{method.usual_policy} ('vlcpctl buffer --policy {method.usual_policy}')"
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

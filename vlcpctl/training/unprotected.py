"""What of the model that a run starts from its methods do not protect, as notes for the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import some_names
from vlcpctl.core.method import Method
from vlcpctl.core.shown_paths import as_word
from vlcpctl.models.checkpoint_files import SLOTS
from vlcpctl.models.configuration import fusion_configuration
from vlcpctl.training.config.request import TrainRequest


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
    names = _without_state(request, previous, parent)
    if names:
        have = "has" if len(names) == 1 else "have"
        yield (
            f"{some_names(names)} {have} measured no importance of the weights yet: nothing of "
            "the model of --previous is protected in this task"
        )


def _without_state(
    request: TrainRequest, previous: Path, parent: CheckpointManifest
) -> Sequence[str]:
    """The methods that protect what they have measured, and have measured nothing."""
    names = [method.name for method in request.methods if method.measures]
    if request.fresh_state or not parent.tasks:
        is_new = request.fresh_state
        return [name for name in names if is_new or not (previous / SLOTS / name).is_dir()]
    return []

"""Precomputed teacher embeddings (targets) in place of the teacher: whether they fit a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.core.method import Method
from vlcpctl.core.transform import EXACT, ImageTransform
from vlcpctl.data.precomputed.targets import TargetsDirectory, TeacherTargets, open_targets
from vlcpctl.data.tasks.task import Split, Task
from vlcpctl.files.manifest import content_of, identity_differences
from vlcpctl.training.config.request import TrainRequest


def weight_users(methods: Sequence[Method]) -> list[str]:
    """The names of the methods that need the teacher's weights, even with targets."""
    needs = {method.name: method.needs(first=False) for method in methods}
    return [
        name
        for name, need in needs.items()
        if need.previous_weights or need.pseudo_texts or (need.reference and need.previous)
    ]


def targets_line(targets: TargetsDirectory, methods: Sequence[Method]) -> str:
    """The line of the plan about the targets."""
    views = "1 view" if targets.views == 1 else f"{targets.views} views"
    what = f"targets: {views} per image; the teacher is"
    users = weight_users(methods)
    if not users:
        return f"{what} neither loaded nor run"
    return f"{what} not run, but loaded: {', '.join(users)} needs its weights"


def open_teacher_targets(
    request: TrainRequest, sources: Sequence[Task], splits: Sequence[Split], *, first: bool
) -> TeacherTargets | None:
    """Open the targets of a request; None without --targets.

    Raises Incompatible unless they were computed by its teacher for all of its pairs, BadInput if
    they were changed since, and UsageError if no method uses them.
    """
    if request.targets is None:
        return None
    if first:
        raise UsageError("--targets has no effect without --previous or --teacher")
    needs = [method.needs(first=False) for method in request.methods]
    if not any(need.previous and not need.reference for need in needs):
        raise UsageError(
            f"--targets has no effect with --method {request.method_name}: its current settings "
            "use no teacher embeddings"
        )
    targets = open_targets(request.targets)
    _check_teacher(targets, request.teacher or request.previous)
    for source in sources:
        if not source.is_among(targets.manifest["sources"]):
            raise Incompatible(
                f"{targets.path} does not contain the pairs of {source.path}; run 'vlcpctl "
                "distill' on every task and the buffer of this run"
            )
    targets.verify()
    return targets.of(splits)


def _check_teacher(targets: TargetsDirectory, teacher: Path | None) -> None:
    assert teacher is not None, "a first task has no teacher"
    content, recorded = content_of(teacher, "checkpoint"), targets.manifest["teacher"]
    if content != recorded:
        raise Incompatible(
            f"{targets.path} was made with a different teacher than {teacher}: "
            f"content {recorded}, not {content}"
        )


def check_transform(targets: TargetsDirectory, transform: ImageTransform) -> None:
    """Raise Incompatible if targets were computed with a different image transform.

    A teacher embedding belongs to one crop: for another one it would be a wrong target.
    """
    # Targets that do not say how JPEGs were decoded are of whole ones.
    found, wanted = (
        {"jpeg_decode": EXACT, **facts}
        for facts in (targets.manifest["identity"]["transform"], transform.facts())
    )
    differences = identity_differences(found, wanted)
    if differences:
        raise Incompatible(
            f"{targets.path} was made with a different image transform: {'; '.join(differences)}"
        )


def refuse_tokens(targets: TargetsDirectory, methods: Sequence[Method]) -> None:
    """Raise Incompatible if a method distils token predictions.

    Those are too large to store: a vocabulary of logits for each masked word.
    """
    for method in methods:
        if method.needs(first=False).previous_tokens:
            raise Incompatible(
                f"{targets.path} does not contain the teacher's token predictions, which method "
                f"{method.name} distils with these settings; leave out --targets"
                f"{_or_without_words(method)}"
            )


def _or_without_words(method: Method) -> str:
    """The advice to distil no words, if that is all for which the method needs tokens."""
    if not isinstance(getattr(method, "words", None), bool):
        return ""
    without = replace(method, words=False).needs(first=False)  # type: ignore[call-arg]
    return "" if without.previous_tokens else f", or give --set {method.name}.words=false"

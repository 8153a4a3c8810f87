"""Targets in place of the live teacher: whether they fit a run, and what of it they save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.core.artifacts import read_manifest
from vlcpctl.core.differences import identity_differences
from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.core.method import Method
from vlcpctl.core.view import View
from vlcpctl.data.targets import Targets, Taught, open_targets
from vlcpctl.data.task import Split, Task
from vlcpctl.engine.request import Request


@dataclass(frozen=True)
class Teaching:
    """Opened targets, and the methods that need the teacher's weights all the same."""

    taught: Taught
    holders: tuple[str, ...]

    def __str__(self) -> str:
        """For the plan."""
        targets = self.taught.targets
        views = "1 view" if targets.views == 1 else f"{targets.views} views"
        what = f"targets: {views} of each image, no forward pass of the teacher"
        if not self.holders:
            return f"{what}, nor its weights"
        return f"{what}; {', '.join(self.holders)} needs its weights, so they are loaded"


def open_teaching(
    request: Request, sources: Sequence[Task], splits: Sequence[Split], *, first: bool
) -> Teaching | None:
    """The targets of a request, which must be of its teacher and of all of its pairs."""
    if request.targets is None:
        return None
    if first:
        raise UsageError("--targets has no effect without --previous or --teacher")
    needs = {method.name: method.needs(first=False) for method in request.methods}
    if not any(need.previous for need in needs.values()):
        raise UsageError(
            f"--targets has no effect on --method {request.method_name}: as it is set, it asks "
            "no teacher about its pairs"
        )
    targets = open_targets(request.targets)
    _check_teacher(targets, request.teacher or request.previous)
    for source in sources:
        if source.content not in targets.manifest["sources"]:
            raise Incompatible(
                f"{targets.path} is not of the pairs of {source.path}: make it with 'vlcpctl "
                "distill' of every task and of the buffer that are trained on"
            )
    holders = tuple(
        name for name, need in needs.items() if need.previous_weights or need.pseudo_texts
    )
    return Teaching(targets.of(splits), holders)


def _check_teacher(targets: Targets, teacher: Path | None) -> None:
    assert teacher is not None, "a first task has no teacher"
    content, told = read_manifest(teacher, "checkpoint")["content"], targets.manifest["teacher"]
    if content != told:
        raise Incompatible(
            f"{targets.path} has another teacher than {teacher}: its content is {told}, "
            f"this is {content}"
        )


def check_transform(targets: Targets, view: View) -> None:
    """Refuse targets of images that were seen in another way than the run will see them."""
    differences = identity_differences(targets.manifest["identity"]["transform"], view.facts())
    if differences:
        raise Incompatible(
            f"{targets.path} is of images that were seen in another way: {'; '.join(differences)}"
        )


def refuse_tokens(targets: Targets, methods: Sequence[Method]) -> None:
    """Refuse methods that ask what a fusion model says of words: that is too much to keep."""
    for method in methods:
        if method.needs(first=False).previous_tokens:
            raise Incompatible(
                f"{targets.path} has no words of the teacher, which method {method.name} as it is "
                "set distils from a fusion model; leave --targets out, or set "
                f"{method.name}.words=false where it has that"
            )

"""What a run learns from beside its pairs: precomputed targets, pseudo texts, --reference.

Whether they fit the run, and where they come from. Torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from vlcpctl.core.batch import InversionSettings
from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.core.method import Method
from vlcpctl.core.transform import EXACT, ImageTransform
from vlcpctl.data.loading.order import Order
from vlcpctl.data.loading.sampler import BufferSampler
from vlcpctl.data.tasks.task import Split, Task
from vlcpctl.files.manifest import identity_differences
from vlcpctl.training.request import Inputs, TrainRequest

if TYPE_CHECKING:
    from vlcpctl.data.precomputed.pseudo_texts import PseudoTexts
    from vlcpctl.data.precomputed.targets import Targets


def weight_users(methods: Sequence[Method]) -> list[str]:
    """The names of the methods that need the teacher's weights, even with targets."""
    needs = {method.name: method.needs(first=False) for method in methods}
    return [
        name
        for name, need in needs.items()
        if need.previous_weights or need.pseudo_texts or (need.reference and need.previous)
    ]


def targets_line(targets: Targets, methods: Sequence[Method]) -> str:
    """The line of the plan about the targets."""
    views = "1 view" if targets.views == 1 else f"{targets.views} views"
    what = f"targets: {views} per image; the teacher is"
    if users := weight_users(methods):
        return f"{what} not run, but loaded: {', '.join(users)} needs its weights"
    return f"{what} neither loaded nor run"


def teacher_targets(
    request: TrainRequest, inputs: Inputs, splits: Sequence[Split]
) -> Targets | None:
    """The targets of the rows of these splits; None without --targets.

    Raises Incompatible unless they were computed by the teacher for all pairs of the run, BadInput
    if they were changed since, and UsageError if no method uses them.
    """
    targets, teacher = inputs.targets, inputs.taught_by
    if targets is None:
        return None
    if teacher is None:
        raise UsageError("--targets has no effect without --previous or --teacher")
    needs = [method.needs(first=False) for method in request.methods]
    if not any(need.previous and not need.reference for need in needs):
        raise UsageError(
            f"--targets has no effect with --method {request.method_name}: its current settings "
            "use no teacher embeddings"
        )
    recorded = targets.manifest["teacher"]
    if teacher.content != recorded:
        raise Incompatible(
            f"{targets.path} was made with a different teacher than "
            f"{request.teacher or request.previous}: content {recorded}, not {teacher.content}"
        )
    for source in [*inputs.tasks, *([inputs.buffer] if inputs.buffer else [])]:
        if not source.is_among(targets.manifest["sources"]):
            raise Incompatible(
                f"{targets.path} does not contain the pairs of {source.path}; run 'vlcpctl "
                "distill' on every task and the buffer of this run"
            )
    targets.verify()
    return targets.of_splits(splits)


def check_targets(
    targets: Targets, transform: ImageTransform, width: int, methods: Sequence[Method]
) -> None:
    """Raise Incompatible if targets do not fit the model: its image transform, its width (D).

    A teacher embedding belongs to one crop: for another one it would be a wrong target. Nor do they
    fit `methods` of a fusion model that distil token predictions, which are too large to store.
    """
    # Targets that do not say how JPEGs were decoded are of whole ones.
    found = {"jpeg_decode": EXACT, **targets.manifest["identity"]["transform"]}
    if differences := identity_differences(found, {"jpeg_decode": EXACT, **transform.facts()}):
        raise Incompatible(
            f"{targets.path} was made with a different image transform: {'; '.join(differences)}"
        )
    for method in methods:
        if method.needs(first=False).previous_tokens:
            raise Incompatible(
                f"{targets.path} does not contain the teacher's token predictions, which method "
                f"{method.name} distils with these settings; leave out --targets"
            )
    if targets.width != width:
        raise Incompatible(
            f"{targets.path} has embeddings of {targets.width} channels, but the model has {width}"
        )


@dataclass(frozen=True)
class FileTexts:
    """The texts of a file, `count` for each batch: a pure function of (seed, batch number)."""

    file: PseudoTexts
    count: int
    seed: int

    def rows(self, number: int) -> np.ndarray:
        """(count,) rows of the texts for batch `number`, in an order shuffled every epoch.

        Texts that do not fill the last batch of an epoch over the file are left out.
        """
        epoch, batch = divmod(number, len(self.file) // self.count)
        return self._order.rows(epoch, batch * self.count, (batch + 1) * self.count)

    @cached_property
    def _order(self) -> Order:
        return Order(len(self.file), self.seed, "pseudo-texts")


@dataclass(frozen=True)
class PseudoTextSource:
    """How a method's pseudo texts are made, and their source: either `buffer` or `file_texts`."""

    method: str
    settings: InversionSettings
    buffer: BufferSampler | None = None
    file_texts: FileTexts | None = None

    def __str__(self) -> str:
        """The line in the plan."""
        said = f"{self.settings.texts} pseudo texts per step,"
        if self.file_texts is not None:
            return f"{said} from {len(self.file_texts.file)} precomputed ones"
        return f"{said} generated in {self.settings.iterations} iterations"


def pseudo_text_source(request: TrainRequest, inputs: Inputs) -> PseudoTextSource | None:
    """The source of pseudo texts for the method that needs them; None if no method does.

    Raises UsageError if --pseudo-texts has no effect or a needed input is missing, Incompatible if
    the file was made with another checkpoint or buffer, and BadInput if it was changed since.
    """
    for method in request.methods:
        settings = method.needs(first=request.is_first).pseudo_texts
        if settings is None:
            continue
        _check_share(request, method.name, settings.texts, "texts per step")
        if inputs.pseudo_texts is None:
            return _from_buffer(request, method.name, settings, inputs.buffer)
        default = type(method)().needs(first=False).pseudo_texts
        assert default is not None
        if replace(default, texts=settings.texts) != settings:
            raise UsageError(
                f"--set has no effect on how {method.name} generates texts with --pseudo-texts "
                f"{request.pseudo_texts}: its texts are already generated"
            )
        _check_made_for(inputs, inputs.pseudo_texts, settings.texts)
        texts = FileTexts(inputs.pseudo_texts, settings.texts, request.drawn_seed)
        return PseudoTextSource(method.name, settings, file_texts=texts)
    if request.pseudo_texts is not None:
        raise UsageError(f"--pseudo-texts has no effect {_where(request)}; leave it out")
    return None


def _where(request: TrainRequest) -> str:
    return "in a first task" if request.is_first else f"with --method {request.method_name}"


def _check_share(request: TrainRequest, name: str, count: int, what: str) -> None:
    if count % request.nproc:
        raise UsageError(
            f"method {name} uses {count} {what}, not divisible by {request.nproc} processes; "
            f"set a multiple of {request.nproc}"
        )


def _from_buffer(
    request: TrainRequest, name: str, settings: InversionSettings, buffer: Task | None
) -> PseudoTextSource:
    """Mini-batches of the buffer as a source.

    They are as large as the batch, unless the method sets another size or the buffer is smaller.
    """
    if buffer is None:
        raise UsageError(f"method {name} needs --buffer to generate pseudo texts from")
    split = buffer.split("train")
    pairs = min(settings.pairs or request.settings.batch_size, len(split))
    _check_share(request, name, pairs, "buffer pairs per step")
    return PseudoTextSource(
        name, replace(settings, pairs=pairs), buffer=BufferSampler(split, pairs, request.drawn_seed)
    )


def _check_made_for(inputs: Inputs, file: PseudoTexts, count: int) -> None:
    """Refuse texts of another teacher or buffer, or fewer than `count`."""
    assert inputs.taught_by is not None, "in a first task no method needs pseudo texts"
    wanted: dict[str, Sequence[str]] = {"checkpoint": [inputs.taught_by.content]}
    wanted |= {"buffer": inputs.buffer.ids} if inputs.buffer is not None else {}
    for name, ids in wanted.items():
        if file.identity[name] not in ids:
            raise Incompatible(
                f"{file.path} was made with a different {name}: content {file.identity[name]}, "
                f"not {ids[-1]}"
            )
    file.verify()
    if len(file) < count:
        raise UsageError(f"{file.path} has {len(file)} texts, but a step uses {count}")


def reference_sampler(request: TrainRequest, task: Task | None) -> BufferSampler | None:
    """The pairs of --reference, on which methods keep what the teacher can do; None without it.

    They come in batches as large as those to learn, or all if there are fewer. Raises UsageError if
    a method needs it and it is missing, if none needs it, or if it has fewer pairs than there are
    processes.
    """
    needs = {method.name: method.needs(first=request.is_first) for method in request.methods}
    users = [name for name, need in needs.items() if need.reference]
    if task is None:
        if users:
            raise UsageError(
                f"method {users[0]} needs --reference: a task with pairs of what the model must "
                "not forget (a buffer is one, too); for a method without it, use ctp"
            )
        return None
    if not users:
        raise UsageError(f"--reference has no effect {_where(request)}; leave it out")
    split = task.split("train")
    pairs = min(request.settings.batch_size, len(split))
    pairs -= pairs % request.nproc
    if not pairs:
        raise UsageError(
            f"--reference {task.path} has {len(split)} pairs, too few for {request.nproc} "
            "process(es); give a task with more"
        )
    return BufferSampler(split, pairs, request.drawn_seed, "reference")

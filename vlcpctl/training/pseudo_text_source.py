"""The source of a run's pseudo texts: the buffer, or a precomputed file. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from vlcpctl.core.batch import InversionSettings
from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.core.method import Method
from vlcpctl.data.loading.order import Order
from vlcpctl.data.loading.sampler import BufferSampler
from vlcpctl.data.precomputed.pseudo_texts import PseudoTexts, open_pseudo_texts
from vlcpctl.data.tasks.task import Task
from vlcpctl.files.manifest import content_of
from vlcpctl.training.config.request import TrainRequest


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
        epoch, batch_in_epoch = divmod(number, len(self.file) // self.count)
        return self._order.rows(
            epoch, batch_in_epoch * self.count, (batch_in_epoch + 1) * self.count
        )

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
        if self.file_texts is not None:
            count = len(self.file_texts.file)
            return f"{self.settings.texts} pseudo texts per step, from {count} precomputed ones"
        settings = self.settings
        return (
            f"{settings.texts} pseudo texts per step, generated in {settings.iterations} iterations"
        )


def pseudo_text_source(
    request: TrainRequest, buffer: Task | None, *, first: bool
) -> PseudoTextSource | None:
    """The source of pseudo texts for the method that needs them; None if no method does.

    Raises UsageError if --pseudo-texts has no effect or a needed input is missing, Incompatible if
    the file was made with another checkpoint or buffer, and BadInput if it was changed since.
    """
    for method in request.methods:
        settings = method.needs(first=first).pseudo_texts
        if settings is not None:
            _check_share(request, method.name, settings.texts, "texts per step")
            if request.pseudo_texts is None:
                return _from_buffer(request, method.name, settings, buffer)
            _refuse_settings(request, method, settings)
            return PseudoTextSource(
                method.name, settings, file_texts=_from_file(request, settings, buffer)
            )
    if request.pseudo_texts is not None:
        when = "in a first task" if first else f"with --method {request.method_name}"
        raise UsageError(f"--pseudo-texts has no effect {when}; leave it out")
    return None


def _from_buffer(
    request: TrainRequest, name: str, settings: InversionSettings, buffer: Task | None
) -> PseudoTextSource:
    """Mini-batches of the buffer as a source.

    They are as large as the batch, unless the method sets another size or the buffer is smaller.
    """
    if buffer is None:
        raise UsageError(f"method {name} needs --buffer to generate pseudo texts from")
    split = buffer.split("train")
    if not len(split):
        raise UsageError(f"--buffer {buffer.path} is empty: no pairs to generate pseudo texts from")
    pairs = min(settings.pairs or request.settings.batch_size, len(split))
    _check_share(request, name, pairs, "buffer pairs per step")
    return PseudoTextSource(
        name, replace(settings, pairs=pairs), buffer=BufferSampler(split, pairs, request.drawn_seed)
    )


def _check_share(request: TrainRequest, name: str, count: int, what: str) -> None:
    if count % request.nproc:
        raise UsageError(
            f"method {name} uses {count} {what}, not divisible by {request.nproc} processes; "
            f"set a multiple of {request.nproc}"
        )


def _refuse_settings(request: TrainRequest, method: Method, settings: InversionSettings) -> None:
    """Refuse --set for how texts are generated: those of a file already are."""
    default = type(method)().needs(first=False).pseudo_texts
    assert default is not None
    if replace(default, texts=settings.texts) != settings:
        raise UsageError(
            f"--set has no effect on how {method.name} generates texts with --pseudo-texts "
            f"{request.pseudo_texts}: its texts are already generated"
        )


def _from_file(
    request: TrainRequest, settings: InversionSettings, buffer: Task | None
) -> FileTexts:
    """The file as a source; it must be made with the teacher and the replayed buffer."""
    assert request.pseudo_texts is not None
    file = open_pseudo_texts(request.pseudo_texts)
    teacher = request.teacher or request.previous
    assert teacher is not None, "in a first task no method needs pseudo texts"
    content = content_of(teacher, "checkpoint")
    wanted: dict[str, tuple[str, ...]] = {"checkpoint": (content,)}
    paths = {"checkpoint": teacher}
    if buffer is not None:
        wanted["buffer"], paths["buffer"] = buffer.ids, buffer.path
    for name, ids in wanted.items():
        if file.identity[name] not in ids:
            raise Incompatible(
                f"{file.path} was made with a different {name} than {paths[name]}: "
                f"content {file.identity[name]}, not {ids[-1]}"
            )
    file.verify()
    if len(file) < settings.texts:
        raise UsageError(f"{file.path} has {len(file)} texts, but a step uses {settings.texts}")
    return FileTexts(file, settings.texts, request.drawn_seed)

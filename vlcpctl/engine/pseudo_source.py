"""Where a run's pseudo texts come from: made of the buffer step by step, or given. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from vlcpctl.core.artifacts import read_manifest
from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.core.method import Method
from vlcpctl.core.pseudo_texts import Inversion
from vlcpctl.data.order import Order
from vlcpctl.data.pseudo_texts import PseudoFile, open_pseudo_texts
from vlcpctl.data.task import Task
from vlcpctl.engine.memory import Memory
from vlcpctl.engine.request import Request


@dataclass(frozen=True)
class GivenTexts:
    """The texts of a file, `count` for each step: a pure function of (seed, number)."""

    file: PseudoFile
    count: int
    seed: int

    def rows(self, number: int) -> np.ndarray:
        """Which texts go with the batch of a number; those left at the end of an epoch do not."""
        epoch, inside = divmod(number, self.file.count // self.count)
        return self._order.rows(epoch, inside * self.count, (inside + 1) * self.count)

    @cached_property
    def _order(self) -> Order:
        return Order(self.file.count, self.seed, "pseudo-texts")


@dataclass(frozen=True)
class PseudoSource:
    """What a method asks for, and where it is taken from: one of the two."""

    method: str
    how: Inversion
    memory: Memory | None = None
    given: GivenTexts | None = None

    def __str__(self) -> str:
        """For the plan."""
        if self.given is not None:
            return f"{self.how.texts} pseudo texts a step, of {self.given.file.count} given"
        how = self.how
        return f"{how.texts} pseudo texts a step, made in {how.iterations} iterations"


def pseudo_source(request: Request, buffer: Task | None, *, first: bool) -> PseudoSource | None:
    """What a method asks for, checked against what is given; None if none asks."""
    for method in request.methods:
        how = method.needs(first=first).pseudo_texts
        if how is not None:
            _check_share(request, method.name, how.texts, "texts a step")
            if request.pseudo_texts is None:
                return _made(request, method.name, how, buffer)
            _refuse_settings(request, method, how)
            return PseudoSource(method.name, how, given=_given(request, how, buffer))
    if request.pseudo_texts is not None:
        when = "in a first task" if first else f"on --method {request.method_name}"
        raise UsageError(f"--pseudo-texts has no effect {when}; leave it out")
    return None


def _made(request: Request, name: str, how: Inversion, buffer: Task | None) -> PseudoSource:
    """Mini-batches of the buffer, as large as the batch unless the method or the buffer differs."""
    if buffer is None:
        raise UsageError(f"method {name} makes texts of a buffer: it needs --buffer")
    split = buffer.split("train")
    if not len(split):
        raise UsageError(f"--buffer {buffer.path} is empty: there is nothing to make texts of")
    pairs = min(how.pairs or request.settings.batch_size, len(split))
    _check_share(request, name, pairs, "pairs of the buffer a step")
    return PseudoSource(name, replace(how, pairs=pairs), memory=Memory(split, pairs, request.seed))


def _check_share(request: Request, name: str, count: int, what: str) -> None:
    if count % request.nproc:
        raise UsageError(
            f"{name} takes {count} {what}, which do not divide among {request.nproc} processes; "
            f"set a multiple of {request.nproc}"
        )


def _refuse_settings(request: Request, method: Method, how: Inversion) -> None:
    """How texts are made cannot be set for those that are made already."""
    usual = type(method)().needs(first=False).pseudo_texts
    assert usual is not None
    if replace(usual, texts=how.texts) != how:
        raise UsageError(
            f"--pseudo-texts {request.pseudo_texts}: its texts are made already, so --set has no "
            f"effect on how {method.name} makes them"
        )


def _given(request: Request, how: Inversion, buffer: Task | None) -> GivenTexts:
    """The file, which must be of the previous model and of the buffer that is replayed."""
    assert request.pseudo_texts is not None
    file = open_pseudo_texts(request.pseudo_texts)
    teacher = request.teacher or request.previous
    assert teacher is not None, "in a first task no method asks for texts"
    wanted = {"checkpoint": read_manifest(teacher, "checkpoint")["content"]}
    paths = {"checkpoint": teacher}
    if buffer is not None:
        wanted["buffer"], paths["buffer"] = buffer.content, buffer.path
    for name, content in wanted.items():
        if file.identity[name] != content:
            raise Incompatible(
                f"{file.path} was not made with the {name} {paths[name]}: "
                f"its {name} is {file.metadata['identity'][name]}, this is {content}"
            )
    if file.count < how.texts:
        raise UsageError(f"{file.path} holds {file.count} texts, and a step takes {how.texts}")
    return GivenTexts(file, how.texts, request.seed)

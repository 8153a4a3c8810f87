"""The exponential moving average of the weights, which practitioners evaluate and deploy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vlcpctl import core
from vlcpctl.core.hyper import hyper
from vlcpctl.core.method import TRAIN, Batch, Method, Run, Slot


@dataclass(frozen=True, kw_only=True)
class Ema(Method):
    """Fine-tuning whose model is the average: it is validated, written and trained on next.

    A task's average starts at the previous model, which is the average so far: after n steps it
    still holds decay^n of it. The trained weights start there too and are given up with the task.
    """

    name: ClassVar[str] = "ema"
    title: ClassVar[str] = "Moving average of the weights along the stream, as practitioners deploy"
    note: ClassVar[str] = (
        "the model written is the average: after n steps it holds decay^n of its start"
    )
    preset: ClassVar[str] = "ctp"
    keeps: ClassVar[str] = "average"

    decay: float = hyper(
        0.999,
        doc="What the average keeps of itself at a step; 0 is fine-tuning. No warm-up.",
        origin="ours",
        within="[0, 1]",
    )

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        """The average, from the weights that the task begins with."""
        return (
            Slot(
                name="average", lifetime="task", start=lambda run: core.params.copy_of(run.weights)
            ),
        )

    def after_step(self, run: Run, batch: Batch, aux: dict[str, Any], *, stepped: bool) -> None:
        """Move the average towards the trained weights."""
        if run.phase == TRAIN.name and stepped:
            core.params.blend_(run.slot("average"), self.decay, (1 - self.decay, run.weights))

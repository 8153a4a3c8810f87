"""EMA: the exponential moving average of the weights, which practitioners evaluate and deploy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vlcpctl import core
from vlcpctl.core.batch import Batch
from vlcpctl.core.method import TRAIN, Method, Run, Slot, hyper


@dataclass(frozen=True, kw_only=True)
class Ema(Method):
    """Fine-tune, and validate and write the average instead of the trained weights.

    The next task starts from the average: both the weights and the new average are initialised
    with it. After n steps the average still contains decay^n of its start. The trained weights are
    discarded at the end of a task.
    """

    name: ClassVar[str] = "ema"
    title: ClassVar[str] = "Average the weights along the stream (exponential moving average)"
    note: ClassVar[str] = (
        "the average is written as the model; after n steps the initial weights still count decay^n"
    )
    preset: ClassVar[str] = "ctp"
    keeps: ClassVar[str] = "average"
    off: ClassVar[tuple[str, ...]] = ("decay=0",)

    decay: float = hyper(
        0.999,
        doc="Decay of the average at each step, without warm-up; 0 is fine-tuning.",
        origin="ours",
        within="[0, 1]",
        depends="the number of steps: the average spans about 1 / (1 - decay) of them; "
        "train-step --scale-per-step N rescales a decay that was chosen for N steps",
    )

    def per_step(self, *, first: bool) -> tuple[str, ...]:
        """The decay, in every task."""
        return ("decay",)

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        """The average, initialised with the weights at the start of the task."""
        return (
            Slot(
                name="average", lifetime="task", start=lambda run: core.params.copy_of(run.weights)
            ),
        )

    def after_step(self, run: Run, batch: Batch, aux: dict[str, Any], *, stepped: bool) -> None:
        """Update the average with the trained weights, unless fp16 skipped the step."""
        if run.phase == TRAIN.name and stepped:
            core.params.blend_(run.slot("average"), self.decay, (1 - self.decay, run.weights))

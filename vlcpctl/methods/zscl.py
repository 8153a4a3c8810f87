"""ZSCL: distil a frozen model on reference data, and average the weights (Zheng et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vlcpctl import core, losses
from vlcpctl.core.batch import Batch, Features, Terms
from vlcpctl.core.method import TRAIN, Method, Needs, Paper, Run, Slot, hyper


@dataclass(frozen=True, kw_only=True)
class Zscl(Method):
    """Keep similarities of reference pairs, and write the mean of snapshots of the weights.

    Similarities are between the model's features of one modality and the frozen model's of the
    other, at the frozen model's temperature. The frozen model is that of --previous, or with
    --teacher another one: the paper's is the start of the stream in all tasks. The next task starts
    from the mean.
    """

    name: ClassVar[str] = "zscl"
    title: ClassVar[str] = "ZSCL: distil a frozen model on reference pairs, and average the weights"
    note: ClassVar[str] = (
        "distils the model of --teacher, else of --previous; the paper's is the start of the stream"
    )
    preset: ClassVar[str] = "update"
    by_rows: ClassVar[frozenset[str]] = frozenset({"image", "text"})
    keeps: ClassVar[str] = "average"
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Preventing Zero-Shot Transfer Degradation in Continual Learning "
            "of Vision-Language Models",
            authors="Zangwei Zheng, Mingyuan Ma, Kai Wang, Ziheng Qin, Xiangyu Yue and Yang You",
            venue="ICCV",
            year=2023,
            url="https://arxiv.org/abs/2303.06628",
        ),
    )
    off: ClassVar[tuple[str, ...]] = ("strength=0", "every=0")

    strength: float = hyper(
        1.0, doc="Weight of both distillation terms.", origin="ZSCL authors' code"
    )
    text: str = hyper(
        "student",
        doc="The term of the texts: student (the model's texts and the frozen model's images), or "
        "transpose (of the matrix of the image term: no gradient reaches the text tower).",
        origin="ZSCL; 'transpose' is the authors' code",
        choices=("student", "transpose"),
    )
    temperature: float = hyper(
        2.0,
        doc="Divisor of the similarities, beside the frozen model's own temperature.",
        origin="ZSCL authors' code",
        within="(0, inf)",
    )
    every: int = hyper(
        100,
        doc="Steps between the snapshots of the average, the first after step 1; 0 writes the "
        "trained weights.",
        origin="ZSCL authors' code",
        depends="the number of steps: the start of the task counts as one snapshot, so that "
        "1,000 steps (the paper's tasks) leave it a share of 1/11, and 100 or fewer one of 1/2",
    )

    def needs(self, *, first: bool) -> Needs:
        """Reference pairs and the previous model, after the first task, unless `strength` is 0."""
        distils = not first and self.strength != 0
        return Needs(reference=distils, previous=distils)

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        """The average after the first task, initialised with the weights at the task's start."""
        if first or not self.every:
            return ()
        return (
            Slot(
                name="average", lifetime="task", start=lambda run: core.params.copy_of(run.weights)
            ),
        )

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """The distillation of both modalities, on the reference pairs."""
        new = out.reference
        if new is None or batch.reference is None or not self.strength:
            return {}, {}
        old = run.previous(batch.reference)
        old_bB = losses.rows.similarities(old.image, old.text, old.scale, new.own)
        by_image = losses.rows.similarities(new.image, old.text, old.scale, new.own)
        # Its second matrix has the model's texts in rows, its first in columns.
        by_text = losses.rows.similarities(old.image, new.text, old.scale, new.own)
        new_bB = by_image[0], (by_text if self.text == "student" else by_image)[1]
        image, text = (
            losses.distillation.softened(
                then, now, temperature=self.temperature, count=len(new.image)
            )
            for then, now in zip(old_bB, new_bB, strict=True)
        )
        return {"image": self.strength * image, "text": self.strength * text}, {}

    def after_step(self, run: Run, batch: Batch, aux: dict[str, Any], *, stepped: bool) -> None:
        """Add a snapshot to the average: the mean of the start and of all snapshots."""
        if run.phase != TRAIN.name or run.first or not self.every or run.step % self.every:
            return
        held = run.step // self.every + 1  # of the average so far, with the start
        core.params.blend_(run.slot("average"), held / (held + 1), (1 / (held + 1), run.weights))

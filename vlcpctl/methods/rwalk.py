"""RWalk: Riemannian walk (Chaudhry et al., 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vlcpctl import core, losses
from vlcpctl.core.batch import Batch
from vlcpctl.core.method import TRAIN, Paper, Phase, Run, Slot, hyper
from vlcpctl.methods.bases.weight_penalty import (
    IMPORTANCE,
    TASKS,
    Penalty,
    WeightPenalty,
    accumulate,
    importance,
    path_slots,
    task_start,
    trained_copy,
    zeros,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Rwalk(WeightPenalty):
    """Penalise each weight's squared distance from the previous model by Fisher diagonal and score.

    The score is a path integral as in SI, per Riemannian distance. In the paper's variant both are
    updated during training: every `every` steps the mean of the squared gradients enters the moving
    average of the Fisher diagonal, and the path of these steps adds to the score. At the end of a
    task the score is averaged with the earlier one, and both are divided by their largest value.
    """

    name: ClassVar[str] = "rwalk"
    title: ClassVar[str] = (
        "Riemannian walk: penalise changes to weights by Fisher information plus path scores"
    )
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Riemannian Walk for Incremental Learning: Understanding Forgetting and "
            "Intransigence",
            authors="Arslan Chaudhry, Puneet K. Dokania, Thalaiyasingam Ajanthan and Philip H. S. "
            "Torr",
            venue="ECCV",
            year=2018,
            url="https://arxiv.org/abs/1801.10112",
        ),
    )
    off: ClassVar[tuple[str, ...]] = ("strength=0",)

    strength: float = hyper(
        1000.0,
        doc="lambda: weight of the penalty.",
        origin="CTP authors' code",
        depends="the variant: 1000 is for the unscaled importances of variant=ctp, where it also "
        "depends on the batch size; variant=paper scales them to a maximum of 1",
    )
    damping: float = hyper(
        0.1,
        doc="epsilon: damping, added to each weight's squared Riemannian distance.",
        origin="CTP authors' code",
        within="(0, inf)",
    )
    alpha: float = hyper(
        0.9,
        doc="Weight of a new Fisher diagonal in the moving average (variant=paper).",
        origin="RWalk authors' code",
        within="[0, 1]",
    )
    every: int = hyper(
        50,
        doc="Steps between two updates of Fisher diagonal and scores (variant=paper).",
        origin="RWalk authors' code",
        within="[1, inf)",
        depends="the number of steps: a task of fewer steps than this updates them once, at its "
        "end",
    )
    variant: str = hyper(
        "paper",
        doc="Fisher diagonal and scores updated during training, each scaled to a maximum of 1 "
        "(paper); or Fisher diagonal as in EWC, one score per task, unscaled (ctp).",
        origin="RWalk, section 4; 'ctp' is the CTP authors' code",
        choices=("paper", "ctp"),
    )

    @property
    def penalties(self) -> tuple[Penalty, ...]:
        """The sum of lambda * (Fisher + score) * (weight - previous)^2; omega has both scaled."""
        summed = ("omega",) if self.variant == "paper" else ("fisher", "scores")
        return (Penalty(importances=summed, strength=self.strength),)

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        """Fisher and scores, the path and, in the paper's variant, the sums of the open window."""
        common = (importance("fisher"), importance("scores"), TASKS, *path_slots(first=first))
        if self.variant == "ctp":
            return common
        return (
            *common,
            importance("omega"),
            Slot(name="squares", lifetime="task", start=zeros),
            Slot(name="gained", lifetime="task", start=zeros),
            Slot(name="opening", lifetime="task", start=trained_copy),
        )

    def phases(self, *, first: bool) -> tuple[Phase, ...]:
        """Train; in the CTP authors' variant then a pass over the task for its Fisher diagonal."""
        return (TRAIN,) if self.variant == "paper" else (TRAIN, IMPORTANCE)

    def after_backward(self, run: Run, grads: Mapping[str, Tensor]) -> None:
        """Keep the gradient of the loss alone; after training, add its square to Fisher (ctp)."""
        if run.phase != IMPORTANCE.name:
            core.params.copy_(run.slot("gradient"), grads)
            core.params.copy_(run.slot("before"), run.weights)
            return
        accumulate(run, "fisher", grads, losses.importance.add_squares_, averages_tasks=True)
        if run.step + 1 == run.steps:
            self._score_once(run)

    def after_step(self, run: Run, batch: Batch, aux: dict[str, Any], *, stepped: bool) -> None:
        """Add the step to the path and, in the paper's variant, to Fisher and score."""
        if stepped:
            losses.importance.add_path_(
                run.slot("path"), run.slot("gradient"), run.slot("before"), run.weights
            )
        if self.variant == "ctp":
            return
        if stepped:
            losses.importance.add_squares_(run.slot("squares"), run.slot("gradient"), 1.0)
        ends = run.step + 1 == run.steps
        if ends or (run.step + 1) % self.every == 0:
            self._score_window(run)
        if ends:
            self._consolidate(run)

    def _score_window(self, run: Run) -> None:
        """Close a window of steps: update Fisher, add to the score, open the next window here."""
        path, squares, opening = (run.slot(name) for name in ("path", "squares", "opening"))
        fisher, steps = run.slot("fisher"), run.step % self.every + 1
        core.params.blend_(fisher, 1 - self.alpha, (self.alpha / steps, squares))
        score = losses.importance.per_fisher_distance(
            path, fisher, (opening, run.weights), half=0.5, damping=self.damping
        )
        core.params.blend_(run.slot("gained"), 1.0, (1.0, score))
        core.params.copy_(opening, run.weights)
        core.params.zero_(path)
        core.params.zero_(squares)

    def _consolidate(self, run: Run) -> None:
        """Average the score with the earlier tasks', and scale Fisher and score to at most 1."""
        fisher, scores, count = run.slot("fisher"), run.slot("scores"), run.slot("tasks")["count"]
        kept = 0.5 if int(count) else 0.0
        core.params.blend_(scores, kept, (1 - kept, run.slot("gained")))
        omega = run.slot("omega")
        core.params.copy_(omega, losses.importance.over_largest(fisher))
        core.params.blend_(omega, 1.0, (1.0, losses.importance.over_largest(scores)))
        count.add_(1)

    def _score_once(self, run: Run) -> None:
        """The CTP authors' score: of the whole task, with the Fisher diagonal of all tasks."""
        score = losses.importance.per_fisher_distance(
            run.slot("path"),
            run.slot("fisher"),
            (task_start(run), run.weights),
            half=1.0,
            damping=self.damping,
        )
        core.params.blend_(run.slot("scores"), 0.5, (0.5, score))

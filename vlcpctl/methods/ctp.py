"""CTP: compatible momentum contrast with topology preservation (Zhu et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vlcpctl import core, losses
from vlcpctl.core.batch import Batch, Features, Terms, Tokens, Weights
from vlcpctl.core.method import Method, Needs, Paper, Part, Run, Slot, hyper

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Ctp(Method):
    """Contrast with a momentum model, and distil the previous model's similarities.

    The momentum model follows both the previous and the current model ("compatible").
    """

    name: ClassVar[str] = "ctp"
    title: ClassVar[str] = "CTP: compatible momentum contrast and topology preservation"
    preset: ClassVar[str] = "ctp"
    by_rows: ClassVar[frozenset[str]] = frozenset({"momentum", "cross_modal", "same_modal"})
    # 5 epochs of 1,014,599 / 9 pairs in batches of 512: the mean over P9D's tasks (CTP, sections 3
    # and 5.1), 5 * floor(112733 / 512).
    steps_per_task: ClassVar[int] = 1100
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="CTP: Towards Vision-Language Continual Pretraining "
            "via Compatible Momentum Contrast and Topology Preservation",
            authors="Hongguang Zhu, Yunchao Wei, Xiaodan Liang, Chunjie Zhang and Yao Zhao",
            venue="ICCV",
            year=2023,
            url="https://arxiv.org/abs/2308.07146",
        ),
    )
    off: ClassVar[tuple[str, ...]] = ("momentum=false", "cross_modal=false", "same_modal=false")

    momentum: bool = hyper(
        True,
        doc="Contrast with a momentum model, and distil its predictions of masked words.",
        origin="CTP eqs. 4-5, table 2",
    )
    cross_modal: bool = hyper(
        True, doc="Distil image-text similarities.", origin="CTP eq. 7, table 2"
    )
    same_modal: bool = hyper(
        True, doc="Distil similarities within a modality.", origin="CTP eq. 9, table 2"
    )
    suppress_diagonal: bool = hyper(
        True,
        doc="Exclude each sample's similarity to itself from the same-modal distillation.",
        origin="CTP eq. 8, table 3",
    )
    queue: int = hyper(
        1024,
        doc="Size of the queue of momentum features used as negatives; 0 for none.",
        origin="CTP, section 5.1, table 3",
        depends="the size of the tasks: beyond the distinct pairs of a task, it holds matches of a "
        "pair as its negatives",
    )
    keep_queue: bool = hyper(
        False,
        doc="Keep the queue across tasks, and initialise it with random directions; with "
        "--negatives all only.",
        origin="CTP authors' code; the paper takes negatives of the current task",
    )
    positives: str = hyper(
        "batch",
        doc="Momentum features to contrast a sample with: those of the whole batch, or only of "
        "its own process, which makes the loss depend on the number of processes.",
        origin="CTP eq. 4; 'process' is the CTP authors' code",
        choices=("batch", "process"),
    )
    momentum_from: str = hyper(
        "both",
        doc="Models that the momentum model averages.",
        origin="CTP eq. 3, table 3",
        choices=("both", "previous", "current"),
    )
    m: float = hyper(
        0.9,
        doc="Decay of the momentum model at each step.",
        origin="CTP eq. 3",
        within="[0, 1]",
        depends="the number of steps: it applies at each, about 1,100 per task in the paper, which "
        "is not sensitive to it (table 5); train-step --scale-per-step paper rescales it",
    )
    m_first: float = hyper(
        0.995,
        doc="Decay of the momentum model in the first task, where it averages only the current "
        "model.",
        origin="CTP, appendix E.1",
        within="[0, 1]",
        depends="the number of steps: it applies at each; never rescaled, since a lower value can "
        "keep the first task from converging (CTP, appendix E.1)",
    )

    @property
    def queued(self) -> int:
        """The size of the queue, if there is one."""
        return self.queue if self.momentum else 0

    def needs(self, *, first: bool) -> Needs:
        """The previous model, for the distillation and for the momentum model."""
        return Needs(
            previous=not first and (self.cross_modal or self.same_modal),
            previous_weights=not first and self.momentum and self.momentum_from != "current",
        )

    def per_step(self, *, first: bool) -> tuple[str, ...]:
        """The momentum after the first task; that of the first must stay high to converge."""
        return ("m",) if self.momentum and not first else ()

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        """The momentum model and the queue of its features."""
        if not self.momentum:
            return ()
        slow = Slot(
            name="momentum", lifetime="task", start=lambda run: core.params.copy_of(run.weights)
        )
        queue = Slot(
            name="queue", lifetime="stream" if self.keep_queue else "task", start=self._new_queue
        )
        return (slow, queue) if self.queue else (slow,)

    def before_forward(self, run: Run) -> None:
        """Update the momentum model (eq. 3); in the first task from the current model alone."""
        if not self.momentum:
            return
        slow, keep = run.slot("momentum"), self.m
        if run.first:
            core.params.blend_(slow, self.m_first, (1 - self.m_first, run.weights))
        elif self.momentum_from == "both":
            core.params.blend_(
                slow, keep, ((1 - keep) / 2, run.weights), ((1 - keep) / 2, run.anchor)
            )
        else:
            source = run.anchor if self.momentum_from == "previous" else run.weights
            core.params.blend_(slow, keep, (1 - keep, source))

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """The terms of eq. 10 over features, each with weight 1, and the momentum features."""
        terms: Terms = {}
        aux: dict[str, Any] = {}
        if self.momentum:
            aux["slow"] = slow = run.features(batch, run.slot("momentum"), tokens=True)
            terms["momentum"] = losses.momentum.momentum_contrast(
                (out.image, out.text),
                self._candidates(run, slow, batch.groups),
                out.scale,
                blocks=run.processes if self.positives == "process" else 1,
                own=out.own,
                rows=run.row_loss,
            )
        if not run.first:
            terms |= self._topology(run, batch, out)
        return terms, aux

    def token_loss(self, run: Run, part: Part, out: Tokens) -> Terms:
        """Cross-entropy with the momentum model's predictions of the masked words (eq. 5)."""
        if not self.momentum:
            return {}
        slow = part.under(run.slot("momentum"))
        return {"words": losses.masked.soft_word_loss(out.logits, slow.logits) / part.masked}

    def after_step(self, run: Run, batch: Batch, aux: dict[str, Any], *, stepped: bool) -> None:
        """Add the momentum model's features of this batch to the queue."""
        if not (self.momentum and self.queue):
            return
        queue, slow = run.slot("queue"), aux["slow"]
        position, filled = int(queue["position"]), int(queue["filled"])
        losses.momentum.enqueue_(queue["image"], slow.image, position)
        if batch.groups is not None:
            losses.momentum.enqueue_(queue["group"], batch.groups, position)
        queue["position"].fill_(losses.momentum.enqueue_(queue["text"], slow.text, position))
        queue["filled"].fill_(min(self.queue, filled + len(slow.image)))

    def _topology(self, run: Run, batch: Batch, out: Features) -> Terms:
        if not (self.cross_modal or self.same_modal):
            return {}
        old = run.previous(batch)
        features = ((out.image, out.text), (old.image, old.text), out.scale)
        terms: Terms = {}
        if self.cross_modal:
            terms["cross_modal"] = losses.topology.cross_modal(*features, own=out.own)
        if self.same_modal:
            terms["same_modal"] = losses.topology.same_modal(
                *features, suppresses_diagonal=self.suppress_diagonal, own=out.own
            )
        return terms

    def _candidates(
        self, run: Run, slow: Features, groups_B: Tensor | None
    ) -> losses.momentum.Candidates:
        """The momentum features of the batch, and those in the filled part of the queue."""
        queue = run.slot("queue") if self.queue else {"image": slow.image, "text": slow.text}
        filled = int(queue["filled"]) if self.queue else 0
        groups = None
        if groups_B is not None:
            groups = (groups_B, queue["group"][:filled] if self.queue else groups_B[:0])
        return losses.momentum.Candidates(
            image=slow.image,
            text=slow.text,
            queue_image=queue["image"][:filled].to(slow.image),
            queue_text=queue["text"][:filled].to(slow.text),
            groups=groups,
        )

    def _new_queue(self, run: Run) -> Weights:
        return losses.momentum.new_queue(
            self.queue,
            next(iter(run.weights.values())),
            width=run.width,
            seed=run.seed,
            starts_random=self.keep_queue,
            groups=run.distinct,
        )

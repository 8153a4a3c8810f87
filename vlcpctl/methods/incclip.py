"""IncCLIP: generative negative text replay (Yan et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vlcpctl import core, losses
from vlcpctl.core.hyper import hyper
from vlcpctl.core.method import Batch, Features, Method, Needs, Paper, Run, Slot, Terms, Weights
from vlcpctl.core.pseudo_texts import Inversion

OURS = "ours: the paper names no value; chosen on Emoji-9"


@dataclass(frozen=True, kw_only=True)
class Incclip(Method):
    """More negative texts, which the previous model makes of a buffer; distillation; clipping."""

    name: ClassVar[str] = "incclip"
    title: ClassVar[str] = "IncCLIP: negative texts made by the previous model, and distillation"
    preset: ClassVar[str] = "incclip"
    note: ClassVar[str] = (
        "the paper's tau_old and lambda suit a temperature learned down to about 0.01; "
        "with a fixed 0.07 little is learned"
    )
    replaces_base: ClassVar[bool] = True
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Generative Negative Text Replay for Continual Vision-Language Pretraining",
            authors="Yan, Hong, Xu, Han, Tuytelaars, Li and He",
            venue="ECCV",
            year=2022,
            url="https://arxiv.org/abs/2210.17322",
        ),
    )

    alpha: float = hyper(
        0.5,
        doc="Share of image-to-text in the contrastive loss.",
        origin="IncCLIP eq. 6",
        within="[0, 1]",
    )
    lambda_: float = hyper(
        5.0, doc="Weight of the distillation; 0 for none.", origin="IncCLIP eq. 10, table 3"
    )
    eta: float = hyper(
        0.5,
        doc="Share of image-to-text in the distillation.",
        origin="IncCLIP eq. 9",
        within="[0, 1]",
    )
    tau_old: float = hyper(
        0.01,
        doc="Temperature of the previous model in the distillation.",
        origin="IncCLIP eqs. 7-8, section 4.1",
        within="(0, inf)",
    )
    kl: str = hyper(
        "printed",
        doc="From the current model's distribution to the previous one's, or reversed.",
        origin="IncCLIP eqs. 7-8; 'reversed' is ours",
        choices=("printed", "reversed"),
    )
    count: int = hyper(
        256,
        doc="Negative texts of each step after the first task; 0 for none.",
        origin="IncCLIP, section 4.1, table 3",
    )
    memory_batch: int = hyper(
        0,
        doc="Pairs of the buffer that the texts of a step are made of; 0: as many as the batch.",
        origin="IncCLIP eq. 1; at most the buffer, ours",
    )
    s_min: float = hyper(
        0.0, doc="Similarity to the images that a text has at least.", origin=OURS, within="[-1, 1]"
    )
    s_max: float = hyper(
        0.4, doc="Similarity to the images that it has at most.", origin=OURS, within="[-1, 1]"
    )
    iterations: int = hyper(5, doc="Steps of gradient descent on a text.", origin=OURS)
    rate: float = hyper(0.3, doc="Rate of the gradient descent.", origin=OURS)
    clip: bool = hyper(
        True, doc="Clip the norm of each weight.", origin="IncCLIP, section 3.3, table 3"
    )
    gamma: float = hyper(
        1.5,
        doc="How many times its norm at the start of the first task a weight may have.",
        origin="ours: the paper names no value",
        within="(0, inf)",
    )

    def needs(self, *, first: bool) -> Needs:
        """The previous model, to distil and to make texts of a buffer, once there is something."""
        made = None
        if self.count and not first:
            made = Inversion(
                texts=self.count,
                pairs=self.memory_batch,
                low=self.s_min,
                high=self.s_max,
                iterations=self.iterations,
                rate=self.rate,
            )
        distils = not first and self.lambda_ != 0
        return Needs(buffer=not first, previous=distils, pseudo_texts=made)

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        """The norms that weights had before the first step of the first task."""
        return (Slot(name="norms", lifetime="stream", start=_norms),) if self.clip else ()

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """Eq. 10: each image against its batch's texts and the negative ones, and distillation."""
        new_BT = losses.incclip.logits(out.image, out.text, out.pseudo, out.scale)
        i2t, t2i = losses.incclip.contrast(new_BT)
        terms = {"contrastive": run.joined(2 * self.alpha * i2t, 2 * (1 - self.alpha) * t2i)}
        if self.lambda_ and not run.first:
            old = run.previous(batch)
            old_BT = losses.incclip.logits(old.image, old.text, old.pseudo, 1 / self.tau_old)
            i2t, t2i = losses.incclip.distil(new_BT, old_BT, is_reversed=self.kl == "reversed")
            terms["distil"] = self.lambda_ * (self.eta * i2t + (1 - self.eta) * t2i)
        return terms, {}

    def after_step(self, run: Run, batch: Batch, aux: dict[str, Any], *, stepped: bool) -> None:
        """Hold every weight to `gamma` times the norm it started with."""
        if self.clip:
            losses.incclip.clip_norms_(run.weights, run.slot("norms"), self.gamma)


def _norms(run: Run) -> Weights:
    # Ours: the paper says layer by layer; gains and biases, which have one dimension, are free.
    trained = core.params.trained(run.weights)
    return {name: weight.detach().norm() for name, weight in trained.items() if weight.dim() > 1}

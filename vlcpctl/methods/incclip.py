"""IncCLIP: generative negative text replay (Yan et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vlcpctl import core, losses
from vlcpctl.core.batch import Batch, Features, InversionSettings, Terms, Weights
from vlcpctl.core.method import Method, Needs, Paper, Run, Slot, hyper

OURS = "ours: the paper names no value; chosen on Emoji-9"


@dataclass(frozen=True, kw_only=True)
class Incclip(Method):
    """Add negative texts, distil the previous model, and clip the norms of the weights.

    The previous model generates the negative texts from pairs of the buffer.
    """

    name: ClassVar[str] = "incclip"
    title: ClassVar[str] = (
        "IncCLIP: negative texts generated with the previous model, and distillation"
    )
    preset: ClassVar[str] = "incclip"
    note: ClassVar[str] = (
        "the paper's tau_old and lambda suit a temperature learned down to about 0.01; "
        "with a fixed 0.07 little is learned"
    )
    replaces_base: ClassVar[bool] = True
    overwrites_unless: ClassVar[str] = "incclip.clip=false"
    by_rows: ClassVar[frozenset[str]] = frozenset({"contrastive", "distil"})
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Generative Negative Text Replay for Continual Vision-Language Pretraining",
            authors="Shipeng Yan, Lanqing Hong, Hang Xu, Jianhua Han, Tinne Tuytelaars, Zhenguo Li "
            "and Xuming He",
            venue="ECCV",
            year=2022,
            url="https://arxiv.org/abs/2210.17322",
        ),
    )

    alpha: float = hyper(
        0.5,
        doc="Share of the image-to-text direction in the contrastive loss.",
        origin="IncCLIP eq. 6",
        within="[0, 1]",
    )
    lambda_: float = hyper(
        5.0, doc="Weight of the distillation; 0 for none.", origin="IncCLIP eq. 10, table 3"
    )
    eta: float = hyper(
        0.5,
        doc="Share of the image-to-text direction in the distillation.",
        origin="IncCLIP eq. 9",
        within="[0, 1]",
    )
    tau_old: float = hyper(
        0.01,
        doc="Temperature of the previous model in the distillation.",
        origin="IncCLIP eqs. 7-8, section 4.1",
        within="(0, inf)",
        depends="the temperature of the model: 0.01 suits one that is learned down to it; with a "
        "fixed one, set it to that (docs/papers/incclip_choices.md)",
    )
    kl: str = hyper(
        "printed",
        doc="Direction of the KL divergence: from the current model's distribution to the previous "
        "one's, as printed, or reversed.",
        origin="IncCLIP eqs. 7-8; 'reversed' is ours",
        choices=("printed", "reversed"),
    )
    count: int = hyper(
        256,
        doc="Negative texts generated in each step after the first task; 0 for none.",
        origin="IncCLIP, section 4.1, table 3",
        depends="the batch size: the paper's 256 stand beside 4096 pairs, one text for 16",
    )
    memory_batch: int = hyper(
        0,
        doc="Buffer pairs that the texts of a step are generated from; 0: the size of the batch.",
        origin="IncCLIP eq. 1; at most the buffer, ours",
    )
    s_min: float = hyper(
        0.0,
        doc="Lower bound of a generated text's similarity to the images.",
        origin=OURS,
        within="[-1, 1]",
    )
    s_max: float = hyper(
        0.4,
        doc="Upper bound of a generated text's similarity to the images.",
        origin=OURS,
        within="[-1, 1]",
    )
    iterations: int = hyper(5, doc="Gradient descent steps that generate a text.", origin=OURS)
    rate: float = hyper(
        0.3, doc="Learning rate of the gradient descent that generates a text.", origin=OURS
    )
    clip: bool = hyper(
        True, doc="Clip the norm of each weight.", origin="IncCLIP, section 3.3, table 3"
    )
    gamma: float = hyper(
        1.5,
        doc="Largest norm of a weight, as a multiple of its norm at the start of the first task.",
        origin="ours: the paper names no value",
        within="(0, inf)",
        depends="the learning rate and the number of steps: how far the norms would grow",
    )

    @property
    def overwrites(self) -> bool:
        """Whether it clips the norms of weights."""
        return self.clip

    def needs(self, *, first: bool) -> Needs:
        """After the first task: a buffer, and the previous model to distil and generate texts."""
        made = None
        if self.count and not first:
            made = InversionSettings(
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
        """The norms of the weights before the first step of the stream, unless `clip` is off."""
        return (Slot(name="norms", lifetime="stream", start=_norms),) if self.clip else ()

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """Eq. 10: the contrastive loss with the negative texts, and the distillation."""
        new = losses.incclip.logits(out.image, out.text, out.pseudo, out.scale, out.own)
        i2t, t2i = losses.incclip.contrast(new, out.own, groups_B=batch.groups, rows=run.row_loss)
        terms = {"contrastive": run.joined(2 * self.alpha * i2t, 2 * (1 - self.alpha) * t2i)}
        if self.lambda_ and not run.first:
            past, scale = run.previous(batch), 1 / self.tau_old
            old = losses.incclip.logits(past.image, past.text, past.pseudo, scale, out.own)
            i2t, t2i = losses.incclip.distil(new, old, is_reversed=self.kl == "reversed")
            terms["distil"] = self.lambda_ * (self.eta * i2t + (1 - self.eta) * t2i)
        return terms, {}

    def after_step(self, run: Run, batch: Batch, aux: dict[str, Any], *, stepped: bool) -> None:
        """Scale down every weight whose norm exceeds `gamma` times its norm at the start."""
        if self.clip:
            losses.incclip.clip_norms_(run.weights, run.slot("norms"), self.gamma)


def _norms(run: Run) -> Weights:
    # Ours: the paper clips layer by layer; gains and biases (one dimension) are not clipped here.
    trained = core.params.trainable(run.weights)
    return {name: weight.detach().norm() for name, weight in trained.items() if weight.dim() > 1}

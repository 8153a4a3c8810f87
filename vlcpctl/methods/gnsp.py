"""GNSP: change MLPs in the null space of their earlier inputs (Peng et al., 2025)."""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vlcpctl import core, losses
from vlcpctl.core.batch import Batch, Weights
from vlcpctl.core.errors import UsageError
from vlcpctl.core.method import TRAIN, Method, Paper, Phase, Run, Slot, hyper

if TYPE_CHECKING:
    from torch import Tensor

# A pass over the learned task, after training, that measures what the layers are given.
INPUTS = Phase(name="inputs", epochs=1, trains=False, contrasts=False)

# The linear layers of MLPs: of open_clip's and timm's transformers and ConvNeXts, of fusion models'
# text encoders, and of BERT and its kin.
_LAYERS = re.compile(
    r"(.+\.)?(mlp\.\w+|\w*layers\.\d+\.linear[12]|layer\.\d+\.(intermediate|output)\.dense)\.weight"
)
_IMAGE = ("visual.", "image_encoder.")  # of dual encoders and of fusion models


@dataclass(frozen=True, kw_only=True)
class Gnsp(Method):
    """Project what changes the MLPs onto the null space of their inputs in earlier tasks.

    With the inputs X (tokens, I) of a layer in a batch, after each task,

        M += m / |m|, m the sum of X^T X / |X^T X| over its batches (Frobenius norms),

    and in later tasks dL/dW <- dL/dW V0 V0^T, with the singular vectors V0 of M whose singular
    values sum to less than rho of all. It stores no pairs and uses no second model.
    """

    name: ClassVar[str] = "gnsp"
    title: ClassVar[str] = (
        "Null space projection: change MLPs only where their inputs of earlier tasks do not reach"
    )
    note: ClassVar[str] = (
        "with variant=gradient, AdamW's division by moments and weight decay leave the null space; "
        "variant=update projects what the whole step changes"
    )
    preset: ClassVar[str] = "update"
    measures: ClassVar[bool] = True
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="GNSP: Gradient Null Space Projection for Preserving Cross-Modal Alignment "
            "in VLMs Continual Learning",
            authors="Tiantian Peng, Yuyang Liu, Shuo Yang, Qiuhe Hong and YongHong Tian",
            venue="arXiv",
            year=2025,
            url="https://arxiv.org/abs/2507.19839",
        ),
        Paper(
            title="Training Networks in Null Space of Feature Covariance for Continual Learning",
            authors="Shipeng Wang, Xiaorong Li, Jian Sun and Zongben Xu",
            venue="CVPR",
            year=2021,
            url="https://arxiv.org/abs/2103.07113",
        ),
    )
    off: ClassVar[tuple[str, ...]] = ("rho=1", "others=train")

    rho: float = hyper(
        0.15,
        doc="The null space holds less than this share of the sum of singular values: 0 leaves no "
        "direction to learn in, 1 projects nothing.",
        origin="GNSP authors' code",
        within="[0, 1]",
    )
    variant: str = hyper(
        "gradient",
        doc="What is projected: the gradient, which AdamW and weight decay then take out of the "
        "null space, or the update, after them, which stays in it.",
        origin="GNSP authors' code; 'update' is Adam-NSCL, Wang et al., 2021",
        choices=("gradient", "update"),
    )
    others: str = hyper(
        "freeze",
        doc="All other weights in tasks after the first: freeze, or train (unprotected).",
        origin="GNSP authors' code, which trains the projected weights alone",
        choices=("freeze", "train"),
    )
    towers: str = hyper(
        "both",
        doc="The encoders whose MLPs are projected.",
        origin="ours; 'image' is the authors' code, which trains no text encoder",
        choices=("both", "image", "text"),
    )

    @property
    def overwrites(self) -> bool:
        """With variant=update, it changes the weights after each step."""
        return self.variant == "update"

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        """M, this task's part of it, and after the first task the projectors.

        With variant=update, also the weights of the layers at the start of the task.
        """
        slots = [
            Slot(name="moments", lifetime="stream", start=self._moments),
            Slot(name="task", lifetime="task", start=self._moments),
        ]
        if not first and self.rho != 1:
            slots.append(Slot(name="projectors", lifetime="task", start=self._projectors))
            if self.variant == "update":
                slots.append(Slot(name="start", lifetime="task", start=self._weights))
        return tuple(slots)

    def phases(self, *, first: bool) -> tuple[Phase, ...]:
        """Train, then a pass over the task for what its layers are given, without gradients."""
        return (TRAIN, INPUTS)

    def replace_gradients(self, run: Run, grads: MutableMapping[str, Tensor]) -> None:
        """Project the gradients of the layers, and take out those of all other weights."""
        if run.phase != TRAIN.name or run.first:
            return
        if self.variant == "gradient" and self.rho != 1:
            for name, projector in run.slot("projectors").items():
                if name in grads:
                    grads[name].copy_(losses.null_space.projected(grads[name], projector))
        if self.others == "freeze":
            for name in grads.keys() - run.slot("moments").keys():
                del grads[name]

    def after_step(self, run: Run, batch: Batch, aux: dict[str, Any], *, stepped: bool) -> None:
        """Project the update; after training, add the inputs of a batch to those of the task."""
        if run.phase == INPUTS.name:
            self._measure(run, batch)
        elif self.variant == "update" and self.rho != 1 and not run.first:
            # All changes of the task: those before this step are in the null space already, so
            # that projecting them again changes nothing, and rounding does not add up.
            for name, start in run.slot("start").items():
                weight, projector = run.weights[name], run.slot("projectors")[name]
                weight.copy_(losses.null_space.moved(start, weight, projector))

    def _measure(self, run: Run, batch: Batch) -> None:
        task = run.slot("task")
        for name, moment in run.input_moments(batch, [*task]).items():
            task[name].add_(losses.null_space.unit(moment))
        if run.step + 1 == run.steps:
            for name, moment in run.slot("moments").items():
                moment.add_(losses.null_space.unit(task[name]))

    def _layers(self, run: Run) -> Iterator[str]:
        """The names of the weights that are projected. Raises UsageError if an encoder has none."""
        for tower in ("image", "text"):
            names = [
                name
                for name, weight in run.weights.items()
                if name.startswith(_IMAGE) == (tower == "image")
                and weight.dim() == 2
                and _LAYERS.fullmatch(name)
            ]
            if self.towers in {"both", tower}:
                if not names:
                    other = "text" if tower == "image" else "image"
                    raise UsageError(
                        f"method gnsp projects the linear layers of MLPs, and the {tower} encoder "
                        f"of this model has none; give --set gnsp.towers={other}, or another method"
                    )
                yield from names

    def _weights(self, run: Run) -> Weights:
        return core.params.copy_of({name: run.weights[name] for name in self._layers(run)})

    def _moments(self, run: Run) -> Weights:
        weights = self._weights(run)
        return {name: one.new_zeros(one.shape[1], one.shape[1]) for name, one in weights.items()}

    def _projectors(self, run: Run) -> Weights:
        return {
            name: losses.null_space.projector(moment, self.rho)
            for name, moment in run.slot("moments").items()
        }

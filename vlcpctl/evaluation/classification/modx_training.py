"""The linear layer of Mod-X's probe: SGD on features that are new in each epoch.

The values are those of the authors' released program (linear_evaluation_ddp/evaluate_clip.py); the
paper has none of them. Ours are double precision, and the order and the first weights, which are
drawn from the seed. Shapes: B images, C classes, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vlcpctl.core.seeds import generator
from vlcpctl.evaluation.classification.linear_probe import Probe

MOMENTUM, WEIGHT_DECAY = 0.9, 1e-6
_FIRST_STD = 0.01  # of the weights at the start; the biases start at 0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the training; the rate falls from epoch to epoch along a cosine."""

    epochs: int
    rate: float
    batch: int
    seed: int


class LinearLayer:
    """A linear layer in training, on a device."""

    def __init__(self, classes: int, width: int, settings: Settings, device: torch.device) -> None:
        draw = generator(settings.seed, "probe", "weights")
        drawn_CD = torch.from_numpy(draw.normal(0.0, _FIRST_STD, (classes, width)))
        self.weight_CD = drawn_CD.to(device).requires_grad_()
        self.bias_C = torch.zeros_like(self.weight_CD[:, 0]).requires_grad_()
        # The decay takes hold of the biases, too.
        self.optimizer = torch.optim.SGD(
            [self.weight_CD, self.bias_C],
            lr=settings.rate,
            momentum=MOMENTUM,
            weight_decay=WEIGHT_DECAY,
        )
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, settings.epochs)
        self.steps = 0

    def learn(self, feature_BD: Tensor, label_B: Tensor) -> None:
        """Take a step on the mean cross-entropy of a batch of features of any precision."""
        logit_BC = torch.nn.functional.linear(feature_BD.double(), self.weight_CD, self.bias_C)
        self.optimizer.zero_grad()
        cross_entropy(logit_BC, label_B).backward()
        self.optimizer.step()
        self.steps += 1

    def end_epoch(self) -> None:
        """Lower the rate for the next epoch."""
        self.schedule.step()

    @property
    def probe(self) -> Probe:
        """The layer as it is now; later steps do not change it."""
        return Probe(self.weight_CD.detach().clone(), self.bias_C.detach().clone(), self.steps)


def full_batches(
    parts: Iterable[tuple[Tensor, Tensor]], size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Features (size, D) and labels (size,) of an epoch, from parts with any number of images.

    What is left at the end is dropped, unless the epoch has no full batch at all.
    """
    features: list[Tensor] = []
    labels: list[Tensor] = []
    waiting, is_full = 0, False
    for feature_BD, label_B in parts:
        features.append(feature_BD)
        labels.append(label_B)
        waiting += len(label_B)
        if waiting < size:
            continue
        is_full, all_ND, all_N = True, torch.cat(features), torch.cat(labels)
        whole = waiting - waiting % size
        # Copied: the last bits of products may depend on the address of what is multiplied.
        for start in range(0, whole, size):
            end = start + size
            yield all_ND[start:end].clone(), all_N[start:end].clone()
        features, labels, waiting = [all_ND[whole:]], [all_N[whole:]], waiting - whole
    if waiting and not is_full:
        yield torch.cat(features), torch.cat(labels)

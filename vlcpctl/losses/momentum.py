"""Compatible momentum contrast of CTP: contrast pairs with a momentum model and its queue.

Shapes: B pairs, D channels, Q features in the queue; features are of unit length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.core.method import RowLoss
from vlcpctl.core.seeds import torch_seed
from vlcpctl.losses.rows import ALL, SOFTMAX, matches


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The momentum features that pairs are contrasted with: of the batch, then of the queue.

    With `groups`, those of the batch and of the queue, members of a group are not negatives of each
    other.
    """

    image: Tensor  # (B, D)
    text: Tensor  # (B, D)
    queue_image: Tensor  # (Q, D)
    queue_text: Tensor  # (Q, D)
    groups: tuple[Tensor, Tensor] | None = None  # (B,) and (Q,) int64

    def of(self, block: slice) -> Candidates:
        """These candidates, with those of a block of the batch alone."""
        groups = None if self.groups is None else (self.groups[0][block], self.groups[1])
        return replace(self, image=self.image[block], text=self.text[block], groups=groups)


def momentum_contrast(
    pairs: tuple[Tensor, Tensor],
    slow: Candidates,
    scale: Tensor | float,
    *,
    blocks: int = 1,
    own: slice = ALL,
    rows: RowLoss = SOFTMAX,
) -> Tensor:
    """Contrastive loss of pairs with momentum features of batch and queue, a scalar (CTP eq. 4).

    `pairs` are images and texts (B, D) of the current model. With several `blocks` the batch is
    split, and each sample is contrasted with its own block and the queue. With `own`, only the rows
    of these pairs, which are then one of the blocks; parts of all processes add up. `rows` is
    `Run.row_loss`.
    """
    image_BD, text_BD = pairs
    if blocks == 1:
        return _one_block(pairs, slow, scale, rows, own)
    if own != ALL:
        return _one_block((image_BD[own], text_BD[own]), slow.of(own), scale, rows) / blocks
    size = len(image_BD) // blocks
    cut = [slice(start, start + size) for start in range(0, len(image_BD), size)]
    found = [_one_block((image_BD[one], text_BD[one]), slow.of(one), scale, rows) for one in cut]
    return torch.stack(found).mean()


def _one_block(
    pairs: tuple[Tensor, Tensor],
    slow: Candidates,
    scale: Tensor | float,
    rows: RowLoss,
    own: slice = ALL,
) -> Tensor:
    image_BD, text_BD = pairs
    to_text = scale * image_BD[own] @ torch.cat([slow.text, slow.queue_text]).T
    to_image = scale * text_BD[own] @ torch.cat([slow.image, slow.queue_image]).T
    if slow.groups is not None:
        groups_B, groups_Q = slow.groups
        found_bK = matches(groups_B, own, groups_Q)
        for logits_bK in (to_text, to_image):
            logits_bK.masked_fill_(found_bK, -math.inf)
    count = len(image_BD)
    return (rows(to_text, count, own) + rows(to_image, count, own)) / 2


@torch.no_grad()
def enqueue_(queue_KD: Tensor, features_BD: Tensor, position: int) -> int:
    """Write features (B, D), or groups (B,), into a ring buffer in place; return the next position.

    A batch larger than the queue leaves its last features.

    >>> queue = torch.zeros(3, 1)
    >>> enqueue_(queue, torch.tensor([[1.0], [2.0], [3.0], [4.0]]), 0), queue.flatten().tolist()
    (1, [4.0, 2.0, 3.0])
    """
    size, count = len(queue_KD), len(features_BD)
    kept = features_BD[max(0, count - size) :]
    places = (torch.arange(count - len(kept), count, device=queue_KD.device) + position) % size
    queue_KD[places] = kept.to(queue_KD.dtype)
    return (position + count) % size


def new_queue(
    size: int, like: Tensor, *, width: int, seed: int, starts_random: bool, groups: bool = False
) -> dict[str, Tensor]:
    """A queue of `size` features per modality, (Q, D), with `position` and `filled` counters.

    It starts empty, or full of random unit vectors. `like` gives the dtype and the device. With
    `groups`, it also has the `group` of each pair, (Q,) int64, at first -1, which no pair has.
    """
    generator = torch.Generator().manual_seed(torch_seed(seed, "queue"))

    def directions() -> Tensor:
        rows_KD = (
            torch.randn(size, width, generator=generator)
            if starts_random
            else torch.zeros(size, width)
        )
        return normalize(rows_KD, dim=1).to(like)

    queue = {
        "image": directions(),
        "text": directions(),
        "position": torch.zeros((), dtype=torch.int64),
        "filled": torch.tensor(size if starts_random else 0, dtype=torch.int64),
    }
    if groups:
        queue["group"] = torch.full((size,), -1, dtype=torch.int64, device=like.device)
    return queue

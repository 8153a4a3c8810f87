"""Compatible momentum contrast of CTP: contrast pairs with a momentum model and its queue.

Shapes: B pairs, D channels, Q features in the queue; features are of unit length.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.core.seeds import torch_seed
from vlcpctl.losses.rows import ALL, mean_cross_entropy


def momentum_contrast(
    pairs: tuple[Tensor, Tensor],
    slow: tuple[Tensor, Tensor],
    queue: tuple[Tensor, Tensor],
    scale: Tensor | float,
    *,
    blocks: int = 1,
    own: slice = ALL,
) -> Tensor:
    """Contrastive loss of pairs with momentum features of batch and queue, a scalar (CTP eq. 4).

    `pairs` and `slow` are images and texts (B, D) of the current and the momentum model, `queue`
    momentum images and texts (Q, D). With several `blocks` the batch is split, and each sample is
    contrasted with its own block and the queue. With `own`, only the rows of these pairs, which are
    then one of the blocks; parts of all processes add up.
    """
    if own != ALL and blocks > 1:
        block = tuple(side[own] for side in (*pairs, *slow))
        return _one_block(block, queue, scale) / blocks
    image_BD, text_BD = pairs
    cut = [side.chunk(blocks) for side in (image_BD, text_BD, *slow)]
    found = [_one_block(part, queue, scale, own) for part in zip(*cut, strict=True)]
    return torch.stack(found).mean()


def _one_block(
    block: tuple[Tensor, ...],
    queue: tuple[Tensor, Tensor],
    scale: Tensor | float,
    own: slice = ALL,
) -> Tensor:
    image_BD, text_BD, slow_image_BD, slow_text_BD = block
    to_text = scale * image_BD[own] @ torch.cat([slow_text_BD, queue[1]]).T
    to_image = scale * text_BD[own] @ torch.cat([slow_image_BD, queue[0]]).T
    count = len(image_BD)
    return (mean_cross_entropy(to_text, count, own) + mean_cross_entropy(to_image, count, own)) / 2


@torch.no_grad()
def enqueue_(queue_KD: Tensor, features_BD: Tensor, position: int) -> int:
    """Write features (B, D) into a ring buffer in place; return the next position.

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
    size: int, width: int, *, seed: int, starts_random: bool, like: Tensor
) -> dict[str, Tensor]:
    """A queue of `size` features per modality, (Q, D), with `position` and `filled` counters.

    It starts empty, or full of random unit vectors. `like` gives the dtype and the device.
    """
    generator = torch.Generator().manual_seed(torch_seed(seed, "queue"))

    def directions() -> Tensor:
        rows_KD = (
            torch.randn(size, width, generator=generator)
            if starts_random
            else torch.zeros(size, width)
        )
        return normalize(rows_KD, dim=1).to(like)

    return {
        "image": directions(),
        "text": directions(),
        "position": torch.zeros((), dtype=torch.int64),
        "filled": torch.tensor(size if starts_random else 0, dtype=torch.int64),
    }

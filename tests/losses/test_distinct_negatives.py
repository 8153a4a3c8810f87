"""Losses with groups of pairs equal a double loop in float64, with their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.naive_negatives import both_directions, one_direction
from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.losses import contrastive, incclip
from vlcpctl.losses.momentum import Candidates, momentum_contrast
from vlcpctl.losses.rows import ALL, SOFTMAX, similarities

B, D, Q, K = 6, 5, 7, 3
GROUPS = [4, 9, 4, 2, 9, 4]
QUEUE = [9, 1, 4, -1, 2, 2, 4]
PARTS = (slice(0, 3), slice(3, 6))


def _unit(count: int, seed: int) -> Tensor:
    drawn = torch.randn(count, D, generator=torch.Generator().manual_seed(seed)).double()
    return normalize(drawn, dim=1).requires_grad_()


def _expect_equal(
    found: Callable[..., Tensor], wanted: Callable[..., Tensor], *inputs: Tensor
) -> None:
    """Both have the value and the gradients of the other."""
    one, other = found(*inputs), wanted(*inputs)
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
    pairs = (torch.autograd.grad(total, inputs, allow_unused=True) for total in (one, other))
    for a, b in zip(*pairs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def _groups() -> Tensor:
    return torch.tensor(GROUPS)


def _scale() -> Tensor:
    return torch.tensor(3.0, dtype=torch.float64, requires_grad=True)


def _weighted(sides: tuple[Tensor, Tensor]) -> Tensor:
    return 0.3 * sides[0] + 0.7 * sides[1]


@pytest.mark.parametrize("parts", [(ALL,), PARTS], ids=["whole", "rows"])
def test_the_base_loss_leaves_out_other_members_of_a_group(parts: tuple[slice, ...]) -> None:
    def found(image: Tensor, text: Tensor, scale: Tensor) -> Tensor:
        sides = [
            contrastive.image_text(image, text, scale, own, groups_B=_groups()) for own in parts
        ]
        return torch.stack([_weighted(side) for side in sides]).sum()

    def wanted(image: Tensor, text: Tensor, scale: Tensor) -> Tensor:
        return _weighted(both_directions(image, text, scale, GROUPS))

    _expect_equal(found, wanted, _unit(B, 0), _unit(B, 1), _scale())


@pytest.mark.parametrize("parts", [(ALL,), PARTS], ids=["whole", "rows"])
def test_the_loss_of_some_rows_leaves_them_out(parts: tuple[slice, ...]) -> None:
    anchors = torch.tensor([True, False, True, True, False, False])

    def found(image: Tensor, text: Tensor, scale: Tensor) -> Tensor:
        each = []
        for own in parts:
            both = similarities(image, text, scale, own, groups_B=_groups())
            i2t, t2i = (SOFTMAX(side, B, own, anchors_B=anchors) for side in both)
            each.append(_weighted((i2t, t2i)))
        return torch.stack(each).sum()

    def wanted(image: Tensor, text: Tensor, scale: Tensor) -> Tensor:
        to_text, to_image = (
            torch.stack(one_direction(one, other, scale, GROUPS))[anchors].sum() / B
            for one, other in ((image, text), (text, image))
        )
        return _weighted((to_text, to_image))

    _expect_equal(found, wanted, _unit(B, 0), _unit(B, 1), _scale())


@pytest.mark.parametrize("parts", [(ALL,), PARTS], ids=["whole", "rows"])
@pytest.mark.parametrize("blocks", [1, 2])
def test_the_momentum_loss_leaves_them_out_in_batch_and_queue(
    parts: tuple[slice, ...], blocks: int
) -> None:
    queues = (_unit(Q, 4).detach(), _unit(Q, 5).detach())
    slow = (_unit(B, 2).detach(), _unit(B, 3).detach())

    def found(image: Tensor, text: Tensor, scale: Tensor) -> Tensor:
        candidates = Candidates(
            image=slow[0],
            text=slow[1],
            queue_image=queues[0],
            queue_text=queues[1],
            groups=(_groups(), torch.tensor(QUEUE)),
        )
        each = [
            momentum_contrast((image, text), candidates, scale, blocks=blocks, own=own)
            for own in parts
        ]
        return torch.stack(each).sum()

    def wanted(image: Tensor, text: Tensor, scale: Tensor) -> Tensor:
        losses: list[Tensor] = []
        for start in range(0, B, B // blocks):
            own = slice(start, start + B // blocks)
            known = GROUPS[own] + QUEUE
            for queries, side in ((image, 1), (text, 0)):
                candidates = torch.cat([slow[side][own], queues[side]])
                losses += one_direction(queries[own], candidates, scale, known)
        return torch.stack(losses).mean()

    _expect_equal(found, wanted, _unit(B, 0), _unit(B, 1), _scale())


@pytest.mark.parametrize("parts", [(ALL,), PARTS], ids=["whole", "rows"])
def test_texts_without_image_are_in_no_group(parts: tuple[slice, ...]) -> None:
    def found(image: Tensor, text: Tensor, pseudo: Tensor) -> Tensor:
        each = []
        for own in parts:
            logits = incclip.logits(image, text, pseudo, 3.0, own)
            before = logits.to_text.clone()
            each.append(_weighted(incclip.contrast(logits, own, groups_B=_groups())))
            assert torch.equal(logits.to_text, before)  # the distillation uses them too
        return torch.stack(each).sum()

    def wanted(image: Tensor, text: Tensor, pseudo: Tensor) -> Tensor:
        known: list[Any] = [*GROUPS, *[None] * K]
        to_text = one_direction(image, torch.cat([text, pseudo]), 3.0, known)
        to_image = one_direction(text, image, 3.0, GROUPS)
        return _weighted((torch.stack(to_text).mean(), torch.stack(to_image).mean()))

    _expect_equal(found, wanted, _unit(B, 0), _unit(B, 1), _unit(K, 6))


@pytest.mark.parametrize("own", [ALL, slice(0, B)])
def test_a_pair_without_negatives_has_no_loss_and_no_gradient(own: slice) -> None:
    image, text, scale = _unit(B, 0), _unit(B, 1), _scale()
    same = torch.zeros(B, dtype=torch.int64)
    i2t, t2i = contrastive.image_text(image, text, scale, own, groups_B=same)
    assert i2t.item() == t2i.item() == 0
    for gradient in torch.autograd.grad(i2t + t2i, (image, text, scale)):
        assert torch.equal(gradient, torch.zeros_like(gradient))

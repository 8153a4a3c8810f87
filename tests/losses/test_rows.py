"""Losses of rows, softmax and sigmoid, equal double loops in float64, with their gradients.

The sigmoid loss also equals open_clip's SigLipLoss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.distributed
from support.naive_negatives import one_direction
from support.processes import run_together
from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.losses import contrastive, incclip
from vlcpctl.losses.momentum import Candidates, momentum_contrast
from vlcpctl.losses.rows import ALL, SOFTMAX, Sigmoid, Softmax, row_loss, similarities

B, D, Q, K = 6, 5, 7, 3
GROUPS = [4, 9, 4, 2, 9, 4]
QUEUE = [9, 1, 4, -1, 2, 2, 4]
PARTS = (slice(0, 2), slice(2, 6))
WHOLE_AND_ROWS = pytest.mark.parametrize("parts", [(ALL,), PARTS], ids=["whole", "rows"])
BOTH_KINDS = pytest.mark.parametrize("numbers", [(3.0,), (7.0, -2.0)], ids=["softmax", "sigmoid"])


def _unit(count: int, seed: int) -> Tensor:
    drawn = torch.randn(count, D, generator=torch.Generator().manual_seed(seed)).double()
    return normalize(drawn, dim=1).requires_grad_()


def _number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


def _inputs(numbers: Sequence[float] = (7.0, -2.0)) -> list[Tensor]:
    """Images, texts, the scale, and of a sigmoid its bias."""
    return [_unit(B, 0), _unit(B, 1), *map(_number, numbers)]


def _rows(of: Sequence[Tensor]) -> Softmax | Sigmoid:
    return Sigmoid(of[1]) if len(of) == 2 else SOFTMAX


def _naive(
    queries: Tensor, candidates: Tensor, of: Sequence[Tensor], groups: Sequence[object]
) -> Tensor:
    """The losses of queries over candidates: b is true, and others of its group are left out."""
    if len(of) == 1:
        return torch.stack(one_direction(queries, candidates, of[0], groups))
    scale, bias = of
    losses = []
    for row, query in enumerate(queries):
        total = torch.zeros((), dtype=torch.float64)
        for place, candidate in enumerate(candidates):
            probability = 1 / (1 + torch.exp(-(scale * (query @ candidate) + bias)))
            if place == row:
                total = total - probability.log()
            elif groups[place] is None or groups[place] != groups[row]:
                total = total - (1 - probability).log()
        losses.append(total)
    return torch.stack(losses)


def _weighted(sides: Sequence[Tensor]) -> Tensor:
    return 0.3 * sides[0] + 0.7 * sides[1]


def _expect_equal(
    found: Callable[..., Tensor], wanted: Callable[..., Tensor], inputs: Sequence[Tensor]
) -> None:
    """Both have the value and the gradients of the other."""
    one, other = found(*inputs), wanted(*inputs)
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
    pairs = (torch.autograd.grad(total, list(inputs)) for total in (one, other))
    for a, b in zip(*pairs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@BOTH_KINDS
@WHOLE_AND_ROWS
def test_the_base_loss_leaves_out_other_members_of_a_group(
    parts: tuple[slice, ...], numbers: tuple[float, ...]
) -> None:
    def found(image: Tensor, text: Tensor, *of: Tensor) -> Tensor:
        how = {"groups_B": torch.tensor(GROUPS), "rows": _rows(of)}
        sides = [contrastive.image_text(image, text, of[0], own, **how) for own in parts]
        return torch.stack([_weighted(side) for side in sides]).sum()

    def wanted(image: Tensor, text: Tensor, *of: Tensor) -> Tensor:
        sides = ((image, text), (text, image))
        return _weighted([_naive(*side, of, GROUPS).mean() for side in sides])

    _expect_equal(found, wanted, _inputs(numbers))


@BOTH_KINDS
@WHOLE_AND_ROWS
def test_the_loss_of_some_rows_leaves_them_out(
    parts: tuple[slice, ...], numbers: tuple[float, ...]
) -> None:
    anchors = torch.tensor([True, False, True, True, False, False])

    def found(image: Tensor, text: Tensor, *of: Tensor) -> Tensor:
        each = []
        for own in parts:
            both = similarities(image, text, of[0], own, groups_B=torch.tensor(GROUPS))
            each.append(_weighted([_rows(of)(side, 4, own, anchors_B=anchors) for side in both]))
        return torch.stack(each).sum()

    def wanted(image: Tensor, text: Tensor, *of: Tensor) -> Tensor:
        sides = ((image, text), (text, image))
        return _weighted([_naive(*side, of, GROUPS)[anchors].sum() / 4 for side in sides])

    _expect_equal(found, wanted, _inputs(numbers))


@BOTH_KINDS
@WHOLE_AND_ROWS
@pytest.mark.parametrize("blocks", [1, 2])
def test_the_momentum_loss_leaves_them_out_in_batch_and_queue(
    parts: tuple[slice, ...], blocks: int, numbers: tuple[float, ...]
) -> None:
    parts = parts if blocks == 1 or parts == (ALL,) else (slice(0, 3), slice(3, 6))
    queues = (_unit(Q, 4).detach(), _unit(Q, 5).detach())
    slow = (_unit(B, 2).detach(), _unit(B, 3).detach())

    def found(image: Tensor, text: Tensor, *of: Tensor) -> Tensor:
        candidates = Candidates(
            image=slow[0],
            text=slow[1],
            queue_image=queues[0],
            queue_text=queues[1],
            groups=(torch.tensor(GROUPS), torch.tensor(QUEUE)),
        )
        how = {"blocks": blocks, "rows": _rows(of)}
        each = [
            momentum_contrast((image, text), candidates, of[0], own=own, **how) for own in parts
        ]
        return torch.stack(each).sum()

    def wanted(image: Tensor, text: Tensor, *of: Tensor) -> Tensor:
        losses: list[Tensor] = []
        for start in range(0, B, B // blocks):
            own = slice(start, start + B // blocks)
            for queries, side in ((image, 1), (text, 0)):
                candidates = torch.cat([slow[side][own], queues[side]])
                losses.append(_naive(queries[own], candidates, of, GROUPS[own] + QUEUE))
        return torch.cat(losses).mean()

    _expect_equal(found, wanted, _inputs(numbers))


@BOTH_KINDS
@WHOLE_AND_ROWS
def test_texts_without_image_are_in_no_group_and_negatives_of_images(
    parts: tuple[slice, ...], numbers: tuple[float, ...]
) -> None:
    def found(image: Tensor, text: Tensor, pseudo: Tensor, *of: Tensor) -> Tensor:
        each = []
        for own in parts:
            logits = incclip.logits(image, text, pseudo, of[0], own)
            before = logits.to_text.clone()
            how = {"groups_B": torch.tensor(GROUPS), "rows": _rows(of)}
            each.append(_weighted(incclip.contrast(logits, own, **how)))
            assert torch.equal(logits.to_text, before)  # the distillation uses them too
        return torch.stack(each).sum()

    def wanted(image: Tensor, text: Tensor, pseudo: Tensor, *of: Tensor) -> Tensor:
        to_text = _naive(image, torch.cat([text, pseudo]), of, [*GROUPS, *[None] * K])
        return _weighted((to_text.mean(), _naive(text, image, of, GROUPS).mean()))

    image, text, *of = _inputs(numbers)
    _expect_equal(found, wanted, [image, text, _unit(K, 6), *of])


@pytest.mark.parametrize("own", [ALL, slice(0, B)])
def test_a_pair_without_negatives_has_no_loss_and_no_gradient(own: slice) -> None:
    inputs = _inputs((3.0,))
    same = torch.zeros(B, dtype=torch.int64)
    i2t, t2i = contrastive.image_text(*inputs, own, groups_B=same)
    assert i2t.item() == t2i.item() == 0
    for gradient in torch.autograd.grad(i2t + t2i, inputs):
        assert torch.equal(gradient, torch.zeros_like(gradient))


def test_without_negatives_a_sigmoid_has_the_true_pairs() -> None:
    image, text, scale, bias = _inputs()
    same = torch.zeros(B, dtype=torch.int64)
    i2t, _ = contrastive.image_text(image, text, scale, groups_B=same, rows=Sigmoid(bias))
    true = scale * (image * text).sum(1) + bias
    torch.testing.assert_close(i2t, -torch.sigmoid(true).log().mean())
    for gradient in torch.autograd.grad(i2t, (image, text, scale, bias)):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("scale", "bias"), [(10.0, -10.0), (117.3, -12.9), (50.0, 30.0)])
def test_it_is_that_of_open_clip(dtype: torch.dtype, scale: float, bias: float) -> None:
    from open_clip.loss import SigLipLoss  # all of open_clip takes seconds

    def leaves() -> list[Tensor]:
        drawn = [_unit(64, 0), _unit(64, 1), _number(scale), _number(bias)]
        return [one.detach().to(dtype).requires_grad_() for one in drawn]

    ours, theirs = leaves(), leaves()
    image, text, *of = ours
    i2t, t2i = contrastive.image_text(image, text, of[0], rows=Sigmoid(of[1]))
    wanted = SigLipLoss()(*theirs)
    torch.testing.assert_close((i2t + t2i) / 2, wanted, rtol=1e-6, atol=1e-6)
    ((i2t + t2i) / 2).backward()
    wanted.backward()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-6, atol=1e-6)


@pytest.mark.dist
def test_parts_of_two_processes_are_those_of_open_clip() -> None:
    from open_clip.loss import SigLipLoss

    def act(rank: int) -> None:
        torch.distributed.init_process_group("gloo")
        image, text, scale, bias = _inputs()
        own = slice(rank * B // 2, (rank + 1) * B // 2)
        theirs = [image.detach()[own].requires_grad_(), text.detach()[own].requires_grad_()]
        of = [_number(7.0), _number(-2.0)]
        loss = SigLipLoss(rank=rank, world_size=2)(*theirs, *of)
        loss.backward()
        i2t, t2i = contrastive.image_text(image, text, scale, own, rows=Sigmoid(bias))
        ((i2t + t2i) / 2).backward()
        # Each of theirs is over its own number of rows: DistributedDataParallel averages them.
        torch.testing.assert_close((i2t + t2i) / 2, loss / 2, rtol=1e-6, atol=1e-9)
        for part in (image.grad, text.grad, scale.grad, bias.grad):
            torch.distributed.all_reduce(part)
        for whole, part in ((image, theirs[0]), (text, theirs[1])):
            assert part.grad is not None
            torch.testing.assert_close(whole.grad[own], part.grad / 2, rtol=1e-6, atol=1e-9)
        for number, part in ((scale, of[0]), (bias, of[1])):
            torch.distributed.all_reduce(part.grad)
            torch.testing.assert_close(number.grad, part.grad / 2, rtol=1e-6, atol=1e-9)
        torch.distributed.destroy_process_group()

    assert run_together(act) == [0, 0]


def test_a_model_with_a_bias_has_the_sigmoid() -> None:
    bias = _number(-2.0)
    assert row_loss({"logit_scale": _number(1.0)}) is SOFTMAX
    assert row_loss({"logit_bias": bias}) == Sigmoid(bias)


@pytest.mark.parametrize("parts", [(ALL,), PARTS])
def test_smoothed_targets_are_shared_by_the_members_of_a_group(parts: Sequence[slice]) -> None:
    logits = 3 * torch.randn(B, B, generator=torch.Generator().manual_seed(3)).double()
    wanted = 0.0
    for row, group in enumerate(GROUPS):
        members = [column for column, other in enumerate(GROUPS) if other == group]
        for column, value in enumerate(logits[row].log_softmax(0).tolist()):
            share = 0.7 / len(members) if column in members else 0.0
            wanted -= (share + 0.3 / B) * value / B
    groups = torch.tensor(GROUPS)
    found = sum(
        contrastive.smoothed(logits[one], one, smoothing=0.3, groups_B=groups).item()
        for one in parts
    )
    assert found == pytest.approx(wanted)

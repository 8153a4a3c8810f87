"""Gradients summed in buckets: in time, and right for weights that some processes do not use."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
from support.processes import run_together
from torch import Tensor, nn

from vlcpctl.core.devices import torch_device
from vlcpctl.distributed.ranks import process_ranks
from vlcpctl.distributed.world import World, join_processes
from vlcpctl.training import gradients as reduction
from vlcpctl.training.gradients import GradientSum

pytestmark = pytest.mark.dist

LAYERS, WIDTH = 4, 8


def in_two_processes(act: Callable[[World], None]) -> None:
    """Let two processes act; both must end well, also at exit."""

    def join(_rank: int) -> None:
        here = process_ranks()
        assert here is not None
        with join_processes(here, torch_device("cpu")) as world:
            act(world)

    assert run_together(join) == [0, 0]


def layers(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))).to(dtype)


def inputs(rank: int) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(3, WIDTH, generator=generator, dtype=torch.float64)


def expected(model: nn.Module, ranks: range = range(2)) -> list[Tensor]:
    """The sum of the gradients of both processes, computed in one."""
    weights = list(model.parameters())
    found = [torch.autograd.grad(model(inputs(rank)).square().sum(), weights) for rank in ranks]
    return [torch.stack(parts).sum(0) for parts in zip(*found, strict=True)]


def all_equal(found: Iterable[Tensor], wanted: Iterable[Tensor]) -> bool:
    """Whether tensors are equal but for rounding; torch.testing would import sympy in a child."""
    pairs = zip(found, wanted, strict=True)
    return all(torch.allclose(one, other, rtol=1e-12, atol=0) for one, other in pairs)


def one_bucket_a_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "BUCKET_BYTES", 1)


def test_buckets_are_sent_while_backward_runs_and_hold_the_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one_bucket_a_weight(monkeypatch)
    wanted = expected(layers())

    def act(world: World) -> None:
        model = layers()
        summed = GradientSum(dict(model.named_parameters()), world)
        sent: list[str] = []
        start = World.start_sum
        monkeypatch.setattr(
            World, "start_sum", lambda self, flat: sent.append("sum") or start(self, flat)
        )
        for step in range(3):
            model.zero_grad(set_to_none=True)
            sent.clear()
            with summed.last_backward():
                given = inputs(world.rank).requires_grad_()
                given.register_hook(lambda _: sent.append("input"))  # the last gradients
                model(given).square().sum().backward()
            found = summed.finish()
            assert list(found) == [name for name, _ in model.named_parameters()]
            assert all_equal(found.values(), wanted)
            before = sent.index("input")
            assert before == 0 if step == 0 else before >= 2 * (LAYERS - 1)
            assert len(sent) == 2 * LAYERS + 2

    in_two_processes(act)


@pytest.mark.parametrize("size", [1, 2**20])
def test_a_weight_without_gradient_here_counts_as_zero_and_one_without_any_stays_none(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(reduction, "BUCKET_BYTES", size)

    def act(world: World) -> None:
        model = layers()
        for weight in model[3].parameters():
            weight.requires_grad_(requires_grad=False)
        summed = GradientSum(dict(model.named_parameters()), world)
        for step in range(4):
            model.zero_grad(set_to_none=True)
            used = [model[0], *([model[1]] if world.rank == step % 2 else [])]
            with summed.last_backward():
                nn.Sequential(*used)(inputs(world.rank)).sum().backward()
            found = summed.finish()
            assert list(found) == ["0.weight", "0.bias", "1.weight", "1.bias"]
            assert found["1.bias"].tolist() == pytest.approx([3.0] * WIDTH)
            assert model[2].weight.grad is None
            assert model[3].weight.grad is None

    in_two_processes(act)


def test_earlier_backward_passes_are_part_of_the_sum_and_send_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one_bucket_a_weight(monkeypatch)
    wanted = expected(layers(), range(4))

    def act(world: World) -> None:
        model = layers()
        summed = GradientSum(dict(model.named_parameters()), world)
        for _ in range(2):
            model.zero_grad(set_to_none=True)
            for part in (world.rank, world.rank + 2):
                with summed.last_backward(is_last=part > 1):
                    model(inputs(part)).square().sum().backward()
            assert all_equal(summed.finish().values(), wanted)

    in_two_processes(act)


def test_dtypes_have_buckets_of_their_own_and_layouts_are_kept() -> None:
    def act(world: World) -> None:
        torch.manual_seed(0)
        first = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        model = nn.ModuleDict({"first": first, "second": nn.Linear(4, 2).double()})
        summed = GradientSum(dict(model.named_parameters()), world)
        for _ in range(2):
            model.zero_grad(set_to_none=True)
            with summed.last_backward():
                seen = first(torch.ones(1, 3, 3, 3) * (world.rank + 1)).flatten(1).double()
                model["second"](seen).sum().backward()
            found = summed.finish()
            assert found["first.weight"].stride() == first.weight.stride()
            assert found["first.weight"].is_contiguous(memory_format=torch.channels_last)
            assert found["second.weight"].dtype == torch.float64
            assert found["second.bias"].tolist() == [2, 2]

    in_two_processes(act)


def test_one_process_gets_its_gradients_as_they_are() -> None:
    model = layers()
    summed = GradientSum(dict(model.named_parameters()), World())
    with summed.last_backward():
        model(inputs(0)).sum().backward()
    found = summed.finish()
    assert all(found[name] is weight.grad for name, weight in model.named_parameters())

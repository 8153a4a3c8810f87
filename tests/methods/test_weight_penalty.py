"""Properties of EWC, MAS, SI and RWalk that hold for any data."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from support.fake_run import FakeRun, features
from support.toy_stream import BATCH, ToyStream

from vlcpctl.core.batch import Weights
from vlcpctl.core.method import Method
from vlcpctl.core.params import copy_of
from vlcpctl.methods.ewc import Ewc
from vlcpctl.methods.mas import Mas
from vlcpctl.methods.rwalk import Rwalk
from vlcpctl.methods.si import Si

ALL = [kind(variant=variant) for kind in (Ewc, Mas, Si, Rwalk) for variant in ("paper", "ctp")]


def _label(method: Method) -> str:
    return f"{method.name}-{method.variant}"  # type: ignore[attr-defined]


def _weights() -> Weights:
    generator = torch.Generator().manual_seed(0)
    shapes = {"W1": (3, 4), "b1": (3,), "v": (3,), "U": (2, 3), "unused": (2,), "frozen": (2,)}
    drawn = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in shapes.items()
    }
    return {name: value.requires_grad_(name != "frozen") for name, value in drawn.items()}


def _task(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    both = torch.randn(2, 3, 4, 4, generator=generator, dtype=torch.float64)
    return both[0], both[1]


def _after(method: Method, tasks: Sequence[int]) -> ToyStream:
    stream = ToyStream(method, _weights())
    for seed in tasks:
        stream.finish(*_task(seed))
    return stream


@pytest.mark.parametrize("method", ALL, ids=_label)
def test_penalty_and_gradient_are_0_at_the_anchor_and_nowhere_else(method: Method) -> None:
    stream = _after(method, [1])
    run = FakeRun(weights=stream.weights, anchor=stream.anchor or {}).start(method)
    run.slots |= stream.carried
    grads = {name: torch.zeros_like(w) for name, w in run.weights.items() if w.requires_grad}
    assert _penalty(method, run) == 0
    method.add_gradients(run, grads)
    assert not any(grad.any() for grad in grads.values())
    run.weights = {name: value.detach() + 0.1 for name, value in run.weights.items()}
    assert _penalty(method, run) > 0
    method.add_gradients(run, grads)
    assert all(grads[name].any() for name in ("W1", "b1", "U"))


def _penalty(method: Method, run: FakeRun) -> float:
    terms, _ = method.loss(run, BATCH, features(torch.ones(4, 2), torch.ones(4, 2)))
    return terms["penalty"].item()


@pytest.mark.parametrize("kind", [Ewc, Mas])
def test_importances_add_up_over_tasks_or_are_averaged(kind: type[Ewc | Mas]) -> None:
    name = "fisher" if kind is Ewc else "omega"
    for variant, shares in (("paper", (1, 1, 1)), ("ctp", (1 / 3, 1 / 3, 1 / 3))):
        method = kind(variant=variant, strength=0.0)
        stream, alone = ToyStream(method, _weights()), []
        for seed in (1, 2, 3):
            carried, stream.carried = stream.carried, {}
            anchor = stream.anchor
            weights = copy_of(stream.weights)
            stream.finish(*_task(seed))
            alone.append(stream.carried[name]["W1"])
            for key, value in stream.weights.items():
                value.data.copy_(weights[key])
            stream.anchor, stream.carried = anchor, carried
            stream.finish(*_task(seed))
        expected = sum(share * part for share, part in zip(shares, alone, strict=True))
        torch.testing.assert_close(stream.carried[name]["W1"], expected, rtol=1e-12, atol=1e-15)


def test_fisher_is_the_mean_over_batches_of_the_squared_gradient() -> None:
    stream = _after(Ewc(), [1])
    found = torch.zeros_like(stream.weights["W1"])
    for image, caption in zip(*_task(1), strict=True):
        loss = stream.model(stream.weights, image, caption)[0]
        found += torch.autograd.grad(loss, stream.weights["W1"])[0].square() / 3
    torch.testing.assert_close(stream.carried["fisher"]["W1"], found, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("variant", ["paper", "ctp"])
def test_omega_of_mas_is_the_mean_size_of_the_gradient_of_lengths(variant: str) -> None:
    stream = _after(Mas(variant=variant), [1])
    found = torch.zeros_like(stream.weights["U"])
    power = 2 if variant == "paper" else 1
    for image, caption in zip(*_task(1), strict=True):
        _, hidden, text = stream.model(stream.weights, image, caption)
        lengths = hidden.norm(dim=1) ** power + text.norm(dim=1) ** power
        found += torch.autograd.grad(lengths.mean(), stream.weights["U"])[0].abs() / 3
    torch.testing.assert_close(stream.carried["omega"]["U"], found, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("rate", [1e-3, 1e-4])
def test_path_integral_of_si_is_the_loss_drop_to_first_order(rate: float) -> None:
    goal = torch.arange(6.0, dtype=torch.float64).reshape(2, 3)
    stiff = 1 + goal

    def quadratic(weights: Weights, *_: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (stiff * (weights["w"] - goal).square()).sum(), torch.ones(4, 2), torch.ones(4, 2)

    weights = {"w": torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)}
    stream = ToyStream(
        Si(),
        weights,
        model=quadratic,  # type: ignore[arg-type]
        epochs=5,
        optimizer=torch.optim.SGD,
        rates=(rate, rate),
    )
    before = quadratic(weights)[0].item()
    for run in stream.task(*_task(0)):
        path = copy_of(run.slot("path"))
    drop = before - quadratic(weights)[0].item()
    assert path["w"].sum().item() == pytest.approx(drop, rel=10 * rate)
    assert path["w"].sum().item() != pytest.approx(drop, rel=rate)


def test_a_skipped_step_adds_nothing_to_the_path() -> None:
    method = Si()
    run = FakeRun(weights=_weights(), started_first=True, steps=2).start(method)
    method.after_backward(run, {"W1": torch.full((3, 4), torch.inf, dtype=torch.float64)})
    method.after_step(run, BATCH, {}, stepped=False)
    assert not any(part.any() for part in run.slot("path").values())


def test_clamping_keeps_every_omega_at_0_or_above() -> None:
    lowest = {}
    for clamps in (True, False):
        climbs = lambda trained: torch.optim.SGD(trained, maximize=True)  # noqa: E731
        stream = ToyStream(Si(clamp_omega=clamps), _weights(), optimizer=climbs)
        stream.finish(*_task(1))
        lowest[clamps] = min(value.min().item() for value in stream.carried["omega"].values())
    assert lowest[True] == 0
    assert lowest[False] < 0


def test_rwalk_follows_the_papers_equations_written_out() -> None:
    method = Rwalk(every=4, strength=0.0, damping=1e-3)
    fisher = score = torch.zeros(3, 4, dtype=torch.float64)
    stream = ToyStream(method, _weights())
    for task in (1, 2):
        gained = squares = path = torch.zeros(3, 4, dtype=torch.float64)
        opening = before = stream.weights["W1"].detach().clone()
        for run in stream.task(*_task(task)):
            gradient, now = run.slot("gradient")["W1"], run.weights["W1"].detach().clone()
            path, squares, before = path - gradient * (now - before), squares + gradient**2, now
            if run.step in (3, 5):
                window = 4 if run.step == 3 else 2
                fisher = 0.1 * fisher + 0.9 * squares / window
                length = 0.5 * fisher * (now - opening) ** 2 + 1e-3
                gained = gained + torch.relu(path / length)
                opening, squares, path = now, torch.zeros_like(now), torch.zeros_like(now)
        score = gained if task == 1 else (score + gained) / 2
    torch.testing.assert_close(stream.carried["fisher"]["W1"], fisher, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(stream.carried["scores"]["W1"], score, rtol=1e-12, atol=1e-15)
    largest = {
        name: max(value.max() for value in stream.carried[name].values())
        for name in ("fisher", "scores")
    }
    omega = fisher / largest["fisher"] + score / largest["scores"]
    torch.testing.assert_close(stream.carried["omega"]["W1"], omega, rtol=1e-12, atol=1e-15)

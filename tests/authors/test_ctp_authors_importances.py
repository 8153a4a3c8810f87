"""EWC, MAS, SI, RWalk and AFEC against the CTP authors' own code, over three toy tasks.

One weight of the toy differs on purpose: the loss never reaches `unused`. The authors'
penalties are part of the loss and give it a gradient of zeros, so AdamW decays it. Ours leave its
gradient None, and AdamW skips it (`docs/papers/ctp_deviations.md`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from support.ctp_numbers import DATA, GOLDEN, close
from support.fake_run import FakeRun, features
from support.toy_stream import BATCH, ToyStream

from vlcpctl.core.batch import Weights
from vlcpctl.core.method import Method
from vlcpctl.losses.penalty import add_gradient_, quadratic
from vlcpctl.methods.afec import Afec
from vlcpctl.methods.ewc import Ewc
from vlcpctl.methods.mas import Mas
from vlcpctl.methods.rwalk import Rwalk
from vlcpctl.methods.si import Si

UNREACHED = "unused"  # requires a gradient, and the toy's loss gives it none

TOY = np.load(DATA / "ctp_importance.npz")

METHODS = {
    "EWC": Ewc(variant="ctp"),
    "AFEC": Afec(variant="ctp"),
    "MAS": Mas(variant="ctp"),
    "SI": Si(variant="ctp"),
    "RWalk": Rwalk(variant="ctp"),
}

# The authors' names of a task's last values, and ours.
KEPT = {
    "EWC": {"fisher": "fisher"},
    "AFEC": {"fisher": "fisher"},
    "MAS": {"fisher": "omega"},
    "SI": {"importance": "omega"},
    "RWalk": {"fisher": "fisher", "scores": "scores"},
}


def _all_close(found: Weights, name: str, *, but: str = "") -> None:
    named = [key for key in TOY.files if key.startswith(f"{name}:")]
    expected = {key.removeprefix(f"{name}:"): TOY[key] for key in named}
    assert expected
    for key in expected.keys() - {but}:
        close(found[key], expected[key])


def _start() -> Weights:
    names = [key for key in TOY.files if key.startswith("in/param:")]
    weights = {key.removeprefix("in/param:"): torch.tensor(TOY[key]) for key in names}
    return {n: w.requires_grad_(n != "frozen") for n, w in weights.items()}


def _tasks() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for number in range(3):
        yield tuple(torch.tensor(TOY[f"in/t{number}/{side}"]) for side in ("image", "caption"))


@pytest.mark.parametrize("name", METHODS)
def test_weights_follow_the_authors_step_by_step(name: str) -> None:
    stream, number = ToyStream(METHODS[name], _start()), 0
    for images, captions in _tasks():
        for run in stream.task(images, captions):
            for key in run.weights.keys() - {UNREACHED}:
                close(run.weights[key], TOY[f"{name}/steps:{key}"][number])
            number += 1
    assert number == len(TOY[f"{name}/steps:W1"])


@pytest.mark.parametrize("name", METHODS)
def test_a_weight_the_loss_does_not_reach_is_left_alone_where_the_authors_decay_it(
    name: str,
) -> None:
    start = _start()[UNREACHED]
    stream = ToyStream(METHODS[name], _start())
    for task in _tasks():
        for run in stream.task(*task):
            assert torch.equal(run.weights[UNREACHED], start)
    rates = [1e-3 + 9e-3 * (1 + math.cos(math.pi * step / 6)) / 2 for step in range(6)]
    decay = math.prod(1 - 0.05 * rate for rate in rates)  # of a task of six steps
    close(start, TOY[f"{name}/steps:{UNREACHED}"][0])
    close(decay**2 * start, TOY[f"{name}/steps:{UNREACHED}"][-1])  # two tasks with a penalty


@pytest.mark.parametrize("name", METHODS)
def test_importances_are_the_authors_after_each_task(name: str) -> None:
    stream = ToyStream(METHODS[name], _start())
    for number, task in enumerate(_tasks()):
        stream.finish(*task)
        for theirs, ours in KEPT[name].items():
            _all_close(stream.carried[ours], f"{name}/task{number}/end/{theirs}")


@pytest.mark.parametrize("name", ["SI", "RWalk"])
def test_paths_are_the_authors_after_each_epoch(name: str) -> None:
    stream = ToyStream(METHODS[name], _start())
    for number, (images, captions) in enumerate(_tasks()):
        for run in stream.task(images, captions):
            if run.phase == "train" and run.step in (2, 5):
                _all_close(run.slot("path"), f"{name}/task{number}/epoch{run.step // 3}/w")


def test_forward_model_and_its_fisher_are_the_authors_after_each_epoch() -> None:
    stream = ToyStream(METHODS["AFEC"], _start())
    for number, (images, captions) in enumerate(_tasks()):
        for run in stream.task(images, captions):
            if number and run.phase == "train" and run.step in (2, 5):
                now = f"AFEC/task{number}/epoch{run.step // 3}"
                _all_close(run.slot("forward_fisher"), f"{now}/forward_fisher")
                _all_close(run.slot("forward"), f"{now}/forward_params", but=UNREACHED)


@pytest.mark.parametrize("name", METHODS)
def test_penalties_are_those_that_the_authors_log(name: str) -> None:
    stream = ToyStream(METHODS[name], _start())
    for task in _tasks():
        stream.finish(*task)
    theirs = TOY[f"{name}/log/loss_{name.lower() if name == 'EWC' else name}"]
    np.testing.assert_allclose(stream.penalties, theirs[-12:], rtol=1e-9, atol=1e-12)


def _given(name: str) -> Weights:
    keys = [key for key in GOLDEN if key.startswith(f"penalty/in/{name}:")]
    named = {key.rpartition(":")[2]: torch.tensor(GOLDEN[key]) for key in keys}
    return {key: value for key, value in named.items() if key != "frozen"}


@pytest.mark.parametrize(
    ("method", "slots", "golden"),
    [
        (Ewc(), {"fisher": "fisher"}, "ewc_times_lamda5000"),
        (Ewc(strength=1.0), {"fisher": "fisher"}, "ewc_raw"),
        (Mas(variant="ctp"), {"omega": "fisher"}, "mas"),
        (Si(), {"omega": "scores"}, "si"),
        (Rwalk(variant="ctp"), {"fisher": "fisher", "scores": "scores"}, "rwalk"),
    ],
    ids=["ewc", "ewc-raw", "mas", "si", "rwalk"],
)
def test_each_penalty_and_its_gradient_are_the_authors(
    method: Method, slots: dict[str, str], golden: str
) -> None:
    run = FakeRun(
        weights=_given("param"),
        anchor=_given("older"),
        slots={ours: _given(theirs) for ours, theirs in slots.items()},
    )
    grads = {name: torch.zeros_like(weight) for name, weight in run.weights.items()}
    terms, _ = method.loss(run, BATCH, features(torch.ones(4, 2), torch.ones(4, 2)))
    method.add_gradients(run, grads)
    close(terms["penalty"], GOLDEN[f"penalty/{golden}"])
    for name, grad in grads.items():
        close(grad, GOLDEN[f"penalty/{golden}_grad:{name}"])


def test_the_closed_form_is_what_autograd_gives() -> None:
    weights, anchor, held = _given("param"), _given("older"), _given("fisher")
    grads = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    add_gradient_(grads, held, weights, anchor, strength=3.0)
    for weight in weights.values():
        weight.requires_grad_()
    value = 3 * sum((held[n] * (weights[n] - anchor[n]).square()).sum() for n in held)
    found = torch.autograd.grad(value, list(weights.values()))
    torch.testing.assert_close(list(grads.values()), list(found), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(3 * quadratic(held, weights, anchor), value.detach())

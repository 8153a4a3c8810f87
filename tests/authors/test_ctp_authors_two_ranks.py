"""Two gloo processes against what the CTP authors' own code gave in two.

Their loss of a process is over its own rows, and its gradient is that of the sum over processes;
ours is over the whole batch, the mean of theirs. Words they average over each process's own masked
tokens, then over processes; here they are given the count of each process.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.ctp_numbers import DATA, close, given, given_run
from support.fake_part import FakePart, tokens
from support.fake_run import FakeRun, fake_batch, features
from support.processes import run_together
from torch import Tensor

from vlcpctl.core.devices import torch_device
from vlcpctl.core.method import Method
from vlcpctl.distributed.ranks import process_ranks
from vlcpctl.distributed.world import World, join_processes
from vlcpctl.losses.contrastive import image_text
from vlcpctl.losses.masked import word_loss
from vlcpctl.methods.ctp import Ctp
from vlcpctl.methods.lwf import Lwf
from vlcpctl.methods.seqf import Seqf

pytestmark = pytest.mark.dist

TWO = dict(np.load(DATA / "ctp_two_ranks.npz"))

MODES: dict[str, tuple[Method, bool]] = {
    "finetune": (Seqf(), False),
    "CTP": (Ctp(queue=12, positives="process"), False),
    "CTP_init": (Ctp(queue=12, positives="process"), True),
    "LWF": (Lwf(target="channels"), False),
}


@pytest.mark.parametrize("mode", MODES)
def test_losses_gradients_and_queue_are_the_authors(mode: str) -> None:
    def act(_rank: int) -> None:
        here = process_ranks()
        assert here is not None
        with join_processes(here, torch_device("cpu")) as world:
            _compare(mode, world)

    assert run_together(act) == [0, 0]


def _compare(mode: str, world: World) -> None:
    method, first = MODES[mode]
    own = world.slice_of(6)
    run = given_run(first=first, processes=world.size)
    batch = fake_batch(6)
    leaves = [world.gather(given(f"F_{side}")[own]).requires_grad_() for side in ("img", "txt")]
    out = features(*leaves)
    i2t, t2i = image_text(out.image, out.text, out.scale)
    terms, aux = method.loss(run, batch, out)
    close((i2t + t2i).item() / 2, _mean(mode, "loss_i2t", "loss_t2i"))
    total = torch.stack([(i2t + t2i) / 2, *terms.values()]).sum()
    total.backward()
    logits = given("F_logits")[own].requires_grad_()
    words = _words(method, run, logits, own)
    words.backward()
    theirs = TWO[f"s0/rank{world.rank}/{mode}/grad_total_wrt_logits"]
    close(logits.grad, theirs)
    everything = sum(TWO[f"s0/rank{rank}/{mode}/total"] for rank in (0, 1)) / 2
    shared = words.detach()
    world.sum_([shared])
    close(total.item() + shared.item() / 2, everything)
    for leaf, side in zip(leaves, ("img", "txt"), strict=True):
        assert leaf.grad is not None
        authors = TWO[f"s0/rank{world.rank}/{mode}/grad_total_wrt_{side}"]
        close(2 * leaf.grad[own], authors)
    if isinstance(method, Ctp):
        method.after_step(run, batch, aux, stepped=True)
        for side, name in (("image", "img"), ("text", "txt")):
            theirs = TWO[f"s0/rank{world.rank}/{mode}/queue_{name}_after"]
            close(run.slot("queue")[side].T, theirs)


def _words(method: Method, run: FakeRun, logits: Tensor, own: slice) -> Tensor:
    labels = given("labels")[own]
    old, slow = (tokens(given(f"{model}_logits")[own], labels) for model in ("R", "M"))
    part = FakePart(6, int((labels >= 0).sum()), old=old, slow=slow)
    out = tokens(logits, labels)
    terms = method.token_loss(run, part, out)
    return torch.stack([word_loss(out.logits, out.labels) / part.masked, *terms.values()]).sum()


def _mean(mode: str, *names: str) -> float:
    found = [TWO[f"s0/rank{rank}/{mode}/{name}"] for rank in (0, 1) for name in names]
    return float(np.mean(found))

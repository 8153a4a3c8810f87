"""What several processes cost: the sum of gradients, and the loss with and without --local-loss.

python recipes/bench/processes.py [--rounds 5 --steps 4 --batch 4096]

First, steps of two gloo processes on a dual encoder of 21 M weights (84 MB of gradients): ours, in
buckets while backward runs; one flat all-reduce after backward, as before; PyTorch's
DistributedDataParallel; and no sum at all. Then the contrastive loss of a batch, forward and
backward, in 1, 2 and 4 processes: each computes all of it, or the rows of its own pairs. Contenders
take turns; each round starts new processes, so that peak memory is a contender's own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.nn.parallel import DistributedDataParallel
from turns import machine

from vlcpctl.core.batch import Batch
from vlcpctl.core.console import emit
from vlcpctl.distributed.ranks import ProcessRanks
from vlcpctl.distributed.world import World, join_processes
from vlcpctl.losses.contrastive import image_text
from vlcpctl.models import encoders
from vlcpctl.models.configuration import PACKAGED
from vlcpctl.models.embed import as_features
from vlcpctl.models.encoders import Encoder, NewModelOptions
from vlcpctl.training.gradients import LossShare
from vlcpctl.training.methods import compose
from vlcpctl.training.optimizers import new_optimizer
from vlcpctl.training.phases import PhasePlan
from vlcpctl.training.presets import resolve
from vlcpctl.training.run import TrainRun
from vlcpctl.training.step import OptimizerStep

WIDTH, LAYERS, PAIRS, CHANNELS = 384, 6, 16, 512


@dataclass
class Cost:
    """Seconds of a step, and the peak memory of a process in MB."""

    wall: float
    cpu: float
    memory: float


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--only", choices=("sum", "loss"))
    args = parser.parse_args()
    emit(machine())
    if args.only != "loss":
        emit(f"A step of 2 processes, {PAIRS} pairs, {LAYERS} + {LAYERS} layers, width {WIDTH}")
        with tempfile.TemporaryDirectory() as directory:
            model = _encoder(_configuration(Path(directory)))
            contenders = {
                name: (2, lambda world, name=name: _steps(world, name, model, args.steps))
                for name in ("ours", "flat", "DistributedDataParallel", "no sum")
            }
            _show(_in_turns(contenders, args.rounds), "flat")
    if args.only != "sum":
        emit(f"The contrastive loss of {args.batch} pairs, {CHANNELS} channels")
        model = _encoder(str(PACKAGED / "micro.json"))
        contenders = {
            f"{size} process{'es' if size > 1 else ''}, {kind}": (
                size,
                lambda world, kind=kind: _losses(world, kind, model, (args.batch, args.steps)),
            )
            for size in (1, 2, 4)
            for kind in (("all rows", "own rows") if size > 1 else ("all rows",))
        }
        _show(_in_turns(contenders, args.rounds), "1 process, all rows")


Contender = tuple[int, Callable[[World], Cost]]  # the number of processes, and what each does


def _in_turns(contenders: dict[str, Contender], rounds: int) -> dict[str, list[Cost]]:
    found: dict[str, list[Cost]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, (size, act) in contenders.items():
            found[name].append(_together(size, act))
    return found


def _together(size: int, act: Callable[[World], Cost]) -> Cost:
    """The cost of process 0, once all have ended well."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(free.getsockname()[1]))
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()

    def join(rank: int) -> None:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(size))
        torch.set_num_threads(1)
        with join_processes(ProcessRanks(rank, size, rank), torch.device("cpu")) as world:
            cost = act(world)
            if rank == 0:
                answers.put(cost)

    processes = [fork.Process(target=join, args=(rank,)) for rank in range(size)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise SystemExit(f"a process ended with {process.exitcode}")
    return answers.get()


def _timed(once: Callable[[], object], steps: int, world: World) -> Cost:
    once()  # the first step forms the buckets
    world.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        once()
    world.barrier()
    taken = [(time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps]
    return Cost(*taken, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _show(found: dict[str, list[Cost]], rival: str) -> None:
    emit(f"{'':28}{'wall ms: median':>16}{'min':>8}{'CPU ms: median':>16}{'min':>8}{'peak MB':>9}")
    for name, costs in found.items():
        cells = [
            f"{1000 * pick(getattr(cost, kind) for cost in costs):.0f}"
            for kind in ("wall", "cpu")
            for pick in (median, min)
        ]
        memory = median(cost.memory for cost in costs)
        emit(f"{name:28}{cells[0]:>16}{cells[1]:>8}{cells[2]:>16}{cells[3]:>8}{memory:>9.0f}")
    for name, costs in found.items():
        if name != rival:
            pairs = list(zip(costs, found[rival], strict=True))
            wall, cpu = (
                median(getattr(one, kind) / getattr(other, kind) for one, other in pairs)
                for kind in ("wall", "cpu")
            )
            emit(f"{name} / {rival}: {wall:.2f} in wall time, {cpu:.2f} in CPU time")


def _configuration(directory: Path) -> str:
    """The file of a dual encoder with 21 M weights in its layers."""
    tower = {"width": WIDTH, "layers": LAYERS}
    text = {"context_length": 16, "vocab_size": 2500, "heads": 6, **tower}
    config = {
        "embed_dim": 256,
        "vision_cfg": {"image_size": 32, "patch_size": 8, "head_width": 64, **tower},
        "text_cfg": {**text, "hf_tokenizer_name": str(PACKAGED / "tiny-tokenizer")},
    }
    path = directory / "model.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


def _encoder(model: str) -> Encoder:
    """Built before the processes are forked, which need not import its library again."""
    return encoders.build(model, NewModelOptions(temperature="fixed:0.07"))


def _run(world: World, encoder: Encoder, *, local_loss: bool = False) -> TrainRun:
    settings, _ = resolve("tiny", {"batch_size": PAIRS, "optimizer": "sgd"}, {})
    return TrainRun(
        encoder=encoder,
        methods=compose("seqf"),
        settings=settings,
        seed=0,
        device=torch.device("cpu"),
        world=world,
        local_loss=local_loss,
    )


def _steps(world: World, name: str, model: Encoder, steps: int) -> Cost:
    run = _run(world, model)
    run.position.plan = PhasePlan("train", steps=10**6)
    step = OptimizerStep(run, new_optimizer(run.weights, run.settings), run.methods)
    if name != "ours":
        rival = {"flat": Flat, "no sum": NoSum}.get(name, Wrapped)(run)
        step.reduction = rival  # type: ignore[assignment]
    run.encoder.module.train()
    own = world.slice_of(PAIRS)
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(256, (PAIRS, 32, 32, 3), dtype=torch.uint8, generator=draw)
    texts = run.encoder.tokenize([f"a photo of the thing {number}" for number in range(PAIRS)])
    keys = [f"{number:032x}" for number in range(PAIRS)]
    batch = Batch(keys, torch.zeros(PAIRS, dtype=torch.bool), images[own], texts[own])
    return _timed(lambda: step(replace(batch)), steps, world)


class NoSum:
    """No sum of gradients: what the step would cost without communication of them."""

    def __init__(self, run: TrainRun) -> None:
        self.weights, self.world = run.weights, run.world

    def last_backward(self, *, is_last: bool = True) -> Any:
        """Nothing to do while backward runs."""
        return nullcontext()

    def finish(self) -> dict[str, Tensor]:
        """The gradients by name."""
        grads = {name: weight.grad for name, weight in self.weights.items()}
        return {name: grad for name, grad in grads.items() if grad is not None}


class Flat(NoSum):
    """One all-reduce of all gradients after backward, as before."""

    def finish(self) -> dict[str, Tensor]:
        """The gradients by name, summed."""
        grads = super().finish()
        flat = _flatten_dense_tensors(list(grads.values()))
        dist.all_reduce(flat)
        parts = _unflatten_dense_tensors(flat, list(grads.values()))
        for grad, part in zip(grads.values(), parts, strict=True):
            grad.copy_(part)
        return grads


class Wrapped(NoSum):
    """DistributedDataParallel round the encoder, whose hook sums each bucket."""

    def __init__(self, run: TrainRun) -> None:
        super().__init__(run)
        encoder, features = run.encoder, run.encoder.features

        class Towers(nn.Module):
            """Both towers as one module with one forward pass."""

            def __init__(self) -> None:
                super().__init__()
                self.module = encoder.module

            def forward(self, images: Tensor, texts: Tensor) -> Any:
                """Raw projections of both sides."""
                return features(images, texts, None)

        self._parallel = DistributedDataParallel(Towers(), gradient_as_bucket_view=True)
        self._parallel.register_comm_hook(None, _summed)
        encoder.features = lambda images, texts, _=None: self._parallel(images, texts)  # type: ignore[method-assign]


def _summed(_state: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


# DistributedDataParallel wants the classes themselves, not their names.
_summed.__annotations__.update({"bucket": dist.GradBucket, "return": torch.futures.Future[Tensor]})


def _losses(world: World, kind: str, model: Encoder, lengths: tuple[int, int]) -> Cost:
    """Features of all processes, the loss, and the gradient of the own features."""
    count, steps = lengths
    run = _run(world, model, local_loss=kind == "own rows")
    share = LossShare(run, run.methods)
    draw = torch.Generator().manual_seed(world.rank)
    own = [torch.randn(count // world.size, CHANNELS, generator=draw) for _ in range(2)]

    def once() -> None:
        leaves = [world.gather(side).requires_grad_() for side in own]
        out = share.features(as_features(*leaves, torch.tensor(14.0)))
        sum(image_text(out.image, out.text, out.scale, out.own)).backward()
        for leaf in leaves:
            share.own_rows(leaf.grad)

    return _timed(once, steps, world)


if __name__ == "__main__":
    main()

"""What each method's step costs, as a ratio to that of seqf on the same model, batch and data.

python recipes/bench/step.py [--model albef-tiny --batch 64 --rounds 30 --methods ctp,ewc,…]

The steps of all methods take turns, so that what else the machine does hits all alike. By
arithmetic ctp costs 5/3: a forward is one unit, a backward two, and ctp adds two forwards.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import torch

from vlcpctl.checkpoints.checkpoint import all_tensors
from vlcpctl.core.batch import Batch
from vlcpctl.core.console import emit
from vlcpctl.data.loading.masking import Masking
from vlcpctl.models import encoders
from vlcpctl.models.encoders import Encoder, NewModelOptions
from vlcpctl.training.config.composition import compose
from vlcpctl.training.config.phases import PhasePlan
from vlcpctl.training.config.settings import Settings, resolve
from vlcpctl.training.loop.optim import new_optimizer
from vlcpctl.training.loop.slots import start_slots
from vlcpctl.training.loop.state import TrainRun
from vlcpctl.training.loop.step import OptimizerStep

METHODS = "seqf,ewc,mas,si,rwalk,lwf,modx,dha,ctp"


def main() -> None:
    """Print a row for each method: seconds a step, and the ratio to seqf."""
    args = _arguments()
    torch.set_num_threads(args.threads)
    settings, _ = resolve("tiny", {"model": args.model, "batch_size": args.batch}, {})
    names = args.methods.split(",")
    steps = {name: _step(name, settings, args.device) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(args.rounds + 2):  # two to warm up
        for name, step in steps.items():
            taken = step()
            if number >= 2:
                seconds[name].append(taken)
    base = median(seconds["seqf"])
    for name in names:
        middle = median(seconds[name])
        emit(f"{name:8} {1000 * middle:8.2f} ms a step   {middle / base:5.2f} x seqf")


def _step(name: str, settings: Settings, device: str) -> Callable[[], float]:
    """Make a function that runs one training step of a second task and returns its seconds."""
    encoder = encoders.build(settings.model, NewModelOptions(temperature="fixed:0.07"))
    encoder.module.to(device)
    run = TrainRun(
        encoder=encoder,
        methods=compose(name),
        settings=settings,
        seed=0,
        device=torch.device(device),
        previous=all_tensors(encoder),
    )
    start_slots(run, {})
    run.position.plan = PhasePlan("train", steps=10**6)
    step = OptimizerStep(run, new_optimizer(run.weights, settings), run.methods)
    encoder.module.train()
    batch = _batch(encoder, settings)

    def once() -> float:
        _wait(device)
        started = time.perf_counter()
        step(replace(batch))  # a new batch each time: frozen models encode each batch once
        _wait(device)
        run.position.step += 1
        return time.perf_counter() - started

    return once


def _batch(encoder: Encoder, settings: Settings) -> Batch:
    """Noise for images, and captions that fill the text."""
    size, pixels = settings.batch_size, encoder.transform.image_size
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(256, (size, pixels, pixels, 3), dtype=torch.uint8, generator=draw)
    keys = [f"{number:032x}" for number in range(size)]
    captions = [f"a photo of the thing {number} on a table" for number in range(size)]
    texts = encoder.tokenize(captions)
    masked = labels = None
    if encoder.family == "fusion":
        masking = Masking(encoder.special, settings.mask_share, seed=0)
        masked, labels = masking(texts, keys, [0] * size)
    nothing = torch.zeros(size, dtype=torch.bool)
    return Batch(keys, nothing, images, texts, masked, labels)


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="albef-tiny")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()

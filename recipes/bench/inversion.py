"""The cost of IncCLIP's negative texts: generating them, as a ratio to the training step.

python recipes/bench/inversion.py [--model tiny --batch 64 --texts 32 --iterations 5 --rounds 20]
python recipes/bench/inversion.py --model RN50 --batch 256 --texts 128 --device cuda

Half as many texts as pairs, against as many images of the memory as the batch has, is what the
paper's numbers come to on a single device. To be run on an idle machine.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from statistics import median

import torch

from vlcpctl.checkpoints.checkpoint import all_tensors
from vlcpctl.core.batch import Batch
from vlcpctl.core.console import emit
from vlcpctl.methods.incclip import Incclip
from vlcpctl.models import encoders
from vlcpctl.models.encoders import Encoder, NewModelOptions
from vlcpctl.training.method_run import start_slots
from vlcpctl.training.methods import compose
from vlcpctl.training.optimizers import new_optimizer
from vlcpctl.training.phases import PhasePlan
from vlcpctl.training.presets import resolve
from vlcpctl.training.run import TrainRun
from vlcpctl.training.step import OptimizerStep


def main() -> None:
    """Print the seconds of a step without texts, with them, and of generating them."""
    args = _arguments()
    torch.set_num_threads(args.threads)
    runs = {texts: _Timed(args, texts) for texts in (0, args.texts)}
    for number in range(args.rounds + 2):  # two to warm up; they take turns
        for run in runs.values():
            run.once(counts=number >= 2)
    bare, full = (median(runs[texts].steps) for texts in (0, args.texts))
    made = median(runs[args.texts].made)
    emit(f"step without texts   {1000 * bare:8.2f} ms")
    emit(f"step with texts      {1000 * (full - made):8.2f} ms, {(full - made) / bare:.2f} x")
    ratio = made / (full - made)
    emit(f"making {args.texts:5} texts   {1000 * made:8.2f} ms, {ratio:.2f} x that step")
    emit(f"share of the time    {made / full:8.0%}")


class _Timed:
    """Training steps of a second task, timed with and without what makes the texts."""

    def __init__(self, args: argparse.Namespace, texts: int) -> None:
        flags = {"model": args.model, "batch_size": args.batch, "precision": args.precision}
        settings, _ = resolve("tiny", flags, {})
        encoder = encoders.build(settings.model, NewModelOptions(temperature="fixed:0.07"))
        encoder.module.to(args.device)
        hyper = [f"incclip.count={texts}", f"incclip.iterations={args.iterations}"]
        self.run = TrainRun(
            encoder=encoder,
            methods=compose("incclip", hyper),
            settings=settings,
            seed=0,
            device=torch.device(args.device),
            previous=all_tensors(encoder),
        )
        start_slots(self.run, {})
        self.run.position.plan = PhasePlan("train", steps=10**6)
        optimizer = new_optimizer(self.run.weights, settings)
        self.step = OptimizerStep(self.run, optimizer, self.run.methods)
        encoder.module.train()
        batch = _batch(encoder, args.batch)
        self.batch = replace(batch, buffer_batch=batch if texts else None)
        self.steps: list[float] = []
        self.made: list[float] = []

    def once(self, *, counts: bool) -> None:
        """One step."""
        before, started = self.run.inverting_seconds, time.perf_counter()
        self.step(
            replace(self.batch)
        )  # a new batch each time: frozen models encode each batch once
        if self.run.device.type == "cuda":
            torch.cuda.synchronize()
        self.run.position.step += 1
        if counts:
            self.steps.append(time.perf_counter() - started)
            self.made.append(self.run.inverting_seconds - before)


def _batch(encoder: Encoder, size: int) -> Batch:
    """Noise for images, and captions that fill the text."""
    pixels = encoder.transform.image_size
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(256, (size, pixels, pixels, 3), dtype=torch.uint8, generator=draw)
    captions = [f"a photo of the thing {number} on a table" for number in range(size)]
    keys, nothing = [str(number) for number in range(size)], torch.zeros(size, dtype=torch.bool)
    return Batch(keys, nothing, images, encoder.tokenize(captions))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--texts", type=int, default=32)
    parser.add_argument("--iterations", type=int, default=Incclip.iterations)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""What a training step costs: against open_clip's, and each method's against its own passes.

python recipes/bench/step.py [--models clip,albef-tiny --batch 16 --rounds 7 --methods ctp,ewc,…]
                             [--profile]

`clip` is a small dual encoder with CLIP's vocabulary; other names are those of --model. The rival
is the loop of open_clip's trainer (`train_one_epoch` of open_clip_train, with its AdamW, and with
the fused one, which it has no option for) on a copy of the same dual encoder and the same batch,
normalised beforehand; ours normalises in the step.

A method's step is also compared with the sum of its passes: forward and backward of the model, the
forward passes of frozen models that it makes, and the optimizer's update. By arithmetic ctp costs
5/3 of seqf's passes: a forward is one unit, a backward two, and ctp adds two forwards. Contenders
take turns, so that what else the machine does hits all alike; ratios are those of a round.
--profile prints the functions in which a step of each method spends most, with what they call.
"""

from __future__ import annotations

import argparse
import copy
import cProfile
import json
import logging
import pstats
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import torch
from models import SIZES
from open_clip.loss import ClipLoss
from open_clip_train.train import train_one_epoch
from turns import Seconds, in_turns, machine, ratios

from vlcpctl.checkpoints.checkpoint import all_tensors
from vlcpctl.core.batch import Batch, Features, Weights
from vlcpctl.core.console import emit
from vlcpctl.data.loading.masking import Masking
from vlcpctl.models import encoders
from vlcpctl.models.encoders import Encoder, NewModelOptions
from vlcpctl.training.beside import TokenTerms
from vlcpctl.training.method_run import start_slots
from vlcpctl.training.methods import compose
from vlcpctl.training.optimizers import Optimizer, new_optimizer
from vlcpctl.training.phases import PhasePlan
from vlcpctl.training.presets import resolve
from vlcpctl.training.run import TrainRun
from vlcpctl.training.settings import Settings
from vlcpctl.training.step import OptimizerStep

METHODS = "seqf,ewc,mas,si,rwalk,lwf,modx,dha,ctp"
BASE = "seqf"
RIVALS = {"open_clip": False, "open_clip, fused": True}  # its loop, and whether AdamW is fused
SMALL = ("bn", "ln", "bias")  # in names of the weights that open_clip does not decay


def main() -> None:
    """Print for each model and method the time of a step, and its ratios."""
    args = _arguments()
    torch.set_num_threads(args.threads)
    logging.disable()  # open_clip logs a line for each call
    emit(f"{machine()}, open_clip {version('open_clip_torch')}")
    methods = [BASE, *(one for one in args.methods.split(",") if one != BASE)]
    with TemporaryDirectory() as directory:
        clip = Path(directory) / "clip.json"
        clip.write_text(json.dumps(SIZES["small"]), encoding="utf-8")
        for model in args.models.split(","):
            name = str(clip) if model == "clip" else model
            settings, _ = resolve(
                "tiny", {"model": name, "batch_size": args.batch, "base_loss": "mean"}, {}
            )
            emit(f"{model}, batch of {args.batch}, {args.rounds} rounds of {args.steps} steps")
            _compare(settings, methods, args)


def _compare(settings: Settings, methods: list[str], args: argparse.Namespace) -> None:
    contenders: dict[str, Callable[[], object]] = {}
    runs = [_Trained(name, settings, args.device, args.steps) for name in methods]
    for name, trained in zip(methods, runs, strict=True):
        contenders |= {name: trained.take_steps, f"{name}, passes": trained.run_passes}
    if runs[0].run.encoder.family == "dual":
        for rival, fused in RIVALS.items():
            contenders[rival] = _rival(settings, args.device, args.steps, fused=fused)
    found = in_turns(contenders, rounds=args.rounds)
    emit(f"{'':20}{'CPU ms a step: median':>22}{'min':>9}{'wall':>9}{'/ seqf':>9}{'/ passes':>9}")
    for name in [*methods, *(rival for rival in RIVALS if rival in found)]:
        one = found[name]
        times = [1000 * pick(seconds) / args.steps for pick, seconds in _picks(one)]
        cells = "".join(
            f"{time:>{width}.2f}" for time, width in zip(times, (22, 9, 9), strict=True)
        )
        passes = found.get(f"{name}, passes")
        of = [median(ratios(one.cpu, found[BASE].cpu))]
        of += [] if passes is None else [median(ratios(one.cpu, passes.cpu))]
        emit(f"{name:20}{cells}{''.join(f'{ratio:>9.2f}' for ratio in of)}")
    for trained in runs if args.profile else ():
        trained.show_profile()
    for rival in RIVALS.keys() & found.keys():
        faster = median(ratios(found[rival].cpu, found[BASE].cpu))
        emit(f"{BASE} is {faster:.2f} x as fast as {rival} in CPU time")


def _picks(one: Seconds) -> list[tuple[Callable[[list[float]], float], list[float]]]:
    return [(median, one.cpu), (min, one.cpu), (median, one.wall)]


class _Trained:
    """A run of a second task with one method, and the batch that it trains on."""

    def __init__(self, name: str, settings: Settings, device: str, steps: int) -> None:
        encoder = encoders.build(settings.model, NewModelOptions(temperature="fixed:0.07"))
        encoder.module.to(device)
        self.steps = steps
        self.run = TrainRun(
            encoder=encoder,
            methods=compose(name),
            settings=settings,
            seed=0,
            device=torch.device(device),
            previous=all_tensors(encoder),
        )
        start_slots(self.run, {})
        self.run.position.plan = PhasePlan("train", steps=10**6)
        self.optimizer: Optimizer = new_optimizer(self.run.weights, settings)
        self.step = OptimizerStep(self.run, self.optimizer, self.run.methods)
        encoder.module.train()
        self.batch = _batch(encoder, settings)
        self.frozen = self._frozen_passes()

    def take_steps(self) -> None:
        """Train on the batch, as often as a turn has steps."""
        for _ in range(self.steps):
            # A new batch each time: frozen models encode each batch once.
            values = self.step(replace(self.batch))
            self.run.position.step += 1
        values.read()

    def run_passes(self) -> None:
        """The passes of as many steps, without the method: no losses over features, no slots."""
        for _ in range(self.steps):
            self._passes()
        _wait(self.run.device)

    def show_profile(self) -> None:
        """Print the milliseconds a step of the functions that take more than 2 % of it."""
        profile = cProfile.Profile(time.process_time)
        profile.runcall(self.take_steps)
        found = pstats.Stats(profile).get_stats_profile()
        each = 1000 / self.steps
        ours = sorted(
            (
                (one.cumtime * each, f"{Path(one.file_name).stem}.{name}")
                for name, one in found.func_profiles.items()
                if "/vlcpctl/" in one.file_name and one.cumtime > found.total_tt / 50
            ),
            reverse=True,
        )
        emit(f"{self.run.methods[0].name}: {found.total_tt * each:.0f} ms a step, of which")
        for milliseconds, name in ours:
            emit(f"{milliseconds:>10.1f}  {name}")

    def _passes(self) -> None:
        run, batch = self.run, replace(self.batch)
        self.optimizer.zero_grad(set_to_none=True)
        for weights in self.frozen:
            run.frozen_features(batch, weights, tokens=True)
        (chunk,) = run.chunks(batch)
        if run.encoder.family == "fusion":
            *sides, tokens = run.encode_tokens(batch, chunk)
            words = TokenTerms(run, [], batch).add_chunk(chunk, tokens)
            sides += [] if words is None else [words]
        else:
            sides = [*run.encode(batch, chunk)]
        torch.autograd.backward(sides, [torch.ones_like(side) for side in sides])
        self.optimizer.step()
        run.drop_inputs()

    def _frozen_passes(self) -> list[Weights]:
        """The weights of the frozen passes that one step makes."""
        found: list[Weights] = []
        own = self.run.frozen_features

        def look(batch: Batch, weights: Weights, *, tokens: bool = False) -> Features:
            found.append(weights)
            return own(batch, weights, tokens=tokens)

        self.run.frozen_features = look  # type: ignore[method-assign]
        self.step(replace(self.batch))
        self.run.frozen_features = own  # type: ignore[method-assign]
        return found


@dataclass
class _Loader:
    """The same batch, as often as a turn has steps: what open_clip's loop reads."""

    batch: tuple[torch.Tensor, torch.Tensor]
    num_batches: int

    @property
    def num_samples(self) -> int:
        return self.num_batches * len(self.batch[0])

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return iter([self.batch] * self.num_batches)


def _rival(settings: Settings, device: str, steps: int, *, fused: bool) -> Callable[[], object]:
    """open_clip's own loop over the same model and batch."""
    encoder = encoders.build(settings.model, NewModelOptions(temperature="fixed:0.07"))
    module: Any = copy.deepcopy(encoder.module).to(device)
    module.output_dict = True
    named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
    small = [p for n, p in named if p.ndim < 2 or any(part in n for part in SMALL)]
    rest = [p for _, p in named if all(p is not one for one in small)]
    optimizer = torch.optim.AdamW(  # as open_clip_train.main groups and creates it
        [{"params": small, "weight_decay": 0.0}, {"params": rest, "weight_decay": 0.2}],
        lr=settings.lr,
        betas=settings.betas,
        eps=settings.eps,
        fused=fused,
    )
    batch = _batch(encoder, settings)
    loader = _Loader((encoder.pixels(batch.images), batch.texts), steps)
    data = {"train": SimpleNamespace(dataloader=loader, set_epoch=int)}
    args = SimpleNamespace(
        device=device,
        precision="fp32",
        accum_freq=1,
        distill=False,
        skip_scheduler=True,
        horovod=False,
        grad_clip_norm=None,
        log_every_n_steps=10**6,
        batch_size=settings.batch_size,
        world_size=1,
        rank=0,
        local_rank=0,
        log_local=False,
        wandb=False,
    )
    loss = ClipLoss()
    return lambda: train_one_epoch(
        module, data, loss, 0, optimizer, None, None, None, args, tb_writer=None
    )


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


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="clip,albef-tiny")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3, help="steps a turn")
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--profile", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()

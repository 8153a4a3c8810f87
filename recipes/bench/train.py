"""The whole command train-step against open_clip's trainer: same model, pairs, batch and optimizer.

python recipes/bench/train.py [--size small|large --pairs 512 --batch 16 --workers 0 --rounds 5]

Both train a model with random weights on one pass over JPEGs with captions, in fp32 with AdamW, one
thread and no validation, and write a checkpoint in the end. The data of ours was split before;
open_clip reads the tar that was split. Each command runs with `--few` and with `--pairs` pairs: the
difference is what the pairs cost without start-up and end.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from statistics import median

from models import SIZES
from open_clip_environment import trainer_python
from photos import write_tar
from turns import Seconds, in_turns, machine, ratios

from vlcpctl.core.console import emit

RIVAL = "open_clip's trainer"
FUSED = "open_clip's trainer, fused AdamW"  # which it has no option for
OURS = ("vlcpctl, exact", "vlcpctl, scaled", "vlcpctl, exact, --resize torch")
_WITH_FUSED = """
import functools, runpy, sys, torch
torch.optim.AdamW = functools.partial(torch.optim.AdamW, fused=True)
sys.argv[0] = "open_clip_train.main"
runpy.run_module("open_clip_train.main", run_name="__main__")
"""


def main() -> None:
    """Print what each command takes, and the ratios with and without start-up."""
    args = _arguments()
    trainer = trainer_python()
    with tempfile.TemporaryDirectory(dir=args.directory) as name:
        bench = Bench(Path(name), args, trainer)
        bench.write_inputs()
        commands = {
            f"{contender}, {count} pairs": bench.command(contender, count)
            for contender in (RIVAL, FUSED, *OURS)
            for count in (args.few, args.pairs)
        }
        found = in_turns(commands, rounds=args.rounds, warm_up=args.warm_up)
    emit(machine())
    emit(
        f"open_clip {version('open_clip_torch')}; model {args.size}, batches of {args.batch}, "
        f"JPEGs of {args.pixels} px, {args.workers} workers"
    )
    for title, seconds in found.items():
        emit(f"{title:40} CPU {median(seconds.cpu):7.2f} s   wall {median(seconds.wall):7.2f} s")
    _say_ratios(found, args)


@dataclass(frozen=True)
class Bench:
    """The inputs of both trainers in a directory, and their command lines."""

    directory: Path
    args: argparse.Namespace
    trainer: str

    def write_inputs(self) -> None:
        """The tar, the stream made from it, and the model's configuration for each program."""
        tar = write_tar(self.directory / "pairs.tar", self.args.pairs, self.args.pixels)
        words = ["split", str(tar), "-o", str(self.directory / "stream"), "--by", "iid", "-q"]
        words += ["--tasks", "1", "--holdout", "none"]
        subprocess.run([sys.executable, "-m", "vlcpctl", *words], check=True, stdout=sys.stderr)
        config = SIZES[self.args.size]
        (self.directory / "model.json").write_text(json.dumps(config), encoding="utf-8")
        (self.directory / "model").mkdir()
        described = json.dumps({"model_cfg": config, "preprocess_cfg": {}})
        (self.directory / "model" / "open_clip_config.json").write_text(described, encoding="utf-8")

    def command(self, contender: str, pairs: int) -> Sequence[str]:
        """The command line that trains on so many pairs."""
        if contender in OURS:
            return self._ours(contender, pairs)
        program = ["-c", _WITH_FUSED] if contender == FUSED else ["-m", "open_clip_train.main"]
        return self._theirs(program, pairs)

    def _ours(self, contender: str, pairs: int) -> list[str]:
        (task,) = (self.directory / "stream").glob("00-*")
        options = {
            "--method": "seqf",
            "--preset": "tiny",
            "--model": str(self.directory / "model.json"),
            "--temperature": "learn:0.07",
            "--weight-decay": "0.2",
            "--lr": "1e-4",
            "--steps": str(pairs // self.args.batch),
            "--batch-size": str(self.args.batch),
            "--crop": "random",
            "--crop-scale": "0.9,1",
            "--jpeg-decode": "scaled" if "scaled" in contender else "exact",
            "--resize": "torch" if "torch" in contender else "pillow",
            "--workers": str(self.args.workers),
            "--device": "cpu",
            "--out": str(self.directory / "ours"),
        }
        words = [word for option in options.items() for word in option]
        return [sys.executable, "-m", "vlcpctl", "train-step", str(task), *words, "--force", "-q"]

    def _theirs(self, program: Sequence[str], pairs: int) -> list[str]:
        options = {
            "--train-data": str(self.directory / "pairs.tar"),
            "--dataset-type": "webdataset",
            "--train-num-samples": str(pairs),
            "--model": f"local-dir:{self.directory / 'model'}",
            "--batch-size": str(self.args.batch),
            "--epochs": "1",
            "--workers": str(self.args.workers),
            "--precision": "fp32",
            "--lr": "1e-4",
            "--wd": "0.2",
            "--warmup": "1",
            "--device": "cpu",
            "--logs": str(self.directory / "logs"),
        }
        words = [self.trainer, *program]
        words += [word for option in options.items() for word in option]
        # It never replaces what an earlier run has written.
        return ["sh", "-c", f"rm -rf {shlex.quote(options['--logs'])} && exec {shlex.join(words)}"]


def _say_ratios(found: dict[str, Seconds], args: argparse.Namespace) -> None:
    def cpu(contender: str, count: int) -> list[float]:
        return found[f"{contender}, {count} pairs"].cpu

    for rival, name in product((RIVAL, FUSED), OURS):
        whole = median(ratios(cpu(rival, args.pairs), cpu(name, args.pairs)))
        of_pairs = [
            [
                long - short
                for long, short in zip(cpu(one, args.pairs), cpu(one, args.few), strict=True)
            ]
            for one in (rival, name)
        ]
        rates = [(args.pairs - args.few) / median(one) for one in of_pairs]
        rounds = ratios(*of_pairs)
        emit(
            f"{name}: {whole:.2f} times the pairs/s of {rival}, by CPU time of the whole command; "
            f"without start-up {median(rounds):.2f} times, {min(rounds):.2f} to {max(rounds):.2f} "
            f"({rates[1]:.0f} against {rates[0]:.0f} pairs a CPU second)"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="small", help="of the model")
    parser.add_argument("--pairs", type=int, default=512)
    parser.add_argument("--few", type=int, default=128)
    parser.add_argument("--pixels", type=int, default=256, help="of the JPEGs")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=1, help="rounds before")
    parser.add_argument("--directory", type=Path, help="where to write data and checkpoints")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Training speed on a GPU, pairs/s: train-step with several options, and open_clip's trainer.

python recipes/bench/gpu_train.py [--model ViT-B-32 --batch 512 --pairs 8192 --steps 30 --rounds 5]

All train on the same WebDataset tars of JPEGs with captions, from random weights. A contender runs
with STEPS steps and with four times as many; the difference of both leaves out the start, such as
compilation. Memory is the most that nvidia-smi shows as used on all GPUs. open_clip's trainer
reports its own pairs/s in its log, of which this takes the median after the first STEPS steps.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image
from turns import machine

from vlcpctl.core.console import emit

OURS = {
    "fp32": (),
    "fp32 --tf32": ("--tf32",),
    "bf16": ("--precision", "bf16"),
    "bf16, no workers": ("--precision", "bf16", "--workers", "0"),
    "bf16 --compile": ("--precision", "bf16", "--compile"),
    "bf16 --grad-checkpointing": ("--precision", "bf16", "--grad-checkpointing"),
}
RIVALS = {
    "open_clip fp32": (),
    "open_clip bf16": ("--precision", "amp_bf16"),
    "open_clip bf16 --torchcompile": ("--precision", "amp_bf16", "--torchcompile"),
}
TAR_PAIRS = 1024
_SPEED = re.compile(r"([0-9.]+)/s, [0-9.]+/s/gpu")


def main() -> None:
    """Print a row for each contender: the median and least pairs/s, and the most memory."""
    args = _arguments()
    rivals = {} if args.no_rival else RIVALS
    speeds: dict[str, list[float]] = {name: [] for name in (*args.only, *rivals)}
    memory = dict.fromkeys(speeds, 0)
    with tempfile.TemporaryDirectory(prefix="gpu-train-") as temporary:
        root = Path(temporary)
        tars = write_pairs(root, args.pairs, args.pixels)
        _run([*_OURS, "split", *map(str, tars), "-o", str(root / "stream"), "--by", "all:bench"])
        for _ in range(args.rounds):
            for name, seen in speeds.items():
                with _most_memory() as most:
                    found = _rival(args, root, name) if name in rivals else _ours(args, root, name)
                seen.append(found)
                memory[name] = max([memory[name], *most])
    emit(machine())
    emit(f"{args.model}, batches of {args.batch}, {args.rounds} rounds")
    for name, found in speeds.items():
        used = f"{memory[name]:8} MiB" if memory[name] else ""
        emit(f"{name:32} {median(found):9.1f} pairs/s  least {min(found):9.1f} {used}")


_OURS = (sys.executable, "-m", "vlcpctl")


def write_pairs(root: Path, pairs: int, pixels: int) -> list[Path]:
    """Write tars of `pairs` square JPEGs of smooth noise, each with a caption."""
    draw = np.random.default_rng(0)
    tars = []
    for first in range(0, pairs, TAR_PAIRS):
        tars.append(root / f"shard-{first // TAR_PAIRS:04d}.tar")
        with tarfile.open(tars[-1], "w") as tar:
            for number in range(first, min(first + TAR_PAIRS, pairs)):
                rough = Image.fromarray(draw.integers(0, 256, (32, 32, 3), dtype=np.uint8))
                file = io.BytesIO()
                rough.resize((pixels, pixels), Image.Resampling.BICUBIC).save(file, "JPEG")
                text = f"a photo of the thing {number} on a table".encode()
                for kind, data in (("jpg", file.getvalue()), ("txt", text)):
                    entry = tarfile.TarInfo(f"{number:08d}.{kind}")
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))
    return tars


def _ours(args: argparse.Namespace, root: Path, name: str) -> float:
    """Pairs/s of train-step, without its start."""
    pairs, seconds = [], []
    for steps in (args.steps, 4 * args.steps):
        out = root / "ours"
        words = ["train-step", str(next((root / "stream").glob("00-*"))), "-o", str(out), "-q"]
        words += ["--method", "seqf", "--preset", "tiny", "--model", args.model, "--json"]
        words += ["--batch-size", str(args.batch), "--steps", str(steps), "--device", args.device]
        words += ["--crop", "random", "--crop-scale", "0.9,1", *OURS[name]]
        result = json.loads(_run([*_OURS, *words]))
        pairs.append(result["pairs"])
        seconds.append(result["train_seconds"])
        shutil.rmtree(out)
    return float((pairs[1] - pairs[0]) / (seconds[1] - seconds[0]))


def _rival(args: argparse.Namespace, root: Path, name: str) -> float:
    """Pairs/s that open_clip's trainer logs, without its first steps."""
    last = (args.pairs - 1) // TAR_PAIRS
    words = [args.rival, "-m", "open_clip_train.main", "--model", args.model]
    words += ["--train-data", str(root / f"shard-{{0000..{last:04d}}}.tar")]
    words += ["--dataset-type", "webdataset", "--dataset-resampled", "--epochs", "1"]
    words += ["--train-num-samples", str(5 * args.steps * args.batch)]
    words += ["--batch-size", str(args.batch), "--workers", str(args.workers), "--warmup", "1"]
    words += ["--log-every-n-steps", "1", "--logs", str(root / "logs"), "--name", "rival"]
    words += ["--device", args.device, *RIVALS[name]]
    log = _run(words)
    shutil.rmtree(root / "logs", ignore_errors=True)
    return median([float(one) for one in _SPEED.findall(log)][args.steps :])


def _run(words: list[str]) -> str:
    """The output of a command, with its log; its errors are shown if it fails."""
    is_ours = words[: len(_OURS)] == list(_OURS)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stderr)
        done.check_returncode()
    return done.stdout if is_ours else done.stdout + done.stderr


@contextmanager
def _most_memory() -> Iterator[list[int]]:
    """Collect the MiB in use on all GPUs, twice a second; nothing without nvidia-smi."""
    seen: list[int] = []
    ended = threading.Event()
    words = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]

    def look() -> None:
        while shutil.which(words[0]) and not ended.wait(0.5):
            shown = subprocess.run(words, capture_output=True, text=True, check=False).stdout
            seen.append(sum(int(one) for one in shown.split()))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="ViT-B-32")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=8192)
    parser.add_argument("--pixels", type=int, default=256)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=min(8, len(os.sched_getaffinity(0))))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="*", choices=OURS, default=list(OURS))
    parser.add_argument("--rival", default=sys.executable, help="a Python with open_clip_train")
    parser.add_argument("--no-rival", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""CPU time to read, decode, augment and tokenise pairs: ours against open_clip's WebDataset reader.

python recipes/bench/loader.py [--pairs 512 --pixels 512 --image-size 224 --batch 64 --rounds 5]

All contenders run in this process, without workers, on the same JPEGs: a random crop of 90 to 100 %
of the area, resized by Pillow, and captions as 77 tokens. Pixels are normalised floats in the end.
Ours verifies the sha256 of each image besides, and does not use its cache of decoded images. The
exact pixels are those that open_clip's transform gives for the same crop.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import torch
from open_clip_environment import run_there
from photos import write_tar
from turns import in_turns, ratios, show

from vlcpctl.core.console import emit
from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.loading.loader import PlannedBatches, read_batches
from vlcpctl.data.loading.replay import UNION
from vlcpctl.data.loading.sampler import PairSampler
from vlcpctl.data.tasks.task import Split, open_stream
from vlcpctl.models import encoders
from vlcpctl.models.encoders import Encoder, NewModelOptions
from vlcpctl.models.imports import open_clip
from vlcpctl.models.tokenizers import BytePairs

RIVAL = "open_clip's WebDataset reader"
TOKENISE = BytePairs(77, {})  # open_clip's tokenizer, for both


def main() -> None:
    """Print the CPU and wall time of a pair for each contender, and the ratios."""
    args = _arguments()
    run_there()
    torch.set_num_threads(1)
    encoder = encoders.build("micro", NewModelOptions(image_size=args.image_size))  # normalises
    view = replace(encoder.transform, crop="random", crop_scale=(0.9, 1.0))
    with tempfile.TemporaryDirectory(dir=args.directory) as name:
        tar = write_tar(Path(name) / "pairs.tar", args.pairs, args.pixels)
        split = _split(tar, Path(name) / "stream")
        scaled = replace(view, jpeg_decode="scaled")
        by_torch = replace(view, resize="torch")
        contenders: dict[str, Callable[[], object]] = {
            RIVAL: lambda: _read_theirs(tar, view, args),
            "vlcpctl, exact": lambda: _read_ours(split, encoder, view, args),
            "vlcpctl, scaled": lambda: _read_ours(split, encoder, scaled, args),
            "vlcpctl, exact, --resize torch": lambda: _read_ours(split, encoder, by_torch, args),
        }
        found = in_turns(contenders, rounds=args.rounds)
        kilobytes = tar.stat().st_size / args.pairs / 1000
    emit(
        f"{args.pairs} JPEGs of {args.pixels} px and {kilobytes:.0f} kB to {args.image_size} px, "
        f"batches of {args.batch}; open_clip {version('open_clip_torch')}, "
        f"webdataset {version('webdataset')}, Pillow {version('pillow')}"
    )
    show(found, RIVAL, per=args.pairs / 1000, unit="ms a pair")
    for ours in list(contenders)[1:]:
        times = median(ratios(found[RIVAL].cpu, found[ours].cpu))
        emit(f"{ours}: {times:.2f} times the images/s of {RIVAL}, by CPU time")


def _split(tar: Path, out: Path) -> Split:
    """The training split of a task with the pairs of the tar."""
    words = [
        "split",
        str(tar),
        "-o",
        str(out),
        "--by",
        "iid",
        "--tasks",
        "1",
        "--holdout",
        "none",
        "-q",
    ]
    subprocess.run([sys.executable, "-m", "vlcpctl", *words], check=True)
    return next(task.split("train") for task in open_stream(out))


def _read_ours(
    split: Split, encoder: Encoder, view: ImageTransform, args: argparse.Namespace
) -> None:
    """One epoch of our batches."""
    sampler = PairSampler(
        [split], None, batch_size=args.batch, captions="one", replay=UNION, seed=0
    )
    batches = PlannedBatches(
        splits=sampler.splits,
        plan=sampler.plan,
        transform=view,
        tokenise=TOKENISE,
        seed=0,
        part=partial(slice, 0),
        cache=0,
    )
    count = 0
    for (batch,) in read_batches(batches, 0, args.pairs // args.batch, workers=0):
        count += len(encoder.pixels(batch.images))
    assert count == args.pairs, count


def _read_theirs(tar: Path, view: ImageTransform, args: argparse.Namespace) -> None:
    """One epoch of open_clip's batches."""
    from open_clip_train.data import get_wds_dataset

    given = SimpleNamespace(
        train_data=str(tar),
        train_num_samples=args.pairs,
        dataset_resampled=False,
        train_data_upsampling_factors=None,
        seed=0,
        batch_size=args.batch,
        workers=0,
        world_size=1,
    )
    how = open_clip().image_transform(view.image_size, True, mean=view.mean, std=view.std)
    data = get_wds_dataset(given, how, True, tokenizer=TOKENISE)
    count = sum(len(texts) for _images, texts in data.dataloader)
    assert count == args.pairs, count


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=512, help="a multiple of --batch")
    parser.add_argument("--pixels", type=int, default=512)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="where to write the pairs")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""The share of replay in each batch, for a week that is ten times the buffer.

    python recipes/replay_shares.py DIR [--seeds 0 1 2] [--jobs 2] [--steps 80] [--lr 3e-4]

Two streams, each with a model that has learned earlier pairs and a week of other ones. In "groups"
the model knows half of the groups of Emoji-9, and the week has the others; in "drawings" it knows
Emoji-9, and the week has the drawings of OpenMoji. The buffer is a reservoir of the earlier pairs
with a tenth as many images as the week has for training. `ctp`, with its queue of 1,024 and with
none, trains a week of as many steps with each use of the buffer. The drop is that of the model on
the held-out views of the earlier pairs, in points of mean recall. The table goes to stdout:
docs/results/replay.md. What was made stays in DIR, and the same call continues.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import production_weeks
import pyarrow as pa
import pyarrow.parquet as pq

REPLAYS = ("none", "union", "share=0.05", "share=0.1", "share=0.25", "share=0.5")
QUEUES = (0, 1024)
KNOWN = "Smileys & Emotion,People & Body,Animals & Nature,Food & Drink"
OTHER = "Travel & Places,Activities,Objects,Symbols,Flags"
BATCH = 64


@dataclass(frozen=True)
class Stream:
    """A model that has learned `golden`, and the task `week`."""

    root: Path

    @property
    def golden(self) -> Path:
        return self.root / "golden/00-golden"

    @property
    def week(self) -> Path:
        return self.root / "week/00-week"

    def start_lines(self) -> Iterator[str]:
        """Split both data sets, and train the model and fill the buffer."""
        for name in ("golden", "week"):
            yield (
                f"split {self.root / name}.parquet -o {self.root / name} --by all:{name} "
                "--split-column split"
            )

    def model_lines(self, steps: int) -> Iterator[str]:
        """Train the model, and fill the buffer."""
        how = f"--method seqf --preset tiny --steps {steps}"
        yield f"train-step {self.golden} -o {self.root}/start {how}"
        size = max(1, train_images(self.week) // 10)
        yield f"buffer {self.golden} -o {self.root}/buffer --policy reservoir --size {size}"

    def run(self, replay: str, queue: int, seed: int) -> Path:
        """Where the week that is trained like this goes."""
        return self.root / f"{replay}-{queue}-{seed}"

    def lines(self, how: tuple[str, int, int], steps: int, lr: float) -> Iterator[str]:
        """Train and evaluate the week."""
        replay, queue, seed = how
        out = self.run(*how)
        words = (
            f"train-step {self.week} -o {out} --method ctp --preset tiny --steps {steps} --lr {lr}"
        )
        words += f" --previous {self.root}/start --seed {seed} --set ctp.queue={queue} --run r"
        if replay != "none":
            words += f" --buffer {self.root}/buffer --replay {replay}"
        yield words
        yield self.evaluation(out)

    def evaluation(self, checkpoint: Path) -> str:
        """Evaluate a checkpoint on both test splits."""
        where = f"--checkpoint {checkpoint} -o {checkpoint}.ndjson"
        return f"eval-retrieval {self.golden} {self.week} {where}"


def train_images(task: Path) -> int:
    """The number of images of a task for training."""
    return int(json.loads((task / "task.json").read_text())["splits"]["train"]["images"])


def write_streams(root: Path) -> list[Stream]:
    """Write golden.parquet and week.parquet of both streams."""
    groups, drawings = root / "groups", root / "drawings"
    for directory in (groups, drawings):
        directory.mkdir(parents=True, exist_ok=True)
    sample = ["vlcpctl", "sample", "emoji9", "--size", "32", "-q", "--force", "-o"]
    for path, more in (
        (groups / "golden.parquet", ["--views", "4", "--groups", KNOWN]),
        (groups / "week.parquet", ["--views", "3", "--groups", OTHER]),
        (drawings / "golden.parquet", ["--views", "2"]),
    ):
        if not path.exists():
            subprocess.run([*sample, str(path), *more], check=True, stdout=subprocess.DEVNULL)
    rows = [
        row for glyph in production_weeks.read_glyphs() for row in production_weeks.pairs_of(glyph)
    ]
    table = pa.Table.from_pylist(rows, production_weeks.SCHEMA)
    if not (drawings / "week.parquet").exists():
        pq.write_table(table, drawings / "week.parquet")
    return [Stream(groups), Stream(drawings)]


def batch(lines: Sequence[str], jobs: int) -> None:
    """Run lines that are not done yet."""
    words = ["vlcpctl", "batch", "--jobs", str(jobs), "-q"]
    subprocess.run(words, input="\n".join(lines), text=True, check=True, stdout=subprocess.DEVNULL)


def scores(rows: Path) -> tuple[float, float]:
    """Mean recall on the earlier pairs and on the week."""
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    by_task = {row["task"].rpartition("-")[2]: row["metrics"]["rm"] for row in found}
    return by_task["golden"], by_task["week"]


def main() -> None:
    """Train what is missing, and print the table."""
    args = _arguments()
    streams = write_streams(args.directory)
    batch([line for one in streams for line in one.start_lines()], args.jobs)
    batch([line for one in streams for line in one.model_lines(args.start_steps)], args.jobs)
    batch([one.evaluation(one.root / "start") for one in streams], args.jobs)
    every = list(itertools.product(REPLAYS, QUEUES, args.seeds))
    for one in streams:
        batch([line for how in every for line in one.lines(how, args.steps, args.lr)], args.jobs)
    for one in streams:
        images, size = train_images(one.week), train_images(one.root / "buffer")
        before = scores(one.root / "start.ndjson")
        print(
            f"\n{one.root.name}: a week of {images} images for training, a buffer of {size}; ",
            end="",
        )
        print(f"{args.steps} steps of {BATCH} pairs, lr {args.lr:g}. Before: ", end="")
        print(f"earlier pairs {before[0]:.2f}, week {before[1]:.2f}\n")
        print("| replay | queue | earlier pairs lost | by seed | week after | by seed |")
        print("|---|---|---|---|---|---|")
        for replay, queue in itertools.product(REPLAYS, QUEUES):
            paths = [one.run(replay, queue, seed) for seed in args.seeds]
            found = [scores(path.with_name(f"{path.name}.ndjson")) for path in paths]
            lost = [before[0] - golden for golden, _ in found]
            learned = [week for _, week in found]
            print(f"| {replay} | {queue} | {_shown(lost)} | {_shown(learned)} |")


def _shown(values: Sequence[float]) -> str:
    """The mean with its standard error over seeds, and each value."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    each = " ".join(f"{value:.2f}" for value in values)
    return f"{fmean(values):.2f} ± {error:.2f} | {each}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--start-steps", type=int, default=400)
    parser.add_argument("--lr", type=float, default=3e-4)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

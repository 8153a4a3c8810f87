"""Training with targets against training with the live teacher: seconds, memory, losses.

python recipes/bench/targets.py [DIRECTORY] [--model ViT-B-32 --images 2000 --batch 64 --epochs 3]

A task of drawn images, a teacher, its targets in as many views as there are epochs, and the same
train-step with and without them, in turns, each in a process of its own. With a view for each
epoch both see the same images, so their losses must agree; what distill itself costs is a row too,
since it is paid once for every method and seed that is trained on it. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

TOLERANCE = 1e-6


def main() -> None:
    """Print a row for each way, the ratio, and how far the losses are apart."""
    args = _arguments()
    with tempfile.TemporaryDirectory(dir=args.directory) as name:
        root = Path(name)
        make_inputs(root, args)
        print(f"distill, {args.epochs} views: {seconds(distill(args), root)[0]:8.2f} s")
        found = {way: [] for way in ("live", "targets")}
        for _ in range(args.repeat):
            for way, rows in found.items():
                shutil.rmtree(root / way, ignore_errors=True)
                rows.append(seconds(train(args, way), root))
        for way, rows in found.items():
            spent, trained, peak = (median(column) for column in zip(*rows, strict=True))
            print(f"{way:8} {spent:8.2f} s, training {trained:8.2f} s, peak {peak:8.0f} MB")
        ratio = median(row[1] for row in found["live"]) / median(row[1] for row in found["targets"])
        print(f"live teacher / targets: {ratio:.2f} x the time of training, {args.method}")
        apart = difference(root / "live", root / "targets")
        print(f"losses are apart by {apart:.1e} of their value at most")
        assert apart <= TOLERANCE, f"more than {TOLERANCE}"


def make_inputs(root: Path, args: argparse.Namespace) -> None:
    """Make a stream of two tasks, and a teacher trained on the first for one step."""
    draw = np.random.default_rng(0)
    rows = []
    for number in range(args.images):
        coarse = draw.integers(0, 256, (12, 12, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(coarse).resize((256, 256)).save(file, "JPEG")
        rows.append((file.getvalue(), f"picture {number} of {coarse[0, 0].tolist()}", number % 2))
    images, captions, tasks = zip(*rows, strict=True)
    pq.write_table(pa.table({"image": images, "caption": captions, "t": tasks}), root / "p.parquet")
    run(root, "split", "p.parquet", "-o", "stream", "--by", "column:t", "--holdout", "test=0.01")
    first, _ = sorted((root / "stream").glob("0*"))
    start = ["--method", "seqf", *budget(args), "--model", args.model, "--steps", 1]
    run(root, "train-step", first, "-o", "teacher", *start)


def budget(args: argparse.Namespace) -> list[object]:
    """Options of all runs: the preset of the method's paper, with a small batch."""
    return ["--preset", "modx", "--batch-size", args.batch, "--device", args.device]


def distill(args: argparse.Namespace) -> list[object]:
    """The command line that runs the teacher."""
    line = ["distill", "stream/01-1", "--teacher", "teacher", "-o", "kept", "--preset", "modx"]
    return [*line, "--views", args.epochs, "--device", args.device]


def train(args: argparse.Namespace, way: str) -> list[object]:
    """The command line that trains on the second task."""
    line = ["train-step", "stream/01-1", "-o", way, "--run", "bench", "--previous", "teacher"]
    line += ["--method", args.method, "--epochs", args.epochs, *budget(args)]
    return [*line, *(["--targets", "kept"] if way == "targets" else [])]


def seconds(line: list[object], root: Path) -> tuple[float, float, float]:
    """Seconds of the whole process and of training alone, and peak memory in MB."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--measure", *map(str, line)],
        cwd=root,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    spent = time.perf_counter() - started
    out = root / done.stdout.split("\n")[0] / "checkpoint.json"
    trained = json.loads(out.read_text())["train_seconds"] if out.is_file() else 0.0
    return spent, trained, float(done.stdout.split("\n")[1])


def measure(words: list[str]) -> None:
    """Run a command line in this process, then print its peak resident memory in MB."""
    from vlcpctl.cli import main as program

    sys.argv = ["vlcpctl", *words, "-q"]
    try:
        program()
    except SystemExit as end:
        if end.code:
            raise
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}")


def difference(one: Path, other: Path) -> float:
    """The largest relative difference of the losses of two runs."""
    journals = ((path / "metrics.jsonl").read_text().splitlines() for path in (one, other))
    pairs = [[json.loads(line)["loss"] for line in lines] for lines in journals]
    return max(abs(a - b) / abs(a) for a, b in zip(*pairs, strict=True))


def run(root: Path, *words: object) -> None:
    """Run a command line of vlcpctl quietly."""
    line = [sys.executable, "-m", "vlcpctl", *map(str, words), "-q"]
    subprocess.run(line, cwd=root, check=True, stdout=subprocess.DEVNULL)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--model", default="ViT-B-32")
    parser.add_argument("--method", default="modx")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--device", default="auto")
    return parser.parse_args()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2:])
    else:
        main()

"""What commands take at 10^5, 10^6 and 3 x 10^6 rows, and by extrapolation at 10^8 and 10^9.

Run: python recipes/bench/scale.py [DIRECTORY] [--rows 100000,1000000,3000000]
                                   [--only split,known,...]

The rows are made up as in memory.py: small images, captions of their own. The CPU time and the peak
of memory beyond those of the fewest rows give an exponent between the last two sizes, and bytes per
row; at 10^8 and 10^9 rows stands what these two make of it. Disk is what a command wrote, less
the images. Evaluations have 10^4 to 10^5 rows, and their search alone 10^4 to 6 x 10^4. It compares
all with all, so that its time grows with the square, and they are not extrapolated. A share is the
search of 2,000 queries among 10^5 to 10^6.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import memory
import pyarrow as pa
import pyarrow.parquet as pq
from turns import machine

from vlcpctl.core.console import emit

SIZES = (100_000, 1_000_000, 3_000_000)
LARGE = (10**8, 10**9)
SECONDS_AN_HOUR = 3600


@dataclass(frozen=True)
class Taken:
    """What a command took with so many rows."""

    rows: int
    cpu: float  # seconds
    peak: int  # bytes of anonymous memory
    disk: int  # bytes that it wrote, without images


def main() -> None:
    """Print a table of what was measured, and one of what follows from it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--rows", default="")
    parser.add_argument("--only", default=",".join(KINDS))
    given = parser.parse_args()
    found: dict[str, list[Taken]] = {}
    with tempfile.TemporaryDirectory(dir=given.directory) as name:
        directory = Path(name)
        checkpoint = memory.make_checkpoint(directory)
        emit(machine())
        emit("")
        emit("| command | rows | CPU s | peak MB | disk MB |")
        emit("|---|---|---|---|---|")
        for kind in given.only.split(","):
            usual = OF_FEWER.get(kind, SIZES)
            sizes = [int(size) for size in given.rows.split(",")] if given.rows else usual
            found[kind] = [take(kind, directory, rows, checkpoint) for rows in sizes]
    emit("")
    emit("| command | exponent | " + " | ".join(f"at 10^{len(str(n)) - 1}" for n in LARGE) + " |")
    emit("|---|---|---|---|")
    for kind, taken in found.items():
        if kind in OF_FEWER:
            continue  # of large ones their search is the most, which is quadratic
        exponent = growth([one.rows for one in taken], [one.cpu for one in taken])
        cells = [f"{exponent:.2f}", *(expected(taken, rows) for rows in LARGE)]
        emit(f"| {kind} | {' | '.join(cells)} |")


def take(kind: str, directory: Path, rows: int, checkpoint: Path) -> Taken:
    """Run a command on as many rows, print what it took, and remove what it wrote."""
    command = KINDS[kind](directory, rows, checkpoint)
    weight = memory.weigh(command)
    made = list(directory.glob("*out-*"))
    disk = sum(size_of(path) for path in made)
    for path in made:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    one = Taken(rows, weight.cpu, weight.peak, disk)
    cells = (f"{one.peak / 2**20:.0f}", f"{one.disk / 2**20:.1f}")
    emit(f"| {kind} | {rows:,} | {one.cpu:.1f} | {' | '.join(cells)} |")
    return one


def size_of(path: Path) -> int:
    """The bytes of the files of a path but tars."""
    files = [path] if path.is_file() else path.rglob("*")
    return sum(one.stat().st_size for one in files if one.is_file() and one.suffix != ".tar")


def growth(rows: Sequence[int], values: Sequence[float]) -> float:
    """The exponent of what grows beyond the fewest rows, between the last two sizes."""
    before, whole = (max(value - values[0], 1e-3) for value in values[-2:])
    grown = (rows[-1] - rows[0]) / (rows[-2] - rows[0])
    return math.log(whole / before) / math.log(grown)


def expected(taken: Sequence[Taken], rows: int) -> str:
    """Hours, memory and disk with more rows than were measured."""
    counts = [one.rows for one in taken]
    last, times = taken[-1], rows / counts[-1]
    hours = last.cpu * times ** growth(counts, [one.cpu for one in taken]) / SECONDS_AN_HOUR
    slopes = [
        (value(last) - value(taken[0])) / (counts[-1] - counts[0])
        for value in (lambda one: one.peak, lambda one: one.disk)
    ]
    peak, disk = (max(0.0, slope) * rows / 1e9 for slope in slopes)
    return f"{hours:,.1f} h, {peak:,.1f} GB, {disk:,.1f} GB of disk"


def plain(directory: Path, rows: int, _: Path) -> list[str]:
    """A split into one task, of images that all differ."""
    source = directory / f"pairs-{rows}.parquet"
    if not source.exists():
        write_source(source, rows)
    return whole("split", source, "-o", directory / f"out-{rows}", "--by", "source")


def write_source(path: Path, rows: int) -> None:
    """A Parquet file of pairs; each image has bytes of its own after its end."""
    picture = memory.pairs()[0].image
    schema = pa.schema([("image", pa.binary()), ("caption", pa.string())])
    with pq.ParquetWriter(path, schema) as to:
        for start in range(0, rows, 2000):
            numbers = range(start, min(start + 2000, rows))
            images = [picture + number.to_bytes(8, "little") for number in numbers]
            captions = [memory.CAPTION.format(number) for number in numbers]
            to.write_table(pa.table([images, captions], schema=schema))


def hold_out(directory: Path, rows: int, _: Path) -> list[str]:
    """A split that holds out a tenth by hash."""
    return [*plain(directory, rows, _), "--holdout", "test=0.1"]


def known(directory: Path, rows: int, _: Path) -> list[str]:
    """A split that leaves out the pairs of a task with as many."""
    task = memory.make_task(directory / f"other-{rows}", rows, "train", first=10**8)
    return [*plain(directory, rows, _), "--not", str(task)]


def leaks(directory: Path, rows: int, _: Path) -> list[str]:
    """A split that leaves out images which a test set of as many holds."""
    task = memory.make_task(directory / f"guard-{rows}", rows, "test", first=10**8)
    return [*plain(directory, rows, _), "--not-test-images", str(task)]


def training(negatives: str) -> Callable[[Path, int, Path], list[str]]:
    """The start of training up to its first step: index, order, and which captions are equal."""

    def of(directory: Path, rows: int, checkpoint: Path) -> list[str]:
        return [*memory.train(directory, rows, checkpoint), "--negatives", negatives]

    return of


def evaluated(directory: Path, rows: int, checkpoint: Path) -> list[str]:
    """A whole evaluation, with ranks."""
    task = memory.make_task(directory / f"test-{rows}", rows, "test")
    out = directory / f"out-{rows}.ndjson"
    words = ("eval-retrieval", task, "--checkpoint", checkpoint, "-o", out, "--save-ranks")
    return [*whole(*words, directory / f"out-{rows}.parquet"), "--batch-size", "1024"]


def searched(_: Path, rows: int, __: Path) -> list[str]:
    """Exact search in both directions among as many images and texts of 512 dimensions."""
    return retrieval(rows, "vlcpctl (faiss)")


def share(_: Path, rows: int, __: Path) -> list[str]:
    """The share of a shard: exact ranks of 1,000 queries of each direction among so many."""
    return [*retrieval(rows, "vlcpctl (exact ranks)"), "--queries", "1000"]


def retrieval(rows: int, only: str) -> list[str]:
    """A search of retrieval.py."""
    script = Path(__file__).with_name("retrieval.py")
    sizes = ("--images", str(rows), "--captions", "1")
    return [sys.executable, str(script), *sizes, "--only", only]


def whole(*args: object) -> list[str]:
    """A command line of vlcpctl that runs to its end."""
    return [sys.executable, "-m", "vlcpctl", *map(str, args)]


OF_FEWER = {
    "evaluation": (10_000, 30_000, 100_000),
    "search": (10_000, 30_000, 60_000),
    "share": (100_000, 300_000, 1_000_000),
}
KINDS: dict[str, Callable[[Path, int, Path], list[str]]] = {
    "split": plain,
    "hold-out": hold_out,
    "known": known,
    "leaks": leaks,
    "training": training("all"),
    "distinct": training("distinct"),
    "reservoir": memory.reservoir,
    "evaluation": evaluated,
    "search": searched,
    "share": share,
}


if __name__ == "__main__":
    main()

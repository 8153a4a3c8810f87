"""Time `vlcpctl split` against copying with hashing and against webdataset, and weigh its memory.

Run: python recipes/bench/split.py [DIRECTORY] [--images 20000]
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from turns import machine

GROUP_BYTES = 10_000_000  # of a row group
FEW = 100  # rows that take no time, so that only start-up is measured
REPEATS = 5
SMALL_BYTES, LARGE_BYTES = 3_000, 100_000


def main() -> None:
    """Print one line per measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--images", type=int, default=20_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as name:
        directory = Path(name)
        print(machine())
        against_copy(directory, given.images)
        against_shard_writer(directory, given.images)
        memory(directory, given.images)


def against_copy(directory: Path, images: int) -> None:
    """Large images: split against `cp` of the file and a sha256 over the copy.

    Also against the same with the copy on the disk, as split leaves its files.
    """
    pairs = write_pairs(directory / "large.parquet", images, LARGE_BYTES)
    copy = directory / "copy.parquet"
    split = Split(pairs, directory / "out")
    few, every, rival, synced = by_turns(
        [
            Work(split.few, split.out),
            Work(split.all, split.out),
            Work(lambda: copy_and_hash(pairs, copy), copy),
            Work(lambda: copy_and_hash(pairs, copy, sync=True), copy),
        ],
        megabytes=2 * images * LARGE_BYTES // 10**6,
    )
    print(f"{images} images of {LARGE_BYTES} bytes, without the start of the program:")
    for name, of in (("CPU", Taken.cpu), ("wall", Taken.wall)):
        ours, copied, on_disk = of(every) - of(few), of(rival), of(synced)
        print(
            f"  {name}: split {ours:.2f} s; cp + sha256 {copied:.2f} s: {ours / copied:.2f}x; ",
            end="",
        )
        print(f"with the copy on the disk {on_disk:.2f} s: {ours / on_disk:.2f}x")
    pairs.unlink()


def against_shard_writer(directory: Path, images: int) -> None:
    """Small images: split against a loop around webdataset.ShardWriter that reads the same file.

    The loop runs twice: writing as few fields as possible, and writing those that split writes, for
    which it reads the header of each image.
    """
    pairs = write_pairs(directory / "small.parquet", images, SMALL_BYTES)
    out = directory / "rival"
    split = Split(pairs, directory / "out")

    def loop(facts: str, rows: int) -> Work:
        command = [sys.executable, __file__, "--shard-writer", pairs, out, facts, str(rows)]
        return Work(lambda: run_quietly(list(map(str, command))), out)

    taken = by_turns(
        [
            Work(split.few, split.out),
            Work(split.all, split.out),
            *(loop(facts, rows) for facts in ("fewest", "same") for rows in (FEW, images)),
        ],
        megabytes=2 * images * SMALL_BYTES // 10**6,
    )
    print(f"{images} images of {SMALL_BYTES} bytes, without the start of the programs:")
    for name, of in (("CPU", Taken.cpu), ("wall", Taken.wall)):
        pairs_of = zip(*[iter(map(of, taken))] * 2, strict=True)
        ours, fewest, same = (all_rows - few for few, all_rows in pairs_of)
        print(f"  {name}: split {ours:.2f} s ({ours / images * 1e6:.1f} us each); ", end="")
        print(f"ShardWriter {fewest:.2f} s: {fewest / ours:.1f}x faster; ", end="")
        print(f"with the same facts in its members {same:.2f} s: {same / ours:.1f}x faster")


def memory(directory: Path, images: int) -> None:
    """Peak memory of the process at two sizes of data."""
    peaks = []
    for count in (images, 4 * images):
        pairs = write_pairs(directory / "growing.parquet", count, SMALL_BYTES)
        peaks.append(peak_megabytes(Split(pairs, directory / "out").command()))
        shutil.rmtree(directory / "out")
    print(f"peak memory: {peaks[0]:.0f} MB for {images} pairs, {peaks[1]:.0f} MB for {4 * images}")


def write_pairs(path: Path, images: int, size: int) -> Path:
    """A Parquet file of JPEGs of about `size` bytes, no two alike."""
    start, end = _jpeg_of(size)
    schema = pa.schema([("image", pa.binary()), ("caption", pa.string()), ("label", pa.string())])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        step = GROUP_BYTES // size
        for first in range(0, images, step):
            rows = range(first, min(first + step, images))
            columns = [
                [start + _comment(row) + end for row in rows],
                [f"caption number {row} of a thing on a table beside another" for row in rows],
                [f"class {row % 100}" for row in rows],
            ]
            writer.write_table(pa.table([pa.array(column) for column in columns], schema=schema))
    return path


def _jpeg_of(size: int) -> tuple[bytes, bytes]:
    """The two halves of a JPEG of noise, to put a comment between."""
    side = 16
    while True:
        pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=75)
        if file.tell() >= size:
            return file.getvalue()[:2], file.getvalue()[2:]
        side += 4


def _comment(row: int) -> bytes:
    text = b"%012d" % row
    return b"\xff\xfe" + (len(text) + 2).to_bytes(2, "big") + text


@dataclass(frozen=True)
class Split:
    """The command that is measured, on all rows or on a few, to measure the time of starting."""

    pairs: Path
    out: Path

    def command(self) -> list[str]:
        """The command line."""
        options = ["--by", "iid", "--tasks", "5", "-q"]
        pairs, out = str(self.pairs), str(self.out)
        return [sys.executable, "-m", "vlcpctl", "split", pairs, "-o", out, *options]

    def all(self) -> None:
        """Split every row."""
        run_quietly(self.command())

    def few(self) -> None:
        """Split few rows."""
        run_quietly([*self.command(), "--limit", str(FEW)])


def run_quietly(command: list[str]) -> None:
    """Run a command line that must succeed, without showing its output."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def copy_and_hash(source: Path, copy: Path, *, sync: bool = False) -> None:
    """The least work that any split needs: copy the file and hash it."""
    subprocess.run(["cp", source, copy], check=True)
    with copy.open("rb") as file:
        # sha256sum may be built without the processor's instructions for it
        hashlib.file_digest(file, "sha256")
        if sync:
            os.fsync(file.fileno())


def shard_writer_loop(pairs: Path, out: Path, facts: str, rows: int) -> None:
    """The work with webdataset: read the rows, write jpg, txt and json."""
    import webdataset

    out.mkdir()
    row = 0
    with webdataset.ShardWriter(f"{out}/%06d.tar", maxsize=256e6, verbose=0, mtime=0) as sink:
        for batch in pq.ParquetFile(pairs).iter_batches(1000):
            for one in batch.slice(0, rows - row).to_pylist():
                key, image = f"{row:09d}", one["image"]
                described = {
                    "key": key,
                    "label": one["label"],
                    "sha256": hashlib.sha256(image).hexdigest(),
                }
                if facts == "same":
                    with Image.open(io.BytesIO(image)) as opened:  # the header alone
                        described["width"], described["height"] = opened.size
                    described |= {"source_key": None, "task": "one", "captions": [one["caption"]]}
                sink.write({"__key__": key, "jpg": image, "txt": one["caption"], "json": described})
                row += 1


def peak_megabytes(command: list[str]) -> float:
    """The largest resident size of a process over its life."""
    # A process starts with the peak of the one that started it; this one has torch in memory, so a
    # small one goes between.
    code = (
        "import resource, subprocess, sys; "
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *command], check=True, capture_output=True, text=True
    )
    return int(result.stdout) / 1024


@dataclass(frozen=True)
class Work:
    """Something to time, and what it makes."""

    run: Callable[[], object]
    made: Path


@dataclass(frozen=True)
class Taken:
    """The CPU and wall seconds of each round of a piece of work."""

    rounds: list[tuple[float, float]]

    def cpu(self) -> float:
        """The median of the CPU seconds, those of child processes included."""
        return statistics.median(cpu for cpu, _ in self.rounds)

    def wall(self) -> float:
        """The median of the wall seconds."""
        return statistics.median(wall for _, wall in self.rounds)


def by_turns(works: list[Work], megabytes: int) -> list[Taken]:
    """How long each piece of work took, in turns.

    Before each run the last result is removed, the disk is synced, and free memory is touched.
    """
    found = [Taken([]) for _ in works]
    for _ in range(REPEATS):
        for work, taken in zip(works, found, strict=True):
            os.sync()
            touch_memory(megabytes)
            cpu, wall = cpu_seconds(), time.perf_counter()
            work.run()
            taken.rounds.append((cpu_seconds() - cpu, time.perf_counter() - wall))
            remove(work.made)
    return found


def cpu_seconds() -> float:
    """The CPU seconds of this process and of its finished children."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)


def touch_memory(megabytes: int) -> None:
    """Allocate and free memory in a separate process, so that the guest kernel has pages ready.

    The first touch of a page in a virtual machine costs four times what copying it does, and idle
    pages go back to the host within seconds: the first to write would pay for the rest.
    """
    code = "import mmap, sys; n = int(sys.argv[1]); m = mmap.mmap(-1, n)\n"
    code += "for page in range(0, n, 4096): m[page] = 1"
    subprocess.run([sys.executable, "-c", code, str(megabytes * 10**6)], check=True)


def remove(made: Path) -> None:
    """Remove a file or a directory."""
    if made.is_dir():
        shutil.rmtree(made)
    else:
        made.unlink()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--shard-writer"]:  # the rival in a process of its own
        shard_writer_loop(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
    else:
        main()

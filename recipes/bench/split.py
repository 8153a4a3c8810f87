"""Time `vlcpctl split` against copying with hashing and against webdataset, and weigh its memory.

Run: python recipes/bench/split.py [DIRECTORY] [--images 20000]
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

ROWS_PER_GROUP = 100
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
        against_copy(directory, given.images)
        against_shard_writer(directory, given.images)
        memory(directory, given.images)


def against_copy(directory: Path, images: int) -> None:
    """Large images: split against `cp` of the file and a sha256 over the copy."""
    pairs = write_pairs(directory / "large.parquet", images, LARGE_BYTES)
    copy = directory / "copy.parquet"

    def copy_and_hash() -> None:
        subprocess.run(["cp", pairs, copy], check=True)
        with copy.open(
            "rb"
        ) as file:  # sha256sum may be built without the processor's instructions for it
            hashlib.file_digest(file, "sha256")

    rival = fastest(copy_and_hash, copy)
    remove(copy)
    ours = split_seconds(pairs, directory)
    print(f"{images} images of {LARGE_BYTES} bytes: split {ours:.2f} s, ", end="")
    print(f"cp + sha256 {rival:.2f} s: {ours / rival:.2f}x")
    pairs.unlink()


def against_shard_writer(directory: Path, images: int) -> None:
    """Small images: split against a loop around webdataset.ShardWriter that reads the same file."""
    pairs = write_pairs(directory / "small.parquet", images, SMALL_BYTES)
    rival = shard_writer_seconds(pairs, directory / "rival")
    ours = split_seconds(pairs, directory)
    each, rivals_each = ours / images * 1e6, rival / images * 1e6
    print(
        f"{images} images of {SMALL_BYTES} bytes: split {ours:.2f} s ({each:.1f} us each), ", end=""
    )
    print(f"ShardWriter {rival:.2f} s ({rivals_each:.1f} us each): {rival / ours:.1f}x faster")


def memory(directory: Path, images: int) -> None:
    """Peak memory of the process at two sizes of data."""
    peaks = []
    for count in (images, 4 * images):
        pairs = write_pairs(directory / "growing.parquet", count, SMALL_BYTES)
        peaks.append(peak_megabytes(split_command(pairs, directory / "out")))
        shutil.rmtree(directory / "out")
    print(f"peak memory: {peaks[0]:.0f} MB for {images} pairs, {peaks[1]:.0f} MB for {4 * images}")


def write_pairs(path: Path, images: int, size: int) -> Path:
    """A Parquet file of JPEGs of about `size` bytes, no two alike."""
    start, end = _jpeg_of(size)
    schema = pa.schema([("image", pa.binary()), ("caption", pa.string()), ("label", pa.string())])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for first in range(0, images, ROWS_PER_GROUP):
            rows = range(first, min(first + ROWS_PER_GROUP, images))
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


def split_command(pairs: Path, out: Path) -> list[str]:
    """The command line that is measured."""
    return [
        sys.executable,
        "-m",
        "vlcpctl",
        "split",
        str(pairs),
        "-o",
        str(out),
        "--by",
        "iid",
        "--tasks",
        "5",
        "-q",
    ]


def split_seconds(pairs: Path, directory: Path) -> float:
    """Wall time of a split, its start-up (a dry run) subtracted."""
    out = directory / "out"
    command = split_command(pairs, out)

    start_up = fastest(lambda: run_quietly([*command, "--dry-run"]))
    seconds = fastest(lambda: run_quietly(command), out)
    remove(out)
    return seconds - start_up


def run_quietly(command: list[str]) -> None:
    """Run a command line that must succeed, its result not shown."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def shard_writer_seconds(pairs: Path, out: Path) -> float:
    """The same work with webdataset: read the rows, write jpg, txt and json."""
    import webdataset

    def write() -> None:
        out.mkdir()
        row = 0
        with webdataset.ShardWriter(f"{out}/%06d.tar", maxsize=256e6, verbose=0, mtime=0) as sink:
            for batch in pq.ParquetFile(pairs).iter_batches(1000):
                for one in batch.to_pylist():
                    key = f"{row:09d}"
                    described = {
                        "key": key,
                        "label": one["label"],
                        "sha256": hashlib.sha256(one["image"]).hexdigest(),
                    }
                    sink.write(
                        {
                            "__key__": key,
                            "jpg": one["image"],
                            "txt": one["caption"],
                            "json": described,
                        }
                    )
                    row += 1

    return fastest(write, out)


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


def fastest(work: Callable[[], object], made: Path | None = None) -> float:
    """The least of a few wall times, in seconds: what others do to the machine only ever adds.

    What the last round made is removed, and the disk has caught up, before each.
    """
    times = []
    for _ in range(REPEATS):
        if made is not None:
            remove(made)
            os.sync()
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def remove(made: Path) -> None:
    """A file or a directory, if it is there."""
    if made.is_dir():
        shutil.rmtree(made)
    else:
        made.unlink(missing_ok=True)


if __name__ == "__main__":
    main()

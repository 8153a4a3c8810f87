"""What training and evaluation read of a task in an object store, and how long it takes.

The store is moto's S3 server on this machine, so times say what the cache saves, not how fast a
store is. Run: python recipes/bench/stores.py  (needs 'moto[server]' and s3fs)
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.object_store import Store, object_store
from turns import machine

TRAIN = ("--method", "seqf", "--preset", "tiny", "--batch-size", "16", "--steps", "3", "--quiet")


def main() -> None:
    """Print a table in Markdown."""
    print(f"{machine()}\n")
    print("| command | cache | bytes fetched | requests | seconds |\n|---|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as name, object_store() as store:
        _rows(Path(name), store)


def _rows(root: Path, store: Store) -> None:
    pairs, stream = root / "pairs.parquet", root / "stream"
    _run(store, "sample", "emoji9", "-o", pairs, "--limit", 200)
    how = ("--by", "all:x", "--shard-size", "1MB")
    _run(store, "split", pairs, "-o", stream, *how)
    (task,) = (path for path in stream.iterdir() if path.is_dir())
    size = sum(path.stat().st_size for path in task.iterdir())
    url, source = store.put(task, "task"), store.put(pairs, "pairs.parquet")
    sizes = f"the task {size / 1e6:.1f} MB, the pairs {pairs.stat().st_size / 1e6:.1f} MB"
    print(f"| (size) | {sizes} | | | |")
    work = ("train-step", "eval-retrieval", "split")
    for place, cache in (
        ((task, task, pairs), None),
        ((url, url, source), "empty"),
        ((url, url, source), "warm"),
        ((url, url, source), "1 MB"),
    ):
        more = () if cache is None else ("--cache", root / f"cache-{cache == '1 MB'}")
        more += ("--cache-size", "1MB") if cache == "1 MB" else ()
        number = f"{cache}"
        lines = (
            ("train-step", place[0], "-o", root / f"k{number}", *TRAIN),
            (
                "eval-retrieval",
                place[1],
                "--checkpoint",
                root / f"k{number}",
                "-q",
                "-o",
                root / f"r{number}",
            ),
            ("split", place[2], "-o", root / f"s{number}", *how, "-q"),
        )
        for name, words in zip(work, lines, strict=True):
            store.sent = store.requests = 0
            start = time.perf_counter()
            _run(store, *words, *more)
            seconds = time.perf_counter() - start
            label = cache or "(local files)"
            sent = f"{store.sent / 1e6:.1f} MB | {store.requests}"
            print(f"| `{name}` | {label} | {sent} | {seconds:.1f} |", flush=True)


def _run(store: Store, *words: object) -> None:
    line = [sys.executable, "-m", "vlcpctl", *map(str, words)]
    subprocess.run(line, check=True, env={**os.environ, **store.environment()})


if __name__ == "__main__":
    main()

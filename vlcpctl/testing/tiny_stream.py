"""Tiny real tasks and streams, made through the writer that `vlcpctl split` uses."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from vlcpctl.data.tasks.facts import TaskSummary, slug, stream_content, write_task_manifest
from vlcpctl.data.tasks.samples import Pair, identify
from vlcpctl.data.tasks.tars import Appender, SplitWriter, TarWriter
from vlcpctl.files.manifest import write_manifest

COLOURS = ("red", "green", "blue", "yellow", "purple", "grey", "orange", "black")


def make_image(number: int, size: int = 24, kind: str = "PNG") -> bytes:
    """A picture of one colour with some noise, different for every number."""
    generator = np.random.default_rng(number)
    colour = generator.integers(0, 256, 3)
    pixels = np.clip(colour + generator.integers(-20, 21, (size, size, 3)), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def make_pair(
    number: int, *, captions: int = 1, labels: int = 3, size: int = 24, kind: str = "PNG"
) -> Pair:
    """Pair number so-and-so; its label is class-(number mod labels), its captions name a colour."""
    texts = [
        f"a {COLOURS[number % len(COLOURS)]} thing number {number}, seen {view}"
        for view in range(captions)
    ]
    label = f"class-{number % labels}" if labels else None
    image = make_image(number, size, kind)
    return Pair(number, f"{number:06d}", image, texts, label, None, None)


def repeating_pair(number: int) -> Pair:
    """Pair `number` with one of seven captions, which it shares with others."""
    return make_pair(number)._replace(captions=[f"thing {number % 7}"])


def make_task(
    directory: Path,
    n: int = 8,
    *,
    name: str = "tiny",
    step: int = 0,
    tasks_in_stream: int = 1,
    stream: str | None = None,
    splits: Mapping[str, int] | None = None,
    first: int = 0,
    pair: Callable[[int], Pair] = make_pair,
    shard_bytes: int = 256_000_000,
) -> Path:
    """A task of `n` train images at `directory` (or as many per split as `splits` says); its path.

    Images are numbered from `first`, so that tasks with disjoint numbers share none.
    """
    task = _write(directory, name, splits or {"train": n}, first, pair, shard_bytes)
    _finish(
        directory, task, step, {"tasks_in_stream": tasks_in_stream, "stream": stream, "inputs": []}
    )
    return directory


def make_stream(
    directory: Path,
    tasks: int = 2,
    n: int = 8,
    *,
    test: int = 4,
    pair: Callable[[int], Pair] = make_pair,
) -> Path:
    """A stream of tasks with `n` train and `test` test images each, all different; its path."""
    summaries = []
    for step in range(tasks):
        splits = {"train": n, "test": test} if test else {"train": n}
        place = directory / slug(step, f"part {step}")
        summaries.append(
            _write(place, f"part {step}", splits, step * (n + test), pair, 256_000_000)
        )
    content = stream_content(summaries)
    for step, task in enumerate(summaries):
        more = {"tasks_in_stream": tasks, "stream": content, "inputs": []}
        _finish(directory / slug(step, task.name), task, step, more)
    entries = [
        {
            "path": slug(step, task.name),
            "name": task.name,
            "content": task.content,
            "splits": task.counts(),
        }
        for step, task in enumerate(summaries)
    ]
    body = {
        "name": directory.name,
        "rule": {"by": "source"},
        "seed": 0,
        "tasks": entries,
        "totals": {},
    }
    write_manifest(directory, "stream", {"tiny": True}, content, body)
    return directory


def _write(
    directory: Path,
    name: str,
    splits: Mapping[str, int],
    first: int,
    pair: Callable[[int], Pair],
    shard_bytes: int,
) -> TaskSummary:
    directory.mkdir(parents=True)
    written, number = {}, first
    labels: set[str | None] = set()
    for split, count in splits.items():
        writer = SplitWriter(split, name, TarWriter(directory, split, Appender(), shard_bytes))
        samples = [identify(pair(number + place)) for place in range(count)]
        writer.extend(samples)
        labels.update(sample.label for sample in samples)
        number += count
        written[split] = writer.close()
    return TaskSummary(name, written, sorted(label for label in labels if label is not None))


def _finish(directory: Path, task: TaskSummary, step: int, more: dict[str, object]) -> None:
    write_task_manifest(directory, task, {"tiny": True}, step=step, more=dict(more))

"""The pairs of tasks, one after another, with the bytes of their images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from vlcpctl.core.errors import BadInput
from vlcpctl.data.images.header import read_header
from vlcpctl.data.tasks.index import SPLITS, index_batches, schema_with
from vlcpctl.data.tasks.task import Task

_ROWS_AT_ONCE = 1 << 10


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportedPair:
    """An image with its captions and everything that the index records of it."""

    key: str
    source_key: str | None
    split: str
    task: str  # the name of the task
    captions: list[str]
    label: str | None
    width: int  # pixels
    height: int
    sha256: str  # of the image file
    kind: str  # jpg, png or webp
    image: bytes  # the file, unchanged
    kept: dict[str, list[str]]  # columns of the sources that the index kept


@dataclass(frozen=True)
class Selection:
    """The splits of some tasks, of which each has at least one image."""

    tasks: tuple[Task, ...]
    splits: tuple[str, ...]

    @property
    def labels(self) -> list[str]:
        """The labels of all tasks, sorted."""
        return sorted({label for task in self.tasks for label in task.manifest.labels})

    @property
    def kept_columns(self) -> list[str]:
        """The columns that any of the tasks kept from its sources, in order."""
        return list(dict.fromkeys(name for task in self.tasks for name in task.kept_columns))

    def count(self, what: str, split: str) -> int:
        """The number of `images`, `captions` or `bytes` in a split of all tasks."""
        found = (task.manifest.splits.get(split) for task in self.tasks)
        return sum(getattr(one, what) for one in found if one is not None)

    def total(self, what: str) -> int:
        """The number of `images`, `captions` or `bytes` in all selected splits."""
        return sum(self.count(what, split) for split in self.splits)

    def pairs(self) -> Iterator[ExportedPair]:
        """Yield the pairs split by split, in the order of the tasks and of their indexes.

        Raises BadInput if a task is damaged.
        """
        for split in self.splits:
            for task in self.tasks:
                if task.counts.get(split):
                    yield from _pairs_of(task, split)


def select(tasks: Sequence[Task], splits: Sequence[str]) -> Selection:
    """The chosen splits of tasks; all splits with images if none is chosen.

    Raises BadInput if a chosen split has no images in any task, or there are no images at all.
    """
    filled = {name for task in tasks for name, count in task.counts.items() if count}
    for name in splits:
        if name not in filled:
            known = ", ".join(one for one in SPLITS if one in filled) or "none"
            where = ", ".join(str(task.path) for task in tasks)
            raise BadInput(f"{where} has no images in split {name!r} (it has: {known})")
    if not filled:
        raise BadInput(f"{tasks[0].path} has no images")
    chosen = tuple(one for one in SPLITS if one in filled and (one in splits or not splits))
    return Selection(tuple(tasks), chosen)


def _pairs_of(task: Task, split: str) -> Iterator[ExportedPair]:
    opened = task.split(split)
    kept, row = task.kept_columns, 0
    for batch in _small(index_batches(opened.path, schema_with(kept))):
        for values in batch.to_pylist():
            image = opened.image(row)
            yield ExportedPair(
                key=values["key"],
                source_key=values["source_key"],
                split=split,
                task=values["task"],
                captions=values["captions"],
                label=values["label"],
                width=values["width"],
                height=values["height"],
                sha256=values["sha256"],
                kind=read_header(image).kind,
                image=image,
                kept={name: values[name] for name in kept},
            )
            row += 1


def _small(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in smaller batches: as Python objects they take ten times the memory."""
    for batch in batches:
        for start in range(0, len(batch), _ROWS_AT_ONCE):
            yield batch.slice(start, _ROWS_AT_ONCE)

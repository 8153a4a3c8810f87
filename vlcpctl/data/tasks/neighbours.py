"""The other tasks of a task's stream, as far as they are still beside it, and pairs they share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vlcpctl.core.errors import BadInput
from vlcpctl.data.tasks.facts import read_stream, read_task
from vlcpctl.data.tasks.index import read_keys
from vlcpctl.data.tasks.keys import Keys
from vlcpctl.data.tasks.task import Task
from vlcpctl.files.manifest import MANIFESTS

TRAIN = "train"


@dataclass(frozen=True)
class StreamEntry:
    """A task as its stream lists it; the directory may have been deleted since."""

    path: Path
    ids: tuple[str, ...]  # as `Task.ids`

    @property
    def slug(self) -> str:
        """The name of its directory, such as 02-animals-nature."""
        return self.path.name


def stream_entries(task: Task) -> list[StreamEntry]:
    """All tasks of the task's stream, in order; [] if its directory is not inside the stream."""
    directory = task.path.resolve().parent
    if not (directory / MANIFESTS["stream"]).is_file():
        return []
    try:
        manifest = read_stream(directory)
    except BadInput:  # it only helps to find mistakes: not needed to train
        return []
    if manifest.id != task.manifest.stream:
        return []
    found = []
    for one in manifest.tasks:
        ids = one.id or one.content, one.content
        if manifest.is_rewritten and not one.id:  # version 0.3 did not record it here
            with suppress(BadInput):
                ids = read_task(directory / one.path).id, one.content
        found.append(StreamEntry(directory / one.path, ids))
    return found


@dataclass(frozen=True)
class SharedPairs:
    """Training pairs that are also in a split for evaluation."""

    task: str  # whose split it is
    split: str
    count: int
    example: str  # a key


def shared_with_evaluation(keys: Keys, task: Task) -> Iterator[SharedPairs]:
    """Each split for evaluation, of the task or of its stream, that has some of the `keys`.

    Tasks of the stream that are no longer there are left out. Raises BadInput if an index that is
    there cannot be read.
    """
    own = task.path.resolve()
    directories = {own: None, **{entry.path: None for entry in stream_entries(task)}}
    for directory in directories:
        for index in sorted(directory.glob("*.parquet")):
            if index.stem == TRAIN:
                continue
            others = read_keys(index)
            found = np.flatnonzero(others.among(keys))
            if len(found):
                yield SharedPairs(directory.name, index.stem, len(found), others[int(found[0])])

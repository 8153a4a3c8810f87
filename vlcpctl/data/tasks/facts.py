"""What task.json and stream.json record, as typed fields.

docs/reference/manifests.md is made from the texts below the fields.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from vlcpctl.core.words import printable
from vlcpctl.data.tasks.index import SPLITS, is_own_column
from vlcpctl.files.digests import FileDigest
from vlcpctl.files.inputs import MOST_TASKS
from vlcpctl.files.manifest import Manifest, manifest_as

Count = Annotated[int, Meta(ge=0)]
Step = Annotated[int, Meta(ge=0, lt=MOST_TASKS)]


def is_file_name(name: str) -> bool:
    """Whether a name from an untrusted file is safe as one component of a path.

    >>> is_file_name("train-000000.tar"), is_file_name("../x"), is_file_name("")
    (True, False, False)
    """
    usable = name not in {"", ".", ".."} and "/" not in name and "\\" not in name
    return usable and printable(name) == name and len(os.fsencode(name)) <= 255


@dataclass(frozen=True, kw_only=True)
class SplitManifest:
    """A split of a task: its files and what is in them."""

    images: Count
    """Number of images."""
    captions: Count
    """Number of captions."""
    shards: tuple[str, ...]
    """Names of the tars."""
    bytes: Count
    """Size of the tars; of a split that was made in place, of its images."""
    content: str
    """Content id of the samples."""
    id: str | UnsetType = UNSET
    """Content id of the samples at first. Only if `forget` has removed some."""
    index: FileDigest
    """Size and digest of the Parquet index, `NAME.parquet`."""
    rows: FileDigest
    """Size and digest of the file of rows, which makes the index quick to read."""
    shard_bytes: tuple[Count, ...]
    """Size of each tar."""

    def __post_init__(self) -> None:
        for shard in self.shards:
            if not is_file_name(shard):
                raise ValueError(f"shard {shard!r:.80} is not the name of a file")
        if len(self.shard_bytes) != len(self.shards):
            raise ValueError("shard_bytes does not have a size for each shard")


@dataclass(frozen=True, kw_only=True)
class StoredFeatures:
    """The features that are stored with the pairs of a buffer."""

    width: int
    dtype: str
    content: str


@dataclass(frozen=True, kw_only=True)
class BufferManifest:
    """What a replay buffer records besides what every task does."""

    policy: str
    """Rule that chose the pairs."""
    variant: str
    """`paper` or `ctp`."""
    size: int | str
    """Size as it was given."""
    of: int | None
    """`--of`: what a percentage refers to."""
    kind: str
    """Whether the size is a count, a share, or a number to add."""
    count: int | None
    """Size as a number of images."""
    share: float | None
    """Size as a share."""
    seed: int
    """Seed of random choices."""
    checkpoint: str | None
    """Content id of the model that computed the features."""
    seen: dict[str, Count]
    """Number of images of each task so far, by the content id that it was made with."""
    items: dict[str, Count]
    """Number of images in the buffer, by task."""
    shard_rows: dict[str, Count]
    """Number of samples in each tar, evicted ones included."""
    features: StoredFeatures | None
    """Width, type and content id of stored features; null without."""


@dataclass(frozen=True, kw_only=True)
class TaskManifest(Manifest):
    """A task of a stream, made by `split`, or a replay buffer, made by `buffer`."""

    name: str
    """Name of the task; `buffer` for a buffer."""
    slug: str
    """Name of its directory."""
    step: Step | None = None
    """Position in the stream, from 0; null for a buffer."""
    tasks_in_stream: Annotated[int, Meta(ge=1, le=MOST_TASKS)] | None = None
    """Number of tasks in the stream."""
    stream: str | None = None
    """Content id of the stream."""
    splits: dict[str, SplitManifest]
    """Files of each split, by its name."""
    labels: tuple[str, ...] = ()
    """Class labels that occur, sorted."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Number of pairs left out, by reason."""
    kept_columns: tuple[str, ...] = ()
    """Columns kept from the sources. Only with `--keep-columns`."""
    in_place: bool = False
    """Whether its tars are links to those of others, which stay as they are. Only with
    `split --in-place`."""
    inputs: tuple[Any, ...] = ()
    """What it was made from: of a file of data its name, size, digest (`xxh3_128`) and content id,
    else a content id."""
    buffer: BufferManifest | None = None
    """Choice and history of the pairs. Only of buffers."""
    warnings: tuple[str, ...] = ()
    """Warnings about what it continued from. Only if there were any."""

    def __post_init__(self) -> None:
        for split in self.splits:
            if split not in SPLITS:
                raise ValueError(f"unknown split {split!r:.80}")
        if not is_file_name(self.slug):
            raise ValueError(f"slug {self.slug!r:.80} is not the name of a directory")
        for name in self.kept_columns:
            if is_own_column(name) or self.kept_columns.count(name) > 1:
                raise ValueError(f"kept_columns has {name!r:.80} twice, or it is the index's own")


@dataclass(frozen=True, kw_only=True)
class SplitCounts:
    """How much a split has."""

    images: Count
    """Number of images."""
    captions: Count
    """Number of captions."""
    bytes: Count
    """Size of the tars; of a split that was made in place, of its images."""


@dataclass(frozen=True, kw_only=True)
class StreamTask:
    """A task as its stream lists it."""

    path: str
    """Directory of the task."""
    name: str
    """Name of the task."""
    content: str
    """Content id of the task."""
    id: str = ""
    """Content id that it was made with. Only if `forget` has rewritten it since."""
    splits: dict[str, SplitCounts]
    """Images, captions and bytes of each split."""

    def __post_init__(self) -> None:
        if not is_file_name(self.path):
            raise ValueError(f"path {self.path!r:.80} is not a directory in the stream")


@dataclass(frozen=True, kw_only=True)
class StreamManifest(Manifest):
    """A stream of tasks, made by `split`."""

    name: str
    """Name of the stream."""
    rule: Mapping[str, Any]
    """How pairs were assigned to tasks: `by`, `labels_from`, `tasks`, `order`, `holdout`."""
    seed: int
    """Seed of random choices."""
    kept_columns: tuple[str, ...] = ()
    """Columns kept from the sources. Only with `--keep-columns`."""
    in_place: bool = False
    """Whether its images stay in the tars of the sources. Only with `split --in-place`."""
    tasks: Annotated[tuple[StreamTask, ...], Meta(max_length=MOST_TASKS)]
    """Its tasks, in order."""
    totals: dict[str, SplitCounts]
    """Images, captions and bytes of each split, summed over the tasks."""
    read: int = 0
    """Number of pairs read."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Number of pairs left out, by reason."""
    left_out: dict[str, Any] = field(default_factory=dict)
    """Number of pairs that were left out: `deleted` by request and `known` by task with `--not`,
    `leaked` by task with `--not-test-images`. Only with these options."""
    inputs: tuple[Any, ...] = ()
    """What it was made from: name, size, digest (`xxh3_128`) and content id of each file of
    data."""


def read_task(path: Path) -> TaskManifest:
    """The manifest of a task or buffer. Raises BadInput if there is none, or it has changed.

    The files that it lists are not read.
    """
    return manifest_as(path, "task", TaskManifest)


def read_stream(path: Path) -> StreamManifest:
    """The manifest of a stream. Raises BadInput if there is none, or it has changed.

    The manifests of its tasks are not read.
    """
    return manifest_as(path, "stream", StreamManifest)

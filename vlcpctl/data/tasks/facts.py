"""What task.json, stream.json and export.json record, as typed fields, and how it is written.

docs/reference/manifests.md is made from the texts below the fields.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType, to_builtins

from vlcpctl.core.words import printable
from vlcpctl.data.tasks.index import SPLITS, is_own_column, rows_path
from vlcpctl.files.digests import FileDigest, digests_of
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import MOST_TASKS
from vlcpctl.files.manifest import MANIFESTS, Manifest, manifest_as, write_manifest

EXPORT = "export"
EXPORT_MANIFEST = MANIFESTS[EXPORT]  # in .vlcpctl/, where other programs do not look
CARD = "README.md"  # of some forms of export; no change of it is damage: people fill it in
CARD_DIGEST = "card"  # the field with its digest, by which `forget` sees that it was filled in
_SLUG_LENGTH = 40

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


@dataclass(frozen=True, kw_only=True)
class ExportedSplit:
    """How much of a split was exported."""

    images: int
    """Number of images."""
    captions: int
    """Number of captions."""


@dataclass(frozen=True, kw_only=True)
class ExportManifest(Manifest):
    """A data set or a model for other programs, made by `export`."""

    to: str
    """Its form: `clip-benchmark`, `hf`, `hf-model` or `onnx`."""
    inputs: tuple[str, ...]
    """Content ids of the tasks, or of the checkpoint."""
    splits: dict[str, ExportedSplit] = field(default_factory=dict)
    """What was exported of each split. Only of a data set."""
    run: str | None = None
    """Name of the run. Only of a model."""
    method: str | None = None
    """Name of the method. Only of a model."""
    step: int | None = None
    """Step of the last task in the run. Only of a model."""
    seed: int | None = None
    """Seed of the run. Only of a model."""
    tasks: tuple[str, ...] = ()
    """Content ids of the tasks that it was trained on. Only of a model."""
    card: FileDigest | None = None
    """Size and digest of `README.md` as it was written. Only of a data set."""
    digests: dict[str, FileDigest]
    """Size and digest of every file but `README.md`, which people fill in."""


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


@dataclass
class TaskSummary:
    """A finished task, before its position in the stream is known."""

    name: str
    splits: dict[str, SplitManifest]
    labels: list[str] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)

    @property
    def content(self) -> str:
        """The content id of the task's data."""
        return content_id(
            {
                "name": self.name,
                "splits": {name: split.content for name, split in self.splits.items()},
            }
        )

    def counts(self) -> dict[str, dict[str, int]]:
        """Images, captions and bytes per split, for the stream's manifest."""
        kept = ("images", "captions", "bytes")
        return {
            name: {field: getattr(split, field) for field in kept}
            for name, split in self.splits.items()
        }


def file_facts(directory: Path, split: str, shards: Sequence[str]) -> dict[str, Any]:
    """What is recorded of a split's files: digests of index and file of rows, size of each tar.

    The images in a tar are verified by their sha256, which the index has.
    """
    index = f"{split}.parquet"
    rows = rows_path(Path(index)).name
    digests = digests_of(directory, [index, rows])
    return {
        "index": digests[index],
        "rows": digests[rows],
        "shard_bytes": [(directory / shard).stat().st_size for shard in shards],
    }


def content_with(content: str, features: StoredFeatures | None) -> str:
    """The content id of a task, including the features stored with it, if any."""
    if features is None:
        return content
    return content_id({"task": content, "features": features.content})


def digits_for(tasks: int) -> int:
    """How many digits number the tasks of a stream so that their names sort: at least two.

    >>> digits_for(3), digits_for(100), digits_for(101)
    (2, 2, 3)
    """
    return max(2, len(str(tasks - 1)))


def slug(step: int, name: str, digits: int = 2) -> str:
    """A directory name: the position in the stream, and the task's name in safe characters.

    >>> slug(2, "Animals & Nature"), slug(0, "food/health"), slug(7, "week", digits=3)
    ('02-animals-nature', '00-food-health', '007-week')
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:_SLUG_LENGTH].strip("-")
    return f"{step:0{digits}d}-{words or 'task'}"


def stream_content(tasks: list[TaskSummary]) -> str:
    """The content id of a stream, which depends on its tasks and their order."""
    return content_id({"tasks": [task.content for task in tasks]})


def write_task_manifest(
    directory: Path,
    task: TaskSummary,
    identity: dict[str, Any],
    *,
    step: int | None,
    more: dict[str, Any],
) -> None:
    """Write task.json; `more` has the fields that only a stream's task, or only a buffer, has.

    The directory has the name that it has in the stream: it is the task's slug.
    """
    body = {
        "name": task.name,
        "slug": directory.name,
        "step": step,
        "splits": to_builtins(task.splits),
        "labels": task.labels,
        "skipped": task.skipped,
        **more,
    }
    write_manifest(directory, "task", identity, task.content, body)

"""The pairs of a task for code of one's own: in order, or as a pipeline of webdataset."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload
from urllib.parse import urlparse

from PIL import Image

from vlcpctl.core.errors import BadInput
from vlcpctl.data.images.transforms import decode_image
from vlcpctl.data.tasks.task import Split, open_task
from vlcpctl.files.inputs import parse_json

if TYPE_CHECKING:
    import pyarrow as pa
    from webdataset import WebDataset

_COLUMNS = ("key", "source_key", "label", "task", "width", "height", "sha256")
_IMAGES = ("jpg", "png", "webp")  # the member of a sample that is its image


class Pair(NamedTuple):
    """A decoded image, its captions, and its other columns in the index, such as key and label."""

    image: Image.Image
    captions: list[str]
    columns: dict[str, Any]


class Pairs(Sequence[Pair]):
    """The pairs of a split, read and decoded when they are asked for: a data set for DataLoader.

    `kept` are columns that `split` has kept. Raises BadInput for a pair that cannot be read.
    """

    def __init__(self, split: Split, kept: Sequence[str]) -> None:
        self._split, self._kept = split, kept

    def __reduce__(self) -> tuple[type[Pairs], tuple[Any, ...]]:
        return Pairs, (self._split, self._kept)  # which opens it again in a worker process

    def __len__(self) -> int:
        return len(self._split)

    @overload
    def __getitem__(self, row: int) -> Pair: ...

    @overload
    def __getitem__(self, row: slice) -> list[Pair]: ...

    def __getitem__(self, row: int | slice) -> Pair | list[Pair]:
        if isinstance(row, slice):
            return [self[one] for one in range(len(self))[row]]
        row = range(len(self))[row]
        (columns,) = self._columns.slice(row, 1).to_pylist()
        data = self._split.image(row)
        with self._split.naming(row):
            image = decode_image(data)
        return Pair(image, self._split.captions(row), columns)

    @cached_property
    def _columns(self) -> pa.Table:
        return self._split.columns([*_COLUMNS, *self._kept])


class Task:
    """A task, or a buffer, in its directory. Raises BadInput if it is neither, or was changed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._task = open_task(self.path)

    def __repr__(self) -> str:
        return f"Task({str(self.path)!r})"

    @property
    def name(self) -> str:
        """The name of the task."""
        return self._task.name

    @property
    def splits(self) -> dict[str, int]:
        """The number of images in each split."""
        return self._task.counts

    def pairs(self, split: str = "train") -> Pairs:
        """The pairs of a split. Raises BadInput if it has no images."""
        self._task.require(split)
        return Pairs(self._task.split(split), self._task.kept_columns)

    def webdataset(self, split: str = "train", **options: Any) -> WebDataset:
        """The pairs of a split as a WebDataset, for training loops of one's own.

        It gives each as a `Pair`, without the columns that `split` has kept: tars do not have them.
        `options` are those of WebDataset, such as shardshuffle. Raises BadInput as `pairs` does,
        and for a task that was made in place.
        """
        from webdataset import WebDataset

        self._task.require(split)
        if self._task.manifest.in_place:
            raise BadInput(
                f"{self.path} has no tars of its own: its images are in those of its sources; use "
                "pairs(), or give the sources to webdataset"
            )
        keys, listed = self._task.split(split).keys, self._task.manifest.splits[split]
        tars = [os.path.abspath(self.path / shard) for shard in listed.shards]
        for tar in tars:
            if urlparse(tar).path != tar:
                raise BadInput(f"webdataset takes {tar} for a URL; use a path without ?, # and ;")
        found = WebDataset(tars, **{"shardshuffle": False, **options})
        if self._task.manifest.buffer is not None:  # its tars also have pairs that were evicted
            found = found.select(partial(_is_among, frozenset(keys)))
        return found.map(_pair)


def _is_among(keys: Collection[str], sample: dict[str, Any]) -> bool:
    return sample["__key__"] in keys


def _pair(sample: dict[str, Any]) -> Pair:
    """The pair of a sample, of whose members no others are read: webdataset would load pickles."""
    columns = parse_json(sample["json"])
    image = next(sample[kind] for kind in _IMAGES if kind in sample)
    return Pair(
        decode_image(image, f"the image of {sample['__key__']}"), columns.pop("captions"), columns
    )

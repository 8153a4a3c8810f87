"""Batches of images with the evaluation transform, with or without labels; or augmented.

Images are decoded in this process or in workers; undecodable labelled images are reported. What
several checkpoints evaluate is decoded once, as far as its views fit into a share of memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Tensor
from torch.utils.data import Dataset

from vlcpctl.core.errors import BadInput
from vlcpctl.core.seeds import generator
from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.classification.labelled_images import Flaw, LabelledImages
from vlcpctl.data.images.transforms import decode_image, eval_view, train_view
from vlcpctl.data.loading.workers import read_in_order
from vlcpctl.data.tasks.task import Split

Item = TypeVar("Item")


@dataclass(frozen=True)
class LabelledBatch:
    """The B images of a batch that could be decoded, and the flaws of the others."""

    pixels: Tensor  # (B, H, W, 3) uint8
    rows: NDArray[np.int64]  # (B,) which images they are
    flaws: list[Flaw]

    @property
    def size(self) -> int:
        """The number of images read, including those that could not be decoded."""
        return len(self.rows) + len(self.flaws)

    def moved(self, move: Callable[[Tensor], Tensor]) -> LabelledBatch:
        """The batch with `move` applied to its images."""
        return replace(self, pixels=move(self.pixels))

    def pin_memory(self) -> LabelledBatch:
        """The batch in pinned memory, which a GPU can copy from while the CPU does other work."""
        return self.moved(Tensor.pin_memory)


@dataclass(frozen=True)
class Kept:
    """That the batches of these images are kept in memory: their name, and how many bytes fit."""

    name: str
    room: int


class Views(Dataset[Item]):
    """Item k is batch k of the views of some images; see `read_views`."""

    kept: Kept | None = None

    def __len__(self) -> int:
        raise NotImplementedError


@dataclass
class LabelledBatches(Views[LabelledBatch]):
    """Item k is batch k of the first `count` images."""

    images: LabelledImages
    count: int
    transform: ImageTransform
    batch_size: int

    def __len__(self) -> int:
        return math.ceil(self.count / self.batch_size)

    def __getitem__(self, number: int) -> LabelledBatch:
        first = number * self.batch_size
        rows = range(first, min(first + self.batch_size, self.count))
        return viewed(self.images, rows, self.transform.image_size, self._view)

    def _view(self, image: Image, _row: int) -> np.ndarray:
        return eval_view(image, self.transform)


@dataclass
class AugmentedBatches(Views[LabelledBatch]):
    """Item k is batch k of the first `count` images, augmented, epoch after epoch.

    Each epoch shows every image once, in an order drawn from the seed and the epoch; a view depends
    on the seed, the image's key and the epoch. So neither depends on the process that reads it.
    """

    images: LabelledImages
    count: int
    transform: ImageTransform
    batch_size: int
    epochs: int
    seed: int
    _order: tuple[int, NDArray[np.int64]] | None = field(default=None, init=False, repr=False)

    @property
    def per_epoch(self) -> int:
        """The number of batches of an epoch."""
        return math.ceil(self.count / self.batch_size)

    def __len__(self) -> int:
        return self.epochs * self.per_epoch

    def __getitem__(self, number: int) -> LabelledBatch:
        epoch, place = divmod(number, self.per_epoch)
        rows = self._ordered(epoch)[place * self.batch_size :][: self.batch_size].tolist()
        view = partial(self._view, epoch)
        return viewed(self.images, rows, self.transform.image_size, view)

    def _ordered(self, epoch: int) -> NDArray[np.int64]:
        """(N,) the images of an epoch in its order, drawn once for all its batches."""
        if self._order is None or self._order[0] != epoch:
            order = generator(self.seed, "probe", epoch).permutation(self.count)
            self._order = epoch, order
        return self._order[1]

    def _view(self, epoch: int, image: Image, row: int) -> np.ndarray:
        return train_view(image, self.transform, self.seed, self.images.key(row), epoch)


def viewed(
    images: LabelledImages,
    rows: Sequence[int],
    size: int,
    view: Callable[[Image, int], np.ndarray],
) -> LabelledBatch:
    """The batch of the images at `rows`; `view` makes (size, size, 3) bytes of an image at a row.

    An image that cannot be decoded is a flaw.
    """
    kept, views, flaws = [], [np.empty((0, size, size, 3), dtype=np.uint8)], []
    for row in rows:
        data = images.image(row)
        try:
            views.append(view(decode_image(data), row)[None])
            kept.append(row)
        except BadInput as error:
            flaws.append(Flaw(images.name(row), str(error)))
    pixels = torch.from_numpy(np.concatenate(views))
    return LabelledBatch(pixels, np.array(kept, dtype=np.int64), flaws)


@dataclass
class EvalImages(Views[Tensor]):
    """Item k is batch k of the images at `rows`: (B, H, W, 3) uint8.

    Raises BadInput if an image cannot be read or decoded.
    """

    split: Split
    rows: np.ndarray  # (N,)
    transform: ImageTransform
    batch_size: int

    def __len__(self) -> int:
        return math.ceil(len(self.rows) / self.batch_size)

    def __getitem__(self, number: int) -> Tensor:
        rows = self.rows[number * self.batch_size :][: self.batch_size].tolist()
        self.split.fetch(rows)
        return torch.from_numpy(np.stack([self._view(row) for row in rows]))

    def _view(self, row: int) -> np.ndarray:
        data = self.split.image(row)
        with self.split.naming(row):
            return eval_view(decode_image(data), self.transform)


_batches: dict[tuple[str, int], Any] = {}  # that this process keeps, by name and number
_bytes = [0]  # that they take


def read_views(
    views: Views[Item], workers: int, numbers: Sequence[int] | None = None, *, pins: bool = False
) -> Iterator[Item]:
    """The batches with these numbers (None: all), see `read_in_order`; kept ones are not read.

    The number of workers changes only the speed. Raises BadInput if an image cannot be read.
    """
    kept, numbers = views.kept, range(len(views)) if numbers is None else numbers
    if kept is None:
        yield from read_in_order(views, numbers, workers, pins=pins)
        return
    missing = [number for number in numbers if (kept.name, number) not in _batches]
    fresh = read_in_order(views, missing, workers, pins=pins)
    for number in numbers:
        batch = _batches.get((kept.name, number))
        if batch is None:
            batch = next(fresh)
            size = cast("Tensor", getattr(batch, "pixels", batch)).nbytes
            if _bytes[0] + size <= kept.room:
                _batches[kept.name, number] = batch
                _bytes[0] += size
        yield batch
    next(fresh, None)  # lets it end its workers


def drop_kept() -> None:
    """Drop the batches that this process keeps."""
    _batches.clear()
    _bytes[0] = 0

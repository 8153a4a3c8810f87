"""Labelled images as a model takes them, batch by batch; those that cannot be decoded are told."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from vlcpctl.core.errors import BadInput
from vlcpctl.core.view import View
from vlcpctl.data.labelled_images import Flaw, LabelledImages
from vlcpctl.data.views import decode_image, eval_view
from vlcpctl.data.workers import read_in_order


@dataclass(frozen=True)
class LabelledBatch:
    """(B, H, W, 3) bytes, which of the images they are, and the images that had to be left out."""

    pixels: Tensor
    rows: NDArray[np.int64]
    flaws: list[Flaw]

    @property
    def size(self) -> int:
        """How many images were read, good or not."""
        return len(self.rows) + len(self.flaws)


@dataclass
class LabelledBatches(Dataset[LabelledBatch]):
    """Batch k of the first `count` images."""

    images: LabelledImages
    count: int
    view: View
    batch_size: int

    def __len__(self) -> int:
        return math.ceil(self.count / self.batch_size)

    def __getitem__(self, number: int) -> LabelledBatch:
        size = self.view.image_size
        kept, views, flaws = [], [np.empty((0, size, size, 3), dtype=np.uint8)], []
        first = number * self.batch_size
        for row in range(first, min(first + self.batch_size, self.count)):
            data = self.images.image(row)
            try:
                views.append(eval_view(decode_image(data), self.view)[None])
                kept.append(row)
            except BadInput as error:
                flaws.append(Flaw(self.images.name(row), str(error)))
        pixels = torch.from_numpy(np.concatenate(views))
        return LabelledBatch(pixels, np.array(kept, dtype=np.int64), flaws)


def read_labelled(batches: LabelledBatches, workers: int) -> Iterator[LabelledBatch]:
    """The batches in order; the number of workers changes nothing else."""
    return read_in_order(batches, range(len(batches)), workers)

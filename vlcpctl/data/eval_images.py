"""Batches of images with the evaluation transform, decoded in this process or in workers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from vlcpctl.core.view import View
from vlcpctl.data.task import Split
from vlcpctl.data.views import decode_image, eval_view
from vlcpctl.data.workers import read_in_order


@dataclass
class EvalImages(Dataset[Tensor]):
    """Item k is batch k of the images at `rows`: (B, H, W, 3) uint8.

    Raises BadInput if an image cannot be read or decoded.
    """

    split: Split
    rows: np.ndarray  # (N,)
    view: View
    batch_size: int

    def __len__(self) -> int:
        return math.ceil(len(self.rows) / self.batch_size)

    def __getitem__(self, number: int) -> Tensor:
        rows = self.rows[number * self.batch_size :][: self.batch_size].tolist()
        return torch.from_numpy(np.stack([self._view(row) for row in rows]))

    def _view(self, row: int) -> np.ndarray:
        what = f"{self.split.path}: the image of key {self.split.keys[row]}"
        return eval_view(decode_image(self.split.image(row), what), self.view)


def read_images(images: EvalImages, workers: int) -> Iterator[Tensor]:
    """The batches in order; the number of workers changes only the speed."""
    return read_in_order(images, range(len(images)), workers)

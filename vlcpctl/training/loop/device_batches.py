"""Batches on the device of the run, copied one batch ahead."""

from __future__ import annotations

from collections.abc import Generator, Iterable

import torch

from vlcpctl.core.batch import Batch
from vlcpctl.core.device_copies import copied_ahead


def on_device(batches: Iterable[Batch], device: torch.device) -> Generator[Batch]:
    """The batches with their tensors on the device, see `Batch.moved`."""
    return copied_ahead(batches, device, Batch.moved)

"""Validation during training: the loss or the recall on the validation split, after every epoch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from vlcpctl.core.features import as_features
from vlcpctl.core.method import Batch
from vlcpctl.engine.run import TrainRun
from vlcpctl.losses.contrastive import image_text


@torch.no_grad()
def validation_loss(run: TrainRun, batches: Callable[[], list[Batch]]) -> float:
    """The contrastive loss per pair over the validation batches, in eval mode."""
    run.encoder.module.eval()
    total = count = 0.0
    for batch in batches():
        raw = run.encode(batch, slice(0, len(batch.keys)))
        out = as_features(*raw, run.scale(run.weights))
        i2t, t2i = image_text(out.image, out.text, out.scale)
        loss = i2t + t2i if run.settings.base_loss == "sum" else (i2t + t2i) / 2
        total += loss.item() * len(batch.keys)
        count += len(batch.keys)
    run.encoder.module.train()
    return total / count

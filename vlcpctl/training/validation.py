"""Validation after every epoch: the loss, and the mean recall if `--keep` selects by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from vlcpctl.core.batch import Batch, Features
from vlcpctl.evaluation.retrieval.cross_modal import cross_modal
from vlcpctl.evaluation.search.backends import choose
from vlcpctl.evaluation.search.gallery import Gallery
from vlcpctl.losses.contrastive import image_text
from vlcpctl.models.embed import as_features
from vlcpctl.training.loop.state import TrainRun


@torch.no_grad()
def validate(
    run: TrainRun, batches: Callable[[], Iterator[Batch]], *, recalls: bool
) -> dict[str, float]:
    """`val_loss`, the mean over batches, and with `recalls` also `val_rmean` in percent."""
    run.encoder.module.eval()
    found = [(_features(run, batch), batch.texts) for batch in batches()]
    run.encoder.module.train()
    losses = torch.stack([_loss(run, out) for out, _ in found])
    values = {"val_loss": losses.mean().item()}
    if recalls:
        values["val_rmean"] = _recall(
            run, [out for out, _ in found], torch.cat([texts for _, texts in found])
        )
    return values


def _features(run: TrainRun, batch: Batch) -> Features:
    chunks = run.chunks(batch)
    image, text = (
        torch.cat(side) for side in zip(*(run.encode(batch, c) for c in chunks), strict=True)
    )
    return as_features(image, text, run.scale(run.weights))


def _loss(run: TrainRun, out: Features) -> Tensor:
    return run.joined(*image_text(out.image, out.text, out.scale))


def _recall(run: TrainRun, outputs: list[Features], tokens: Tensor) -> float:
    """The mean of the six recalls in percent; equal texts are one gallery entry, as in eval."""
    images = torch.cat([out.image for out in outputs]).float().cpu().numpy()
    texts = torch.cat([out.text for out in outputs]).float().cpu().numpy()
    _, first, of_image = np.unique(tokens.numpy(), axis=0, return_index=True, return_inverse=True)
    pairs = np.stack([np.arange(len(images)), of_image.reshape(-1)], axis=1)
    features = cross_modal(Gallery(images, texts[first], pairs), choose("auto", run.device.type))
    return features.metrics["rm"]

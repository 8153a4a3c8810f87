"""Embed a split's distinct images and texts, or fuse its distinct pairs, in batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from torch import Tensor

from vlcpctl.core.console import Progress, progress
from vlcpctl.data.loading.eval_batches import EvalImages, read_images
from vlcpctl.data.tasks.task import Split
from vlcpctl.evaluation.search.gallery import Embedded, Layout
from vlcpctl.evaluation.search.items import Fused, Items
from vlcpctl.models.embed import embed_images, embed_pairs, embed_texts, require_finite
from vlcpctl.models.encoders import Encoder
from vlcpctl.models.fusion.fusion_encoder import FusionEncoder

Batch = TypeVar("Batch", Tensor, list[str])


def embed(
    encoder: Encoder, split: Split, layout: Layout, batch_size: int, workers: int, what: str
) -> Embedded:
    """The unit embeddings of a layout: (I, D) of its images and (T, D) of its texts, float32.

    `what` names the checkpoint and the task in messages. Raises Diverged for non-finite embeddings.
    """
    images = EvalImages(split, layout.first_row_I, encoder.view, batch_size)
    with progress(f"{what}: images", len(layout.image_ids), "images") as bar:
        image_ID = embed_images(encoder, _counted(read_images(images, workers), bar))
    with progress(f"{what}: texts", len(layout.texts), "texts") as bar:
        text_TD = embed_texts(encoder, _counted(_sliced(layout.texts, batch_size), bar))
    require_finite(image_ID, f"{what}, images")
    require_finite(text_TD, f"{what}, texts")
    return Embedded(layout, image_ID, text_TD)


def fuse(
    encoder: FusionEncoder, split: Split, items: Items, batch_size: int, workers: int, what: str
) -> Fused:
    """The fused features (P, D) of a split's distinct pairs, float32.

    `what` names the checkpoint and the task in messages. Raises Diverged for non-finite features.
    """
    images = EvalImages(split, items.first_row_P, encoder.view, batch_size)
    with progress(f"{what}: pairs", len(items.texts), "pairs") as bar:
        batches = _counted(read_images(images, workers), bar)
        fused_PD = embed_pairs(encoder, zip(batches, _sliced(items.texts, batch_size), strict=True))
    require_finite(fused_PD, f"{what}, pairs")
    return Fused(items, fused_PD)


def _sliced(texts: list[str], size: int) -> Iterator[list[str]]:
    yield from (texts[start : start + size] for start in range(0, len(texts), size))


def _counted(batches: Iterator[Batch], bar: Progress) -> Iterator[Batch]:
    for batch in batches:
        yield batch
        bar.advance(len(batch))

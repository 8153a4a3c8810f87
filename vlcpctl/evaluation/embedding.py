"""Embed a split's distinct images and texts, or fuse its distinct pairs, in batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from vlcpctl.core.console import Progress, progress
from vlcpctl.data.loading.eval_batches import EvalImages, read_images
from vlcpctl.evaluation.jobs import Compute
from vlcpctl.evaluation.search.gallery import Embeddings
from vlcpctl.evaluation.search.items import FusedFeatures
from vlcpctl.evaluation.splits import EvalSplit
from vlcpctl.models.embed import embed_images, embed_pairs, embed_texts, require_finite
from vlcpctl.models.encoders import Encoder
from vlcpctl.models.fusion.fusion_encoder import FusionEncoder

Batch = TypeVar("Batch", Tensor, list[str])


def embed(encoder: Encoder, source: EvalSplit, checkpoint: Path, compute: Compute) -> Embeddings:
    """The unit embeddings of a split: (I, D) of its images and (T, D) of its texts, float32.

    `checkpoint` names the model in messages. Raises Diverged for non-finite embeddings.
    """
    layout, what = source.layout, f"{checkpoint} on {source.task.slug}"
    images = EvalImages(source.split, layout.first_row_I, encoder.transform, compute.batch_size)
    with progress(f"{what}: images", len(layout.image_ids), "images") as bar:
        image_ID = embed_images(encoder, _counted(_read(encoder, images, compute), bar))
    with progress(f"{what}: texts", len(layout.texts), "texts") as bar:
        texts = _sliced(layout.texts, compute.batch_size)
        text_TD = embed_texts(encoder, _counted(texts, bar))
    require_finite(image_ID, f"{what}, images")
    require_finite(text_TD, f"{what}, texts")
    return Embeddings(layout, image_ID, text_TD)


def fuse(
    encoder: FusionEncoder, source: EvalSplit, checkpoint: Path, compute: Compute
) -> FusedFeatures:
    """The fused features (P, D) of a split's distinct pairs, float32.

    `checkpoint` names the model in messages. Raises Diverged for non-finite features.
    """
    items, what = source.items, f"{checkpoint} on {source.task.slug} ({source.name})"
    images = EvalImages(source.split, items.first_row_P, encoder.transform, compute.batch_size)
    with progress(f"{what}: pairs", len(items.texts), "pairs") as bar:
        batches = _counted(_read(encoder, images, compute), bar)
        texts = _sliced(items.texts, compute.batch_size)
        fused_PD = embed_pairs(encoder, zip(batches, texts, strict=True))
    require_finite(fused_PD, f"{what}, pairs")
    return FusedFeatures(items, fused_PD)


def _read(encoder: Encoder, images: EvalImages, compute: Compute) -> Iterator[Tensor]:
    return read_images(images, compute.worker_count, pins=encoder.device.type == "cuda")


def _sliced(texts: list[str], size: int) -> Iterator[list[str]]:
    yield from (texts[start : start + size] for start in range(0, len(texts), size))


def _counted(batches: Iterator[Batch], bar: Progress) -> Iterator[Batch]:
    for batch in batches:
        yield batch
        bar.advance(len(batch))

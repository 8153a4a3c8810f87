"""A split's distinct images and texts through a model, in batches, with progress."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from torch import Tensor

from vlcpctl.core.console import Progress, progress
from vlcpctl.data.eval_images import EvalImages, read_images
from vlcpctl.data.task import Split
from vlcpctl.eval.gallery import Embedded, Layout
from vlcpctl.eval.retrieval import require_finite
from vlcpctl.models.dual_encoder import DualEncoder
from vlcpctl.models.embed import embed_images, embed_texts

Batch = TypeVar("Batch", Tensor, list[str])


def embed(
    encoder: DualEncoder, split: Split, layout: Layout, batch_size: int, workers: int, what: str
) -> Embedded:
    """The embeddings of a layout; `what` is the checkpoint and the task, for messages."""
    images = EvalImages(split, layout.first_row_I, encoder.view, batch_size)
    with progress(f"{what}: images", len(layout.image_ids), "images") as bar:
        image_ID = embed_images(encoder, _counted(read_images(images, workers), bar))
    with progress(f"{what}: texts", len(layout.texts), "texts") as bar:
        text_TD = embed_texts(encoder, _counted(_sliced(layout.texts, batch_size), bar))
    require_finite(image_ID, f"{what}, images")
    require_finite(text_TD, f"{what}, texts")
    return Embedded(layout, image_ID, text_TD)


def _sliced(texts: list[str], size: int) -> Iterator[list[str]]:
    yield from (texts[start : start + size] for start in range(0, len(texts), size))


def _counted(batches: Iterator[Batch], bar: Progress) -> Iterator[Batch]:
    for batch in batches:
        yield batch
        bar.advance(len(batch))

"""Unit-length embeddings of images, texts and pairs, and a check that they are finite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.core.batch import Features
from vlcpctl.core.devices import Move, copied_ahead, to_host
from vlcpctl.core.errors import Diverged
from vlcpctl.models.encoders import Encoder

if TYPE_CHECKING:
    from vlcpctl.models.fusion.fusion_encoder import FusionEncoder

Item = TypeVar("Item")


def embed_images(encoder: Encoder, batches: Iterable[Tensor]) -> np.ndarray:
    """(N, D) float32 embeddings of batches of images (B, H, W, 3) bytes; sets eval mode."""
    return _joined(encoder, image_vectors(encoder, batches))


def embed_texts(encoder: Encoder, batches: Iterable[list[str]]) -> np.ndarray:
    """(N, D) float32 embeddings of batches of texts; sets eval mode."""
    return _joined(encoder, text_vectors(encoder, batches))


def image_vectors(encoder: Encoder, batches: Iterable[Tensor]) -> Iterator[np.ndarray]:
    """Yield what `embed_images` joins, (B, D) of each batch."""

    def embedded(images: Tensor) -> Tensor | None:
        return encoder.features(encoder.pixels(images), None)[0]

    return _each(encoder, copied_ahead(batches, encoder.device, _moved), embedded)


def text_vectors(encoder: Encoder, batches: Iterable[list[str]]) -> Iterator[np.ndarray]:
    """Yield what `embed_texts` joins, (B, D) of each batch."""
    tokens = copied_ahead(map(encoder.tokenize, batches), encoder.device, _moved)
    return _each(encoder, tokens, lambda ids: encoder.features(None, ids)[1])


def pair_vectors(
    encoder: FusionEncoder, batches: Iterable[tuple[Tensor, list[str]]]
) -> Iterator[np.ndarray]:
    """Yield (B, C) float32 embeddings of each batch of images, each fused with its text.

    They are the fusion model's [CLS] states at unit length; sets eval mode.
    """
    pairs = ((images, encoder.tokenize(texts)) for images, texts in batches)
    inputs = copied_ahead(pairs, encoder.device, lambda pair, move: (move(pair[0]), move(pair[1])))
    return _each(encoder, inputs, lambda pair: encoder.fused(*encoder.inputs(*pair)))


def _each(
    encoder: Encoder, batches: Iterable[Item], raw: Callable[[Item], Tensor | None]
) -> Iterator[np.ndarray]:
    encoder.module.eval()
    return to_host(_unit_vectors(encoder, batches, raw))


def autocast(encoder: Encoder) -> AbstractContextManager[object]:
    """The context that sets the precision in which embeddings are computed."""
    dtype = encoder.autocast
    return nullcontext() if dtype is None else torch.autocast(encoder.device.type, dtype=dtype)


@torch.inference_mode()
def _unit_vectors(
    encoder: Encoder, batches: Iterable[Item], raw: Callable[[Item], Tensor | None]
) -> Iterator[Tensor]:
    for batch in batches:
        with autocast(encoder):
            vectors = raw(batch)
        if vectors is not None:
            yield normalize(vectors.float(), dim=-1)


def _moved(tensor: Tensor, move: Move) -> Tensor:
    return move(tensor)


def _joined(encoder: Encoder, parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty((0, encoder.width), dtype=np.float32), *parts])


def as_features(
    raw_image: Tensor, raw_text: Tensor, scale: Tensor, raw_pseudo: Tensor | None = None
) -> Features:
    """Features from raw projections (B, D) and 1 / temperature (), with texts without image (K, D).

    The unit-length forms are computed here, and gradients flow through both.
    """
    return Features(
        image=normalize(raw_image, dim=-1),
        text=normalize(raw_text, dim=-1),
        raw_image=raw_image,
        raw_text=raw_text,
        scale=scale,
        pseudo=None if raw_pseudo is None else normalize(raw_pseudo, dim=-1),
    )


def require_finite(vectors: np.ndarray, what: str) -> None:
    """Raise Diverged if embeddings (N, D) are not finite, naming `what` they are of.

    A search would silently never return them.
    """
    is_finite = np.isfinite(vectors).all(axis=1)
    if not is_finite.all():
        count = int(np.count_nonzero(~is_finite))
        raise Diverged(
            f"{what}: contains non-finite embeddings ({count} of {len(vectors)} are NaN or "
            "infinite); the model diverged, use an earlier checkpoint"
        )

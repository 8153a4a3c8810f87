"""The base class of both families of encoders: pixels, weights by name, raw projections.

Shapes: B samples, L tokens of a text, D channels of the shared space, W channels of a token.
"""

from __future__ import annotations

import math
import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar, overload

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vlcpctl.core.devices import to_device
from vlcpctl.core.transform import ImageTransform
from vlcpctl.models.execution import compiled, evaluating
from vlcpctl.models.text_tower import TextTower
from vlcpctl.models.tokenizers import Tokenizer

Result = TypeVar("Result")
Sides = tuple[Tensor | None, Tensor | None]


class _Calls(nn.Module):
    """A model whose forward calls any function.

    torch's functional_call replaces the weights only during `forward`, and the models have several
    passes; open_clip's own forward normalises.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[[], Result]) -> Result:
        """The result of the function."""
        return function()


@dataclass
class BaseEncoder(ABC):
    """A model with an image and a text encoder, its configuration, image view and tokenizer."""

    module: nn.Module
    config: dict[str, Any]
    transform: ImageTransform
    tokenizer: Tokenizer
    compiles: bool = field(default=False, init=False, repr=False)  # set before the first pass
    # What embeddings are computed in (`models.embed`); None: in the precision of the weights.
    autocast: torch.dtype | None = field(default=None, init=False, repr=False)
    _mean_and_std: Tensor = field(
        init=False, repr=False
    )  # mean and standard deviation, see _statistics

    def __post_init__(self) -> None:
        mean_and_std = torch.tensor((self.transform.mean, self.transform.std), dtype=torch.float64)
        self._mean_and_std = mean_and_std.view(2, 1, 3, 1, 1)

    @property
    def width(self) -> int:
        """D, the number of channels of the shared space."""
        return int(self.config["embed_dim"])

    @property
    def device(self) -> torch.device:
        """The device that the module's weights are on."""
        return next(self.module.parameters()).device

    def tokenize(self, texts: list[str]) -> Tensor:
        """(n, L) int64 token ids of n texts."""
        return self.tokenizer(texts)

    def inputs(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        """Images (B, H, W, 3) as normalised pixels, and texts (B, L), on the module's device."""
        pixels = self.pixels(images)
        return pixels, to_device(texts, pixels.device)

    def pixels(self, images: Tensor) -> Tensor:
        """Normalised pixels (B, 3, H, W) of (B, H, W, 3) bytes, on the module's device."""
        mean, std = self._statistics
        # Bytes are copied to a GPU, and become floats there. Arithmetic on whole rows, with the
        # statistics repeated for each pixel, takes half the time of that on three values at a time.
        pixels = to_device(images, mean.device).flatten(2)
        rows = _empty(pixels.shape, mean).copy_(pixels).div_(255)
        width = images.shape[2]
        rows.sub_(mean.flatten().repeat(width)).div_(std.flatten().repeat(width))
        return rows.view(images.shape).permute(0, 3, 1, 2)

    @overload
    def features(
        self, images: Tensor, texts: Tensor, weights: Mapping[str, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def features(
        self,
        images: Tensor | None,
        texts: Tensor | None,
        weights: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor | None, Tensor | None]: ...

    def features(
        self,
        images: Tensor | None,
        texts: Tensor | None,
        weights: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Raw projections (B, D) of pixels (B, 3, H, W) and token ids (B, L); None for None.

        With other `weights` the model runs in eval mode, with its own values for the buffers that
        they lack, such as BatchNorm's statistics.
        """
        return self._run(self._sides, weights, images, texts)

    @contextmanager
    def uncompiled(self) -> Iterator[None]:
        """Within the block, no pass is compiled: a compiled one does not see hooks on modules."""
        compiles, self.compiles = self.compiles, False
        try:
            yield
        finally:
            self.compiles = compiles

    def embedded_texts(
        self, embeddings: Tensor, ends: Tensor, weights: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Raw projections (B, D) of texts given as token embeddings (B, L, W) with ends (B,).

        The embeddings of `text_tower.lookup` give the same projections as the ids themselves.
        """
        with self.text_tower.embedding_is(embeddings):
            stand_in = self.text_tower.stand_in(ends, embeddings.shape[1])
            with self.uncompiled():  # each call has its own hook, so every call would compile again
                _, text = self.features(None, stand_in, weights)
        assert text is not None
        return text

    @abstractmethod
    def checkpoint_gradients(self) -> None:
        """Recompute the activations of the layers in backward, instead of storing them."""

    @property
    @abstractmethod
    def text_tower(self) -> TextTower:
        """The text encoder's embedding table, and how the encoder finds the end of a text."""

    @abstractmethod
    def _sides(self, images: Tensor | None, texts: Tensor | None) -> Sides:
        """Raw projections (B, D) as in `features`, computed by this family of models."""

    def _run(
        self, function: Callable[..., Result], weights: Mapping[str, Tensor] | None, *inputs: Any
    ) -> Result:
        """What a pass of the model returns with its own weights, or in eval mode with others."""
        run = self._compiled(function) if self.compiles else partial(self._under, function)
        if weights is None:
            return run(None, *inputs)
        with evaluating(self.module):
            return run({f"model.{name}": value for name, value in weights.items()}, *inputs)

    def _under(
        self, function: Callable[..., Result], weights: dict[str, Tensor] | None, *inputs: Any
    ) -> Result:
        if weights is None:
            return function(*inputs)
        found: Result = functional_call(self._calls, weights, (partial(function, *inputs),))
        return found

    def _compiled(self, function: Callable[..., Result]) -> Callable[..., Result]:
        """The same pass, compiled; each once."""
        name = function.__name__
        if name not in self._passes:
            self._passes[name] = compiled(partial(self._under, function))
        return self._passes[name]

    @cached_property
    def _passes(self) -> dict[str, Callable[..., Any]]:
        return {}

    @cached_property
    def _calls(self) -> _Calls:
        return _Calls(self.module)

    def weights(self) -> dict[str, nn.Parameter]:
        """The module's parameters by name; the tensors themselves, not copies."""
        return dict(self.module.named_parameters())

    def buffers(self) -> dict[str, Tensor]:
        """The buffers by name that a checkpoint saves; the tensors themselves, not copies."""
        saved = self.module.state_dict(keep_vars=True).keys()
        return {name: buffer for name, buffer in self.module.named_buffers() if name in saved}

    @property
    def _statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation (1, 3, 1, 1) of the channels, on the module's device."""
        like = next(self.module.parameters())
        if (self._mean_and_std.device, self._mean_and_std.dtype) != (like.device, like.dtype):
            self._mean_and_std = to_device(self._mean_and_std, like.device).to(like.dtype)
        return self._mean_and_std[0], self._mean_and_std[1]


def _empty(shape: torch.Size, like: Tensor) -> Tensor:
    """Uninitialized memory of this shape, with the dtype and on the device of `like`.

    glibc returns blocks of more than 32 MiB to the system when they are freed, so that the pages
    of each batch, of 4 kB, are mapped again: more than half of the time that `pixels` takes. In
    huge pages, 64 images of 224 pixels take 10 ms in place of 25.
    """
    size = math.prod(shape) * like.element_size()
    if like.device.type == "cpu" and size > 32 << 20 and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # no memory, or a system without huge pages: torch.empty decides
            block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            block.madvise(mmap.MADV_HUGEPAGE)
            return torch.frombuffer(block, dtype=like.dtype).view(shape)
    return torch.empty(shape, dtype=like.dtype, device=like.device)

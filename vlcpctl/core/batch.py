"""What a batch contains, and what a model computes from it. Nothing here imports torch.

Shapes: B pairs in the global batch, b pairs of this process or of a chunk of them, D channels
of the shared space, L tokens of a text, N tokens of an image, C channels of a token, m masked
tokens, V words in the vocabulary, K texts without image, R replayed pairs, W channels of a
token's embedding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vlcpctl.core.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    Move = Callable[["Tensor"], "Tensor"]

Weights = dict[str, "Tensor"]
Terms = dict[str, "Tensor"]


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of the special tokens, and the number of ids in the vocabulary (`words`)."""

    pad: int
    cls: int
    sep: int
    mask: int
    words: int


@dataclass(frozen=True)
class PseudoTexts:
    """Token embeddings of pseudo texts, and the position of the last token of each."""

    embeddings: Tensor  # (K, L, W), as stored: maybe in half precision
    ends: Tensor  # (K,)

    def moved(self, move: Move) -> PseudoTexts:
        """These texts with `move` applied to their tensors."""
        return PseudoTexts(move(self.embeddings), move(self.ends))


@dataclass(frozen=True, kw_only=True)
class InversionSettings:
    """Settings for generating negative texts from a mini-batch of earlier pairs (IncCLIP, eq. 1).

    A frozen model optimises token embeddings until each text is similar to the images, but not too
    similar. Raises UsageError for settings that make no sense.
    """

    texts: int  # K, the texts generated per mini-batch
    pairs: int  # the pairs of a mini-batch; 0: as many as the batch size
    low: float  # s_min, the lower bound of a text's similarity to the images
    high: float  # s_max, the upper bound
    iterations: int  # of gradient descent
    rate: float  # the learning rate of gradient descent

    def __post_init__(self) -> None:
        if not -1 <= self.low < self.high <= 1:
            raise UsageError(
                f"no text has a similarity from {self.low} to {self.high}; "
                "the lower bound must be below the upper bound, both in [-1, 1]"
            )
        for name, least in (("texts", 1), ("pairs", 0), ("iterations", 0)):
            if getattr(self, name) < least:
                raise UsageError(
                    f"inversion: {name} must be at least {least}, not {getattr(self, name)}"
                )
        if not self.rate > 0:
            raise UsageError(f"inversion: rate must be above 0, not {self.rate}")


@dataclass(frozen=True, kw_only=True)
class ReplayedProjections:
    """Raw projections of the R replayed pairs of a batch, stored when the buffer took them."""

    image: Tensor  # (R, D), in the order of the batch
    text: Tensor  # (R, D), of the captions used in this batch

    def moved(self, move: Move) -> ReplayedProjections:
        """These projections with `move` applied to their tensors."""
        return ReplayedProjections(image=move(self.image), text=move(self.text))


@dataclass(frozen=True)
class Batch:
    """A global batch: all keys, and the images and texts of this process's part of it.

    `replayed` and `labels` are always on the CPU, whatever the device of the others: they decide
    shapes, and reading them from a GPU would stop the CPU until the GPU has caught up.
    """

    keys: list[str]
    replayed: Tensor  # (B,) true where the pair comes from the buffer
    images: Tensor  # (b, H, W, 3) bytes
    texts: Tensor  # (b, L) token ids
    # The next two are for fusion models. Padding is where `texts` has it: masking may replace a
    # word by any id.
    masked: Tensor | None = None  # (b, L) token ids with words masked
    labels: Tensor | None = None  # (b, L) the true ids of masked words, -100 elsewhere
    stored: ReplayedProjections | None = None  # of the replayed pairs, if a method needs them
    targets: tuple[Tensor, Tensor] | None = None  # (b, D) each, raw: precomputed by a teacher
    buffer_batch: Batch | None = None  # earlier pairs that pseudo texts are generated from
    pseudo: PseudoTexts | None = None  # this process's part of the texts without image
    groups: Tensor | None = None  # (B,) int64, equal in a group; None with --negatives all
    reference: Batch | None = None  # pairs of --reference, for the methods that need them

    def moved(self, move: Move) -> Batch:
        """The batch with `move` applied to its tensors, apart from `replayed` and `labels`."""
        targets, inner, reference = self.targets, self.buffer_batch, self.reference
        return replace(
            self,
            images=move(self.images),
            texts=move(self.texts),
            masked=None if self.masked is None else move(self.masked),
            stored=None if self.stored is None else self.stored.moved(move),
            targets=None if targets is None else (move(targets[0]), move(targets[1])),
            buffer_batch=None if inner is None else inner.moved(move),
            pseudo=None if self.pseudo is None else self.pseudo.moved(move),
            groups=None if self.groups is None else move(self.groups),
            reference=None if reference is None else reference.moved(move),
        )

    def pin_memory(self) -> Batch:
        """The batch in pinned memory, which a GPU can copy from while the CPU does other work."""
        return self.moved(lambda tensor: tensor.pin_memory())


@dataclass(frozen=True, kw_only=True)
class Features:
    """A model's features of a global batch: raw and unit-length projections, 1 / temperature."""

    image: Tensor  # (B, D), unit length
    text: Tensor  # (B, D), unit length
    raw_image: Tensor  # (B, D)
    raw_text: Tensor  # (B, D)
    scale: Tensor  # (), 1 / temperature
    pseudo: Tensor | None = None  # (K, D), unit length, of texts without image
    reference: Features | None = None  # of the pairs of --reference, with gradient
    # The pairs whose rows of a loss this process computes: all, or with --local-loss its own.
    own: slice = field(default_factory=lambda: slice(None))


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """A fusion model's token states and word predictions for a chunk of the batch."""

    image: Tensor  # (b, N, C)
    text: Tensor  # (b, L, C), of the unmasked text alone
    fused: Tensor  # (b, C), the [CLS] state of image and text together
    logits: Tensor  # (m, V), predictions at the masked tokens
    labels: Tensor  # (m,), their true ids

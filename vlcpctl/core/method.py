"""The method protocol: what a method declares, and the hooks that the engine calls.

A method sees the step and never performs it. It is a frozen dataclass of hyper-parameters that
declares its memory (slots), its inputs (needs) and its phases, and adds named terms to the loss.
Nothing here imports torch, so that `vlcpctl methods` and a mistyped `--set` answer at once.

Shapes: B pairs in the global batch, b of this process or of a part of its pairs, D channels of the
shared space, L tokens of a text, N of an image, C channels of a token, m masked tokens, V words,
K texts without image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from vlcpctl.core.pseudo_texts import Inversion, PseudoTexts

if TYPE_CHECKING:
    from torch import Tensor

Weights = dict[str, "Tensor"]
Terms = dict[str, "Tensor"]


@dataclass(frozen=True, kw_only=True)
class Paper:
    """Where a method was published."""

    title: str
    authors: str
    venue: str
    year: int
    url: str


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Raw projections of the R replayed pairs of a batch, by the models that chose them."""

    image: Tensor  # (R, D), in the order of the batch
    text: Tensor  # (R, D), of the captions that the batch has


@dataclass(frozen=True)
class Batch:
    """A global batch: every key, and the images and texts of this process's part of it."""

    keys: list[str]
    replayed: Tensor  # (B,) true where the pair comes from the buffer
    images: Tensor  # (b, H, W, 3) bytes
    texts: Tensor  # (b, L) token ids
    masked: Tensor | None = None  # (b, L) the same with words masked, for a fusion model
    labels: Tensor | None = None  # (b, L) what was masked, -100 elsewhere
    stored: Stored | None = None  # of the replayed pairs, where a method needs it
    taught: tuple[Tensor, Tensor] | None = None  # (b, D) each, raw: what a teacher said before
    memory: Batch | None = None  # earlier pairs that pseudo texts are made of
    pseudo: PseudoTexts | None = None  # this process's part of the texts without image


@dataclass(frozen=True, kw_only=True)
class Features:
    """What a model says of a batch: raw and unit-length projections, and 1 / temperature."""

    image: Tensor  # (B, D), unit length
    text: Tensor  # (B, D), unit length
    raw_image: Tensor  # (B, D)
    raw_text: Tensor  # (B, D)
    scale: Tensor  # (), 1 / temperature
    pseudo: Tensor | None = None  # (K, D), unit length, of texts without image


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """What a fusion model says of each token of a part of the batch."""

    image: Tensor  # (b, N, C)
    text: Tensor  # (b, L, C), of the text as it is
    fused: Tensor  # (b, C), the [CLS] state of image and text together
    logits: Tensor  # (m, V), of the masked tokens
    labels: Tensor  # (m,), their ids


class Part(Protocol):
    """A part of the batch, for terms that are sums over its pairs or tokens."""

    @property
    def pairs(self) -> int:
        """B, the pairs of the global batch."""

    @property
    def masked(self) -> int:
        """The masked tokens of the global batch, 1 if there is none."""

    def previous(self) -> Tokens:
        """The frozen previous model's tokens; `Needs.previous_tokens` asks for them."""

    def under(self, weights: Weights) -> Tokens:
        """The model's tokens under other weights, in eval mode and without gradient."""


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A piece of a method's memory that the engine allocates, saves, restores and checks.

    `start` gives its first values, and with them its names and shapes. A `task` slot starts anew
    in every task; a `stream` slot is handed from checkpoint to checkpoint.
    """

    name: str
    lifetime: Literal["task", "stream"]
    start: Callable[[Run], Weights]


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Inputs without which a method cannot train; checked before anything is computed."""

    buffer: bool = False
    stored_features: bool = False  # in the buffer, with each pair
    policy: str = ""  # how the buffer must have been chosen; "": in any way
    previous: bool = False  # the frozen previous model's features
    previous_weights: bool = False  # and its parameters, which `Run.anchor` gives
    previous_tokens: bool = False  # and what it says of tokens, where the model is a fusion model
    fusion: bool = False  # a fusion model, with its tokens
    pseudo_texts: Inversion | None = None  # made by the previous model of the buffer, or given


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One pass or several over the training data.

    `trains=False` measures gradients: in eval mode, on the weights that the run will keep, over an
    epoch of its own after those trained on. It moves no parameter and no buffer.

    With `each_epoch` it is one pass before each epoch of the training, over that epoch's batches.
    """

    name: str
    epochs: int | None = None  # None: as many as the run trains
    trains: bool = True
    contrasts: bool = True  # whether the base loss is part of it
    each_epoch: bool = False
    weights: str = ""  # a slot that takes the model's place; its optimizer lives as long as the run


TRAIN = Phase(name="train")


class Run(Protocol):
    """What a method may see of the run it takes part in."""

    @property
    def first(self) -> bool:
        """Whether there is no previous model."""

    @property
    def seed(self) -> int:
        """The run's seed."""

    @property
    def phase(self) -> str:
        """The current phase, as the method named it."""

    @property
    def step(self) -> int:
        """The step of the current phase, from 0."""

    @property
    def steps(self) -> int:
        """How many steps the current phase has."""

    @property
    def weights(self) -> Weights:
        """The trained model's own parameters, live."""

    @property
    def everything(self) -> Weights:
        """The trained model's parameters and buffers, live."""

    @property
    def anchor(self) -> Weights:
        """The previous model's parameters, frozen."""

    @property
    def processes(self) -> int:
        """How many processes train together; each has an equal block of the batch."""

    @property
    def width(self) -> int:
        """D, the channels of the shared space."""

    def joined(self, i2t: Tensor, t2i: Tensor) -> Tensor:
        """Both directions of a contrast as the base loss takes them: their mean, or their sum."""

    def slot(self, name: str) -> Weights:
        """The values of one of the method's own slots; hooks change them in place."""

    def previous(self, batch: Batch) -> Features:
        """The frozen previous model's view of the batch, computed once however many ask."""

    def features(self, batch: Batch, weights: Weights, *, tokens: bool = False) -> Features:
        """The model's view of the batch under other weights: in eval mode and without gradient.

        With `tokens`, a later `Part.under` of the same weights costs no second pass.
        """


class Method:
    """Base of all methods; a method overrides what it uses."""

    name: ClassVar[str]
    title: ClassVar[str]
    papers: ClassVar[tuple[Paper, ...]] = ()
    preset: ClassVar[str]
    note: ClassVar[str] = ""  # what a user must know before the first step
    replaces_base: ClassVar[bool] = False
    writes_weights: ClassVar[bool] = False
    keeps: ClassVar[str] = ""  # a slot validated and written as the model, in place of what trains
    from_unseen: ClassVar[bool] = False  # starts from a model that has seen no task
    settings: ClassVar[Mapping[str, Any]] = {}  # training settings the method asks for; flags win

    def needs(self, *, first: bool) -> Needs:
        """What must be given on the command line."""
        return Needs()

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        """The method's memory in this task."""
        return ()

    def phases(self, *, first: bool) -> tuple[Phase, ...]:
        """What the engine runs, in order; phases of the name `train` are shared between methods."""
        return (TRAIN,)

    def before_forward(self, run: Run) -> None:
        """Change slots or weights before the forward pass, without gradient."""

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """Named terms, already weighted, and whatever `after_step` needs of them."""
        return {}, {}

    def token_loss(self, run: Run, part: Part, out: Tokens) -> Terms:
        """Named terms of a fusion model, each a sum over the part by a count of the whole batch."""
        return {}

    def after_backward(self, run: Run, grads: Mapping[str, Tensor]) -> None:
        """See the gradients of the loss alone: reduced over ranks, unscaled, not clipped."""

    def add_gradients(self, run: Run, grads: Mapping[str, Tensor]) -> None:
        """Add, in place, the gradients of penalties in closed form, once all methods have seen."""

    def after_step(self, run: Run, batch: Batch, aux: dict[str, Any], *, stepped: bool) -> None:
        """Update slots after the optimizer; `stepped` is false when fp16 skipped the update."""

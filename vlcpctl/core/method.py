"""The method protocol: what a method declares, and the hooks that training calls.

A method takes part in the optimizer step but does not perform it. It is a frozen dataclass of
hyper-parameters that declares its memory (slots), its inputs (needs) and its phases, and adds named
terms to the loss. Nothing here imports torch, so that `vlcpctl methods` and the error for a
mistyped `--set` come at once.

Shapes: B pairs in the global batch, b pairs of this process or of a chunk of them, D channels of
the shared space, L tokens of a text, N tokens of an image, C channels of a token, m masked tokens,
V words in the vocabulary, K texts without image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from vlcpctl.core.batch import Batch, Features, InversionSettings, Terms, Tokens, Weights

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Paper:
    """Where a method was published."""

    title: str
    authors: str  # full names, such as "Zhizhong Li and Derek Hoiem"
    venue: str
    year: int
    url: str


class Part(Protocol):
    """A chunk of the batch, for terms that are sums over its pairs or tokens.

    The tokens of frozen models were made in torch's inference mode: a loss whose gradient needs
    such a tensor itself, and not only what is computed from it, must clone it.
    """

    @property
    def pairs(self) -> int:
        """B, the number of pairs in the global batch."""

    @property
    def masked(self) -> int | Tensor:
        """The number of masked tokens in the global batch, at least 1; () of several processes."""

    def previous(self) -> Tokens:
        """The frozen previous model's tokens; requires `Needs.previous_tokens`."""

    def under(self, weights: Weights) -> Tokens:
        """The model's tokens with other weights, in eval mode and without gradient."""


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A piece of a method's memory that training allocates, saves, restores and checks.

    `start` returns its initial values, and with them its names and shapes. A `task` slot is
    initialised again in every task; a `stream` slot is saved in the checkpoint for the next task.
    """

    name: str
    lifetime: Literal["task", "stream"]
    start: Callable[[Run], Weights]


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Inputs that a method requires; checked before anything is computed."""

    buffer: bool = False
    stored_features: bool = False  # the buffer stores features with each pair
    policy: str = ""  # the selection policy the buffer must have; "": any, see `usual_policy`
    previous: bool = False  # the frozen previous model's features
    reference: bool = False  # pairs of --reference in each step; `previous` is then of them alone
    reference_gradient: bool = False  # `after_reference` is called with their gradient
    previous_weights: bool = False  # and its parameters, as `Run.anchor`
    previous_tokens: bool = False  # and its tokens, if the model is a fusion model
    fusion: bool = False  # the model must be a fusion model
    pseudo_texts: InversionSettings | None = None  # how they are generated, if none are given


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One or more passes over the training data.

    With `trains=False` the phase only measures gradients, in eval mode, with the weights that the
    run will keep, over an additional epoch after training. It changes no parameter and no buffer.
    Without a base loss, and if the method has none of its own, it has no gradients either: of the
    hooks it only calls `before_forward` and `after_step`.

    With `each_epoch` the phase is one pass before each training epoch, over that epoch's batches.
    """

    name: str
    epochs: int | None = None  # None: the number of training epochs of the run
    trains: bool = True
    contrasts: bool = True  # whether the base loss (contrastive, masked words) is used
    each_epoch: bool = False
    weights: str = ""  # a slot to train in place of the model, with one optimizer for the run


TRAIN = Phase(name="train")
HOOKS = (
    *("before_forward", "loss", "token_loss", "after_reference"),
    *("after_backward", "add_gradients", "replace_gradients", "after_step"),
)


class RowLoss(Protocol):
    """The base loss of the rows of a similarity matrix: softmax or sigmoid."""

    @property
    def is_symmetric(self) -> bool:
        """Whether a matrix has the same loss as its transpose, so that one of them is enough."""

    def __call__(
        self,
        logits_bK: Tensor,
        count: int,
        own: slice = ...,
        *,
        anchors_B: Tensor | None = None,
    ) -> Tensor:
        """The loss of the `own` rows out of `count`, divided by `count`: processes' parts add up.

        The logits (b, K) are scaled similarities, without bias: first those with the pairs, among
        which each row has its positive, then any others; -inf where a candidate is not a negative.
        With `anchors_B` (B,), only the rows that it marks as true count.
        """


class Run(Protocol):
    """The part of a training run that a method may use."""

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
        """The optimizer step within the current phase, from 0."""

    @property
    def steps(self) -> int:
        """The number of optimizer steps in the current phase."""

    @property
    def weights(self) -> Weights:
        """The trained model's parameters; the tensors themselves, not copies."""

    @property
    def everything(self) -> Weights:
        """The trained model's parameters and buffers; the tensors themselves, not copies."""

    @property
    def anchor(self) -> Weights:
        """The previous model's parameters, frozen."""

    @property
    def processes(self) -> int:
        """The number of training processes; each has an equal block of the batch."""

    @property
    def width(self) -> int:
        """D, the channels of the shared space."""

    @property
    def distinct(self) -> bool:
        """Whether batches have `Batch.groups` (--negatives distinct)."""

    @property
    def row_loss(self) -> RowLoss:
        """The base loss of rows of similarities, softmax or sigmoid, as the model is made for."""

    def joined(self, i2t: Tensor, t2i: Tensor) -> Tensor:
        """Combine both directions of a contrastive loss, () each, as the base loss does.

        Returns their mean or their sum, by --base-loss.
        """

    def slot(self, name: str) -> Weights:
        """The tensors of one of the method's own slots; hooks change them in place."""

    def previous(self, batch: Batch) -> Features:
        """The frozen previous model's features of the batch, computed once per batch."""

    def features(self, batch: Batch, weights: Weights, *, tokens: bool = False) -> Features:
        """The model's features of the batch with other weights, in eval mode, without gradient.

        With `tokens`, the tokens are kept, so that a later `Part.under` with the same weights needs
        no second forward pass.
        """

    def input_moments(self, batch: Batch, layers: Sequence[str]) -> Weights:
        """X^T X of the inputs X of linear layers, (I, I) each, by the names of their weights.

        The rows of X are all tokens of the global batch, as the model sees them in eval mode.
        """


@dataclass(frozen=True, kw_only=True)
class Method:
    """Base class of all methods; a method overrides the hooks it uses."""

    name: ClassVar[str]
    title: ClassVar[str]
    papers: ClassVar[tuple[Paper, ...]] = ()
    preset: ClassVar[str]
    note: ClassVar[str] = ""  # shown in the plan before training
    replaces_base: ClassVar[bool] = False  # its loss replaces the contrastive loss
    # The terms of `loss` over the rows of `Features.own` alone: those of all processes add up.
    by_rows: ClassVar[frozenset[str]] = frozenset()
    writes_weights: ClassVar[bool] = False  # its hooks change the weights
    # A slot validated and saved as the model, instead of the trained one, in tasks that have it.
    keeps: ClassVar[str] = ""
    measures: ClassVar[bool] = False  # protects only what its state says is important
    from_unseen: ClassVar[bool] = False  # starts from a model that has not seen any task
    steps_per_task: ClassVar[int] = 0  # of its paper, for which `per_step` was chosen; 0: none
    settings: ClassVar[Mapping[str, Any]] = {}  # training settings; options override them
    # Assignments (PARAMETER=VALUE) with which it trains as `seqf`, or `er` with a buffer; tested.
    off: ClassVar[tuple[str, ...]] = ()
    # The selection policy of its paper's buffer, which `update` chooses.
    usual_policy: ClassVar[str] = ""

    # The assignment with which its hooks leave the weights alone, if there is one.
    overwrites_unless: ClassVar[str] = ""

    @property
    def overwrites(self) -> bool:
        """Whether its hooks change the weights, with these settings; --lora then refuses it."""
        return self.writes_weights

    @property
    def queued(self) -> int:
        """The number of pairs of earlier batches that each step uses as negatives."""
        return 0

    def needs(self, *, first: bool) -> Needs:
        """The inputs that must be given on the command line."""
        return Needs()

    def per_step(self, *, first: bool) -> tuple[str, ...]:
        """The hyper-parameters that are weights kept at every step, as far as they are used.

        `--scale-per-step` scales them to the number of steps.
        """
        return ()

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        """The method's memory in this task."""
        return ()

    def phases(self, *, first: bool) -> tuple[Phase, ...]:
        """The phases to run, in order; combined methods share the phase named `train`."""
        return (TRAIN,)

    def before_forward(self, run: Run) -> None:
        """Update slots or weights before the forward pass; runs without gradient."""

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """Named loss terms, () each and already weighted, and any values for `after_step`."""
        return {}, {}

    def token_loss(self, run: Run, part: Part, out: Tokens) -> Terms:
        """Named loss terms of a fusion model's tokens, () each.

        Each is a sum over the chunk divided by a count over the global batch, so that the terms of
        all chunks and processes add up.
        """
        return {}

    def after_reference(
        self, run: Run, grads: Mapping[str, Tensor]
    ) -> tuple[Terms, Mapping[str, Tensor]]:
        """Penalties that the gradient of all terms on the pairs of --reference decides.

        Called where `Needs.reference_gradient` is declared, with that gradient alone: summed over
        ranks, unscaled, before clipping; a weight that it does not reach is not there. Returns the
        values of penalties by name, () each, and their gradients by weight. These are added beside
        `add_gradients`, to the weights that the loss reaches.
        """
        return {}, {}

    def after_backward(self, run: Run, grads: Mapping[str, Tensor]) -> None:
        """Read the gradients of the loss: summed over ranks, unscaled, before clipping."""

    def add_gradients(self, run: Run, grads: Mapping[str, Tensor]) -> None:
        """Add closed-form gradients of penalties in place, after all methods' `after_backward`."""

    def replace_gradients(self, run: Run, grads: MutableMapping[str, Tensor]) -> None:
        """Change, in place, the gradients that the optimizer gets, after all `add_gradients`.

        A weight whose gradient is taken out of `grads` stays as it is in this step.
        """

    def after_step(self, run: Run, batch: Batch, aux: dict[str, Any], *, stepped: bool) -> None:
        """Update slots after the optimizer step; `stepped` is false if fp16 skipped it."""


def hyper(
    default: Any,
    *,
    doc: str,
    origin: str,
    choices: Sequence[str] = (),
    within: str = "[0, inf)",
    depends: str = "",
) -> Any:
    """A dataclass field for a hyper-parameter.

    `doc` describes it, and `origin` is the equation or table of the paper that gives the default,
    or "ours" if no paper does. A number must be `within` an interval such as "(0, 1]", a text one
    of `choices`, if there are any. `depends` says what a good value depends on besides the data,
    and how: "the batch size: ...".
    """
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    about = {"help": doc, "origin": origin, "choices": tuple(choices), "depends": depends}
    return field(default=default, metadata={**about, "within": within if is_number else ""})

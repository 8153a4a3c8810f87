"""`--lora`: the size of low-rank adapters, and the weights that have one. Torch-free."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from safetensors import safe_open

from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.core.method import Method
from vlcpctl.core.words import parse_number, parse_whole_number
from vlcpctl.files.inputs import reading
from vlcpctl.models.configuration import fusion_configuration

if TYPE_CHECKING:
    from vlcpctl.training.request import TrainRequest

USUAL_FACTOR = 2  # alpha / rank: of C-CLIP (rank 16, alpha 32) and Dobrzeniecka et al. (8, 16)
# The matrices of attention and MLP in open_clip's transformers: of the image encoder, of CLIP's own
# text encoder, and of CustomTextCLIP's.
_TOWERS = {"image": r"visual\.transformer", "text": r"(text\.)?transformer"}
_MATRICES = r"\.resblocks\.\d+\.(attn\.(in_proj_weight|out_proj\.weight)|mlp\.c_(fc|proj)\.weight)"


@final
@dataclass(frozen=True)
class LoraSize:
    """The rank r of the adapters, and alpha: the change of a weight is (alpha / r) B A."""

    rank: int
    alpha: float

    @property
    def scale(self) -> float:
        """The factor alpha / r."""
        return self.alpha / self.rank

    def __str__(self) -> str:
        return f"{self.rank},{self.alpha:g}"


def parse_lora(text: str) -> LoraSize:
    """Parse RANK or RANK,ALPHA. Raises UsageError for anything else.

    >>> parse_lora("8"), str(parse_lora("8,4"))
    (LoraSize(rank=8, alpha=16), '8,4')
    """
    first, comma, second = text.partition(",")
    try:
        rank = parse_whole_number(first)
        alpha = parse_number(second) if comma else USUAL_FACTOR * rank
    except ValueError:
        rank, alpha = 0, 0
    if not (0 < rank < 2**31 and 0 < alpha <= 1e30):
        raise UsageError(
            f"--lora {text!r} is not RANK or RANK,ALPHA with a whole number of at least 1 and a "
            "number above 0, such as 8 or 8,16"
        )
    return LoraSize(rank, alpha)


def adapted(names: Iterable[str], tower: str = "") -> list[str]:
    """The names of the weights that have adapters, of both towers or of `image` or `text`.

    >>> adapted(["logit_scale", "visual.transformer.resblocks.0.mlp.c_fc.weight"], "image")
    ['visual.transformer.resblocks.0.mlp.c_fc.weight']
    """
    towers = [_TOWERS[tower]] if tower else _TOWERS.values()
    pattern = re.compile(f"({'|'.join(towers)}){_MATRICES}")
    return [name for name in names if pattern.fullmatch(name)]


WEIGHTS_FILE = "open_clip_model.safetensors"  # of models.dual_encoder, which imports torch


def check_lora(request: TrainRequest) -> None:
    """Raise UsageError where adapters of the rank cannot hold what the run would train."""
    if request.settings.lora is None:
        return
    size, previous = parse_lora(request.settings.lora), request.previous
    if previous is None:
        raise UsageError(
            "--lora needs --previous: adapters change a model that has learned; 'vlcpctl "
            "import-checkpoint' makes a checkpoint of a pretrained one"
        )
    _check_methods(request.methods, first=False)
    shapes = _shapes(previous)
    for tower in ("image", "text"):
        if not adapted(shapes, tower):
            raise UsageError(
                f"--lora is for open_clip's transformers: the {tower} encoder of {request.model} "
                "has none; train all its weights, without --lora"
            )
    name = min(adapted(shapes), key=lambda one: min(shapes[one]))
    if size.rank > min(shapes[name]):
        raise UsageError(
            f"--lora {request.settings.lora}: the rank is above {min(shapes[name])}, the smaller "
            f"side of {name}; use a smaller one"
        )


def lora_lines(request: TrainRequest) -> Iterator[str]:
    """The line of the plan about the weights that train; none without --lora."""
    if request.settings.lora is None or request.previous is None:
        return
    size, shapes = parse_lora(request.settings.lora), _shapes(request.previous)
    names = adapted(shapes)
    trained = sum(size.rank * sum(shapes[name]) for name in names)
    weights = sum(map(math.prod, shapes.values()))
    yield (
        f"lora: rank {size.rank}, alpha {size.alpha:g}, in {len(names)} matrices: {trained} "
        f"weights train, beside the model's {weights}"
    )


def _check_methods(methods: Sequence[Method], *, first: bool) -> None:
    for method in methods:
        if type(method).replace_gradients is not Method.replace_gradients:
            raise UsageError(
                f"--lora cannot be used with method {method.name}, which replaces the gradients of "
                "the weights: adapters would change the weights in other directions than these; "
                "train all weights, without --lora"
            )
        if method.overwrites:
            raise UsageError(
                f"--lora cannot be used with method {method.name}, whose hooks change the weights "
                "themselves: an adapter of fixed rank cannot hold that"
                f"{method.overwrites_unless and f'; give --set {method.overwrites_unless}'}"
            )
        if any(phase.weights for phase in method.phases(first=first)):
            raise UsageError(
                f"--lora cannot be used with method {method.name}, which trains a second model "
                "beside this one"
            )


def _shapes(checkpoint: Path) -> Mapping[str, tuple[int, ...]]:
    """The shapes of a dual encoder's weights and buffers, by name; {} of a fusion model."""
    if fusion_configuration(str(checkpoint)) is not None:
        return {}
    path = checkpoint / WEIGHTS_FILE
    with reading(path, error=Incompatible), safe_open(path, "numpy") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in sorted(file.keys())}

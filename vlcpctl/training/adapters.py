"""Whether a model and its methods can train with `--lora`, and how many weights. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from safetensors import safe_open

from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.core.method import Method
from vlcpctl.files.inputs import reading
from vlcpctl.models.configuration import fusion_configuration
from vlcpctl.training.config.lora import LoraSize, adapted, parse_lora
from vlcpctl.training.config.request import TrainRequest

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
    """Lines of the plan: the weights that train, and an adapter that is not written."""
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
    for method in request.methods:
        if method.keeps:
            yield (
                f"note: {method.name} writes an average of weights, whose change has no rank: the "
                "checkpoint has no adapter beside it"
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


def size_of(request: TrainRequest) -> LoraSize | None:
    """The size of the adapters; None without --lora."""
    return None if request.settings.lora is None else parse_lora(request.settings.lora)

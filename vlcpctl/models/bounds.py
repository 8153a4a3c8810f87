"""Bounds of model configurations, which others may have written. Imports no torch.

A configuration beyond them is refused before memory is allocated for its model. A size (a width, a
length, a side of an image) is at most MOST_SIZE, layers and heads are at most MOST_LAYERS, ids and
vocabularies at most MOST_WORDS. The estimated weights, in single precision, must fit into the
machine's memory. The largest model of open_clip, with 5 billion weights, is within these bounds.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from vlcpctl.core.errors import BadInput

MOST_SIZE = 65_536
MOST_LAYERS = 1000
MOST_WORDS = 10_000_000

_WEIGHT_BYTES = 4
_BOUNDS = {"layers": MOST_LAYERS, "heads": MOST_LAYERS, "vocab_size": MOST_WORDS}
_RESNET_WIDENS = 32  # the last channels of open_clip's ResNets, as a multiple of their width


def check_numbers(config: Mapping[str, Any], what: str) -> None:
    """Raise BadInput, naming the setting, if a number anywhere in a configuration is too large."""
    for name, value in _numbers(config, ""):
        last = name.rpartition(".")[2]
        most = MOST_WORDS if last.endswith("_id") else _BOUNDS.get(last, MOST_SIZE)
        if not math.isfinite(value) or abs(value) > most:
            raise BadInput(f"{what}: {name} is {value}; it must be at most {most}")


def check_weights(count: float, what: str) -> None:
    """Raise BadInput if so many weights do not fit into the machine's memory."""
    size, memory = count * _WEIGHT_BYTES, _memory()
    if size > memory:
        raise BadInput(
            f"{what}: a model of these sizes would take {size / 2**30:.0f} GiB of memory, and this "
            f"machine has {memory / 2**30:.0f} GiB"
        )


def dual_weights(model: Mapping[str, Any]) -> float:
    """Roughly how many weights a dual encoder has, by an open_clip configuration within bounds.

    Towers of timm and transformers, whose sizes are not in it, count as none.
    """
    vision, text = model["vision_cfg"], model["text_cfg"]
    wide, patch = _number(vision, "width"), _number(vision, "patch_size")
    layers = vision.get("layers")
    image: float
    if isinstance(layers, list):  # a ResNet: one number of blocks for each of its stages
        stages = [count for count in layers if isinstance(count, int)]
        image = sum(17 * wide * wide * (1 << 2 * at) * count for at, count in enumerate(stages[:8]))
        wide *= _RESNET_WIDENS
    else:
        ratio = _number(vision, "mlp_ratio", 4)
        image = transformer_weights(wide, _number(vision, "layers"), ratio) + 3 * wide * patch**2
    narrow = _number(text, "width")
    words = transformer_weights(narrow, _number(text, "layers"), _number(text, "mlp_ratio", 4))
    words += narrow * (_number(text, "vocab_size") + _number(text, "context_length"))
    return image + words + _number(model, "embed_dim") * (wide + narrow)


def transformer_weights(width: float, layers: float, ratio: float = 4) -> float:
    """How many weights a transformer's layers have; `ratio` is feed-forward width by width."""
    return (4 + 2 * ratio) * width * width * layers


def _number(config: Mapping[str, Any], name: str, default: float = 0) -> float:
    value = config.get(name, default)
    return value if isinstance(value, int | float) else default


def _numbers(value: Any, name: str) -> Iterator[tuple[str, float]]:
    """All numbers in a JSON value, each with its dotted name."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _numbers(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _numbers(inner, name)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, value


def _memory() -> float:
    """The machine's memory in bytes; infinite where the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return math.inf

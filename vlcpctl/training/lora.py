"""`--lora`: the size of low-rank adapters, and the weights that have one. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from safetensors import safe_open

from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.core.words import parse_number, parse_whole_number
from vlcpctl.files.inputs import reading
from vlcpctl.models.configuration import fusion_configuration

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

    >>> parse_lora("8"), str(parse_lora("8,0.5"))
    (LoraSize(rank=8, alpha=16), '8,0.5')
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


def adapted_names(names: Iterable[str], tower: str = "") -> list[str]:
    """The names of the weights that have adapters, of both towers or of `image` or `text`.

    >>> adapted_names(["logit_scale", "visual.transformer.resblocks.0.mlp.c_fc.weight"], "image")
    ['visual.transformer.resblocks.0.mlp.c_fc.weight']
    """
    towers = [_TOWERS[tower]] if tower else _TOWERS.values()
    pattern = re.compile(f"({'|'.join(towers)}){_MATRICES}")
    return [name for name in names if pattern.fullmatch(name)]


WEIGHTS_FILE = "open_clip_model.safetensors"  # of models.dual_encoder, which imports torch


def adapted_shapes(checkpoint: Path) -> Mapping[str, tuple[int, ...]]:
    """The shapes of a dual encoder's adapted weights, by name; {} of a fusion model."""
    if fusion_configuration(str(checkpoint)) is not None:
        return {}
    path = checkpoint / WEIGHTS_FILE
    with reading(path, error=Incompatible), safe_open(path, "numpy") as file:
        return {
            name: tuple(file.get_slice(name).get_shape())
            for name in sorted(adapted_names(file.keys()))
        }

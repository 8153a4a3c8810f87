"""The image side of a fusion model: a vision transformer of timm without a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vlcpctl.core.errors import Incompatible
from vlcpctl.models.checkpoint_files import WEIGHT_SUFFIXES
from vlcpctl.models.fusion.configuration import ELSEWHERE, ImageConfig
from vlcpctl.models.hub import quietly, why_unavailable
from vlcpctl.models.imports import timm_parts
from vlcpctl.models.weight_files import read_weights

if TYPE_CHECKING:  # importing timm takes a second
    from timm.models.vision_transformer import VisionTransformer

POSITIONS = "pos_embed"
CLASSIFIER = ("head.", "head_dist.")


def new_image_encoder(config: ImageConfig) -> VisionTransformer:
    """A vision transformer with random weights; [CLS] first, exact GELU, norm epsilon 1e-6."""
    with timm_parts():
        from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        img_size=config.image_size,
        patch_size=config.patch_size,
        embed_dim=config.width,
        depth=config.layers,
        num_heads=config.heads,
        mlp_ratio=config.mlp_ratio,
        num_classes=0,
    )


def fit_positions(tensors: Mapping[str, Tensor], encoder: VisionTransformer) -> dict[str, Tensor]:
    """The tensors with their position embeddings (1, N, C) interpolated to the encoder's grid."""
    from timm.layers.pos_embed import resample_abs_pos_embed

    held, own = tensors.get(POSITIONS), encoder.pos_embed
    if held is None or own is None or held.shape == own.shape or held.shape[2:] != own.shape[2:]:
        return dict(tensors)  # the caller reports any other misfit
    grid = encoder.patch_embed.grid_size
    return {**tensors, POSITIONS: resample_abs_pos_embed(held, new_size=list(grid))}


def image_tensors(name: str, encoder: VisionTransformer) -> dict[str, Tensor]:
    """The weights of a timm model or of a file, without the classifier.

    Position embeddings are interpolated to the encoder's patch grid. Raises Incompatible if the
    weights cannot be loaded, or belong to a model that is not such a vision transformer.
    """
    is_file = Path(name).suffix in WEIGHT_SUFFIXES or Path(name).is_file()
    tensors = read_weights(Path(name)).tensors if is_file else _of_timm(name, encoder)
    kept = {n: tensor for n, tensor in tensors.items() if not n.startswith(CLASSIFIER)}
    return fit_positions(kept, encoder)


def _of_timm(name: str, encoder: VisionTransformer) -> dict[str, Tensor]:
    """The weights of a timm model by name, downloaded if necessary."""
    import timm

    with quietly(), torch.random.fork_rng(devices=[]):
        try:
            found: Any = timm.create_model(name, pretrained=True, num_classes=0)
        except (OSError, RuntimeError) as error:
            raise _unavailable(name, error) from error
    if not isinstance(found, type(encoder)) or _heads(found) != _heads(encoder):
        wanted = f"vision transformer with {_heads(encoder)} heads"
        raise Incompatible(f"the timm model {name!r} is not a {wanted}")
    return dict(found.state_dict())


def _heads(encoder: VisionTransformer) -> int:
    """The number of attention heads, which no tensor's shape shows."""
    block: Any = encoder.blocks[0]
    return int(block.attn.num_heads)


def _unavailable(name: str, error: Exception) -> Incompatible:
    return Incompatible(
        f"cannot load the image encoder {name!r} from timm: {why_unavailable(error)}; {ELSEWHERE}"
    )

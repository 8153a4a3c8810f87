"""The image side of a fusion model: a vision transformer of timm, without its classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from vlcpctl.models.fusion.configuration import ImageConfig

if TYPE_CHECKING:  # importing timm takes a second
    from timm.models.vision_transformer import VisionTransformer

POSITIONS = "pos_embed"


def new_image_encoder(config: ImageConfig) -> VisionTransformer:
    """A transformer with the [CLS] token first; GELU is exact, norms have an epsilon of 1e-6."""
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
    """The tensors, their position embeddings interpolated to the encoder's number of patches."""
    from timm.layers.pos_embed import resample_abs_pos_embed

    held, own = tensors.get(POSITIONS), encoder.pos_embed
    if held is None or own is None or held.shape == own.shape or held.shape[2:] != own.shape[2:]:
        return dict(tensors)  # what does not fit for another reason is named where it is loaded
    grid = encoder.patch_embed.grid_size
    return {**tensors, POSITIONS: resample_abs_pos_embed(held, new_size=list(grid))}

"""How an image is prepared for a model, and how training augments it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

INTERPOLATIONS = ("bicubic", "bilinear")
RESIZE_MODES = ("shortest", "longest", "squash")
EXACT, SCALED = "exact", "scaled"
# How JPEGs are decoded: whole, or scaled down by the decoder to what the view needs.
JPEG_DECODINGS = (EXACT, SCALED)
PILLOW, TORCH = "pillow", "torch"
# What resizes training images. Evaluation resizes with Pillow, as open_clip does.
RESIZERS = (PILLOW, TORCH)


@dataclass(frozen=True, kw_only=True)
class ImageTransform:
    """Size in pixels, resizing and channel statistics of the model; then training's augmentation.

    `mean` and `std` are per channel, for pixels in [0, 1]; the other names are open_clip's.
    """

    image_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    interpolation: str = "bicubic"
    resize_mode: str = "shortest"
    fill_color: int = 0
    crop: str = "center"
    crop_scale: tuple[float, float] = (0.2, 1.0)
    flip: bool = False
    randaugment: tuple[int, int] | None = None
    jpeg_decode: str = EXACT
    resize: str = PILLOW

    @property
    def varies(self) -> bool:
        """Whether training augments an image differently at every visit."""
        return self.crop == "random" or self.flip or self.randaugment is not None

    def facts(self) -> dict[str, Any]:
        """The settings that affect the pixels, by name.

        Without random crops the crop scale has no effect, so it is None. Version 0.2.0 did not know
        `resize`, so Pillow is left out.
        """
        facts = asdict(self)
        if self.resize == PILLOW:
            del facts["resize"]
        return facts if self.crop == "random" else {**facts, "crop_scale": None}

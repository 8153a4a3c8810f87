"""How the linear probe of Mod-X's authors sees images, and the features that it is trained on.

From their released program (linear_evaluation_ddp/evaluate_clip.py); the paper (Ni et al., ICML
2023, Section A.3) says only that a linear layer is trained behind the fixed image encoder. Shapes:
B images of H x W pixels, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vlcpctl.core.device_copies import copied_ahead, to_device
from vlcpctl.core.transform import EXACT, ImageTransform
from vlcpctl.data.classification.labelled_images import Flaw
from vlcpctl.data.loading.eval_batches import (
    AugmentedBatches,
    LabelledBatch,
    LabelledBatches,
    read_labelled,
)
from vlcpctl.evaluation.classification.labelled_sets import Way
from vlcpctl.evaluation.search.index import Ids, Vectors
from vlcpctl.models.encoders import Encoder

# The shorter side of a test image is resized to 256 pixels, of which the centre of 224 is cut out.
_RESIZED, _CROPPED = 256, 224
_CROP_SCALE = (0.08, 1.0)  # share of the area of a random resized crop: torchvision's default
# Channel statistics of ImageNet, whatever those that the model was trained with.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def train_view(own: ImageTransform) -> ImageTransform:
    """A random resized crop of the model's image size, flipped half of the time."""
    return replace(_common(own), crop="random", crop_scale=_CROP_SCALE, flip=True)


def test_view(own: ImageTransform) -> ImageTransform:
    """The image at 256 / 224 of the model's image size; `RawWork` cuts out its centre."""
    return replace(_common(own), image_size=round(own.image_size * _RESIZED / _CROPPED))


def _common(own: ImageTransform) -> ImageTransform:
    return replace(
        own,
        mean=_MEAN,
        std=_STD,
        interpolation="bilinear",
        resize_mode="shortest",
        crop="center",
        flip=False,
        randaugment=None,
        jpeg_decode=EXACT,
    )


@dataclass(frozen=True)
class RawWork:
    """Work that embeds batches of labelled images: rows (B,), features (B, D) and flaws.

    The features are the projections of the image encoder as they are, not of unit length.
    """

    batches: LabelledBatches | AugmentedBatches
    workers: int

    def share(self, numbers: Sequence[int]) -> RawWork:
        """See `Work`."""
        return self

    def results(
        self, encoder: Encoder, numbers: Sequence[int]
    ) -> Iterator[tuple[Ids, Vectors, list[Flaw]]]:
        """See `Work`."""
        encoder.module.eval()
        pins = encoder.device.type == "cuda"
        read = read_labelled(self.batches, self.workers, numbers, pins=pins)
        for batch in copied_ahead(read, encoder.device, LabelledBatch.moved):
            yield batch.rows, self._features(encoder, batch.pixels), batch.flaws

    @torch.inference_mode()
    def _features(self, encoder: Encoder, images: Tensor) -> Vectors:
        if not len(images):
            return torch.empty(0, encoder.width).numpy()
        own = encoder.transform.image_size
        edge = round((images.shape[1] - own) / 2)
        cut = images[:, edge : edge + own, edge : edge + own]
        view = self.batches.transform
        pixels = normalised(cut, view.mean, view.std, next(encoder.module.parameters()))
        features, _ = encoder.features(pixels, None)
        assert features is not None
        found: Vectors = features.float().cpu().numpy()
        return found


def normalised(images: Tensor, mean: Sequence[float], std: Sequence[float], like: Tensor) -> Tensor:
    """Pixels (B, 3, H, W) of bytes (B, H, W, 3), normalised by channel, on the device of `like`."""
    statistics = torch.tensor((mean, std), dtype=torch.float64)
    mean_C, std_C = to_device(statistics, like.device).to(like.dtype)
    scaled = to_device(images, like.device).to(like.dtype) / 255
    return scaled.sub(mean_C).div(std_C).permute(0, 3, 1, 2)


TEST = Way("images of Mod-X's probe", test_view, RawWork)

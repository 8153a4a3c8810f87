"""From an encoded image to the pixels that a model gets: decode, augment, resize.

The random parameters of a view come from a generator seeded with (seed, key, visit), so a view
does not depend on the order, process or run in which it is made. torch's kernel for bytes resizes
several times as fast as Pillow on a CPU with AVX2. Both average over the pixels that one of the
result covers, with the same filters; they round at other places, so that they differ by at most a
few of 255 levels. Its result is the same with and without vector instructions and for any number of
threads (tests/data/images/test_resizing.py).
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageOps

from vlcpctl.core.errors import BadInput, first_line
from vlcpctl.core.seeds import generator
from vlcpctl.core.transform import PILLOW, TORCH, ImageTransform
from vlcpctl.data.images.header import DECODING_FAILS, read_header, with_image
from vlcpctl.data.images.randaugment import randaugment

if TYPE_CHECKING:
    from torch import Tensor

_DECODING_FAILS = (*DECODING_FAILS, Image.DecompressionBombError)
# Pillow's warnings about damaged metadata take several lines, and do not concern the pixels.
warnings.filterwarnings("ignore", module=r"PIL\.")

FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


Size = tuple[int, int]  # width and height in pixels
Box = tuple[float, float, float, float]  # left, upper, right and lower edge in pixels
Reduction = Callable[[Size], int]  # by how much a JPEG of a size may be reduced: 1, 2, 4 or 8
_LOG_RATIOS = (np.log(3 / 4), np.log(4 / 3))  # of the width of a random crop to its height
_REDUCTIONS = (8, 4, 2, 1)
_QUALITY = 82  # of small pictures as JPEG
_LONG = 16  # how often a side has the other one from where the crop is taken before resizing
_BYTES_OF_A_PIXEL = 4  # Pillow stores RGB with a byte to spare


@dataclass(frozen=True)
class Decoded:
    """A decoded RGB image; `pixels` are at 1 / `reduction` of the size that the file has."""

    pixels: Image.Image
    size: Size  # of the encoded image
    reduction: int = 1
    asked: int | None = None  # the reduction wanted for a JPEG; None: not one, so it was ignored

    @property
    def n_bytes(self) -> int:
        """The memory that the pixels take."""
        return _BYTES_OF_A_PIXEL * self.pixels.width * self.pixels.height

    def fits(self, reduction: Reduction) -> bool:
        """Whether decoding the image with `reduction` would give these pixels."""
        return self.asked is None or self.asked == reduction(self.size)

    def resize(
        self, target: Size, interpolation: str, box: Box | None = None, by: str = PILLOW
    ) -> Image.Image:
        """The part of the image in `box`, by default all of it, resized to `target`.

        `box` is in pixels of the encoded image; `by` is what resizes, pillow or torch.
        """
        # The decoder rounds sizes up, so that the last row or column of pixels may lie partly
        # outside of a reduced image; the box has the true edges.
        left, upper, right, lower = (edge / self.reduction for edge in (box or (0, 0, *self.size)))
        within = (left, upper, right, lower)
        if by == TORCH:
            return resized_by_torch(self.pixels, target, interpolation, within)
        return self.pixels.resize(target, FILTERS[interpolation], box=within)


def decode_image(data: bytes, what: str = "image") -> Image.Image:
    """Decode to an RGB image; `what` names the image in messages.

    For an animation it is the first frame. EXIF orientation is ignored, as open_clip and the tools
    around it do, so that embeddings stay comparable.

    Raises BadInput if it is damaged or too large; a size above the limit is found in the header,
    before any pixel is decoded.
    """
    return decode_reduced(data, not_reduced, what).pixels


def not_reduced(size: Size) -> int:
    """The reduction that decodes every pixel, which is 1 for an image of any size."""
    del size
    return 1


def decode_reduced(data: bytes, reduction: Reduction, what: str = "image") -> Decoded:
    """As `decode_image`, but a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size.

    `reduction` maps the size of the encoded image to 1, 2, 4 or 8. Fewer pixels are computed: the
    decoder uses only the low frequencies of each block. Raises BadInput as `decode_image` does.
    """
    try:
        kind, width, height = read_header(data)
        by = reduction((width, height)) if kind == "jpg" else None
        if by is not None and by > 1:
            # A lossless JPEG has no frequencies to leave out, so it is decoded whole; a damaged
            # file fails again, with the message that does not depend on the reduction.
            with suppress(*_DECODING_FAILS):
                return Decoded(_decoded(data, by), (width, height), by, by)
        pixels = _decoded(data)
        return Decoded(pixels, pixels.size, asked=by)
    except _DECODING_FAILS as error:
        raise BadInput(f"{what} cannot be decoded: {first_line(error)}") from error


def _decoded(data: bytes, reduction: int = 1) -> Image.Image:
    def pixels(image: Image.Image) -> Image.Image:
        if reduction > 1:
            # The mode None leaves the channels as they are; the size gives this very reduction.
            image.draft(None, (image.width // reduction, image.height // reduction))
        return _rgb(image)

    return with_image(data, pixels)


def small_jpeg(data: bytes, edge: int, what: str = "image") -> bytes:
    """An encoded image as a JPEG of at most `edge` pixels at each edge, to be looked at.

    The ratio of its edges stays, smaller images are not enlarged, comments and profiles are left
    out. Raises BadInput as `decode_image` does.
    """

    def reduction(size: Size) -> int:
        """For a JPEG: twice the pixels to spare."""
        return next((by for by in _REDUCTIONS if max(size) // by >= 2 * edge), 1)

    small = decode_reduced(data, reduction, what).pixels
    small.thumbnail((edge, edge))
    file = io.BytesIO()
    Image.fromarray(np.asarray(small)).save(file, "JPEG", quality=_QUALITY)
    return file.getvalue()


def eval_view(image: Image.Image, transform: ImageTransform) -> np.ndarray:
    """(H, W, 3) uint8: the image as open_clip's evaluation transform resizes and crops it."""
    return _eval_view(Decoded(image, image.size), transform)


def train_view(
    image: Image.Image, transform: ImageTransform, seed: int, key: str, visit: int
) -> np.ndarray:
    """(H, W, 3) uint8: the augmented view of a whole image on its `visit`-th use, from 0."""
    return TrainView(transform, seed, key, visit).render(Decoded(image, image.size))


class TrainView:
    """The augmented view of an image on its `visit`-th use, from 0; render it once.

    The crop is drawn from the size of the encoded image, before that is decoded. So a view depends
    on (seed, key, visit) alone, and the decoder can leave out pixels that the crop does not need.
    """

    def __init__(self, transform: ImageTransform, seed: int, key: str, visit: int) -> None:
        self.transform = transform
        self._names = (seed, "view", key, visit)
        self._drawn: tuple[Size, np.random.Generator, Box | None] | None = None

    def reduction(self, size: Size) -> int:
        """By how much a JPEG of this size may be reduced when it is decoded: 1, 2, 4 or 8.

        1 unless the transform allows it. The part of the image that is used keeps at least as many
        pixels as the view has, so resizing never enlarges what was reduced.
        """
        if self.transform.jpeg_decode == "exact":
            return 1
        box = self._draw(size)[1] if self.transform.varies else None
        return reduction_of(size, self.transform, box)

    def render(self, image: Decoded) -> np.ndarray:
        """(H, W, 3) uint8: the view of the image."""
        transform = self.transform
        if not transform.varies:
            return _unaugmented(image, transform)
        draw, box = self._draw(image.size)
        if box is not None:
            size = (transform.image_size,) * 2
            view = image.resize(size, transform.interpolation, box, transform.resize)
        elif transform.crop == "random":
            view = Image.fromarray(_eval_view(image, transform))
        else:
            view = Image.fromarray(_unaugmented(image, transform))
        if transform.flip and draw.random() < 0.5:
            view = ImageOps.mirror(view)
        if transform.randaugment is not None:
            view = randaugment(view, *transform.randaugment, draw)
        return np.asarray(view)

    def _draw(self, size: Size) -> tuple[np.random.Generator, Box | None]:
        """The generator, and the box of a random crop that it has drawn; None without such a crop.

        The box is drawn once per image: `render` continues with the generator of `reduction`.
        """
        if self._drawn is None or self._drawn[0] != size:
            draw, transform = generator(*self._names), self.transform
            box = _random_box(size, transform, draw) if transform.crop == "random" else None
            self._drawn = (size, draw, box)
        return self._drawn[1:]


def reduction_of(size: Size, transform: ImageTransform, box: Box | None = None) -> int:
    """By how much an image of this size may be reduced, if `box` of it, or all, is resized."""
    if box is not None:
        used, target = (box[2] - box[0], box[3] - box[1]), (transform.image_size,) * 2
    else:
        used = size
        target = (
            (transform.image_size,) * 2 if transform.crop == "none" else _target(size, transform)
        )
    most = max(1, min(one // other for one, other in zip(used, target, strict=True)))
    return next(by for by in _REDUCTIONS if by <= most)


def most_bytes(widths: np.ndarray, heights: np.ndarray, transform: ImageTransform) -> int:
    """The most memory in bytes that images of these sizes take, decoded for views of training.

    `widths` and `heights` are (N,) pixels. Scaled decoding counts all images as JPEGs.
    """
    pixels = widths.astype(np.float64) * heights
    if transform.jpeg_decode != "exact":
        longest = transform.crop == "center" and transform.resize_mode == "longest"
        sides = np.maximum(widths, heights) if longest else np.minimum(widths, heights)
        # A crop of a share s of the area keeps at least a share s of each side.
        kept = transform.crop_scale[0] if transform.crop == "random" else 1.0
        times = sides * kept / transform.image_size
        pixels /= np.exp2(np.floor(np.log2(np.clip(times, 1, _REDUCTIONS[0])))) ** 2
    return _BYTES_OF_A_PIXEL * int(pixels.sum())


def _rgb(image: Image.Image) -> Image.Image:
    """Convert to RGB: transparency becomes white, 16-bit channels are reduced to their upper 8."""
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in {"RGBA", "LA", "PA"} or "transparency" in image.info:
        solid = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(solid, image.convert("RGBA")).convert("RGB")
    if image.mode == "RGB" and image.format == "JPEG":
        image.load()
        return image  # convert would copy it; readers of animations are not images of their own
    return image.convert("RGB")


def _unaugmented(image: Decoded, transform: ImageTransform) -> np.ndarray:
    """The evaluation view; or, with crop "none", the whole image squashed to a square."""
    if transform.crop == "none":
        return np.asarray(_resized(image, (transform.image_size,) * 2, transform))
    return _eval_view(image, transform)


def _eval_view(image: Decoded, transform: ImageTransform) -> np.ndarray:
    size = transform.image_size
    if image.size == (size, size):
        return np.asarray(image.pixels)
    target = _target(image.size, transform)
    if max(target) > _LONG * size:  # an image of 1 x 12,000 pixels would become one of gigabytes
        box = _center_box(image.size, target, size)
        return np.asarray(
            image.resize((size, size), transform.interpolation, box, transform.resize)
        )
    resized = _resized(image, target, transform)
    if transform.resize_mode == "longest":
        solid = Image.new("RGB", (size, size), (transform.fill_color,) * 3)
        solid.paste(resized, ((size - resized.width) // 2, (size - resized.height) // 2))
        return np.asarray(solid)
    if transform.resize_mode == "shortest":
        left, top = round((resized.width - size) / 2.0), round((resized.height - size) / 2.0)
        return np.asarray(resized.crop((left, top, left + size, top + size)))
    return np.asarray(resized)


def _target(size: Size, transform: ImageTransform) -> Size:
    """The size that the evaluation view resizes a whole image of this size to."""
    side, (width, height) = transform.image_size, size
    if transform.resize_mode == "squash":
        return side, side
    if transform.resize_mode == "longest":
        factor = side / max(size)
        return max(1, round(width * factor)), max(1, round(height * factor))
    if width <= height:
        return side, int(side * height / width)
    return int(side * width / height), side


def _center_box(size: Size, target: Size, side: int) -> Box:
    """The part of an image that the central square of `side` pixels has of it at size `target`."""
    left, top = (round((one - side) / 2.0) for one in target)
    wide, high = (one / other for one, other in zip(size, target, strict=True))
    return left * wide, top * high, (left + side) * wide, (top + side) * high


def _resized(image: Decoded, target: Size, transform: ImageTransform) -> Image.Image:
    if image.size == target:
        return image.pixels
    return image.resize(target, transform.interpolation, by=transform.resize)


def _random_box(size: Size, transform: ImageTransform, draw: np.random.Generator) -> Box | None:
    """The box of a random resized crop (Szegedy et al., 2015); None if 10 draws do not fit."""
    width, height = size
    for _ in range(10):
        area = width * height * draw.uniform(*transform.crop_scale)
        ratio = np.exp(draw.uniform(*_LOG_RATIOS))
        w, h = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(draw.integers(0, width - w + 1)), int(draw.integers(0, height - h + 1))
            return left, top, left + w, top + h
    return None


# -- resizing by torch


def resized_by_torch(
    image: Image.Image, target: tuple[int, int], interpolation: str, box: Box
) -> Image.Image:
    """The part of an RGB image in `box`, resized to `target`, (width, height).

    The edges of the box are rounded to whole pixels.
    """
    from torch.nn.functional import interpolate

    left, upper = (max(0, round(edge)) for edge in box[:2])
    right, lower = max(left + 1, round(box[2])), max(upper + 1, round(box[3]))
    part = _pixels(image)[upper:lower, left:right]
    # Channels last, which the kernel reads and writes as they are. A batch dimension that is added
    # after the permutation has a stride that hides it: the result is planar, and slow to read.
    pixels_last = part[None].permute(0, 3, 1, 2)
    found = interpolate(pixels_last, target[::-1], mode=interpolation, antialias=True)
    pixels = found[0].permute(1, 2, 0).numpy()
    mode = "RGBX" if pixels.shape[2] == 4 else "RGB"
    return Image.frombytes("RGB", target, np.ascontiguousarray(pixels), "raw", mode)


def _pixels(image: Image.Image) -> Tensor:
    """(H, W, C) uint8: the pixels of an RGB image, with a channel to spare if C is 4."""
    import pyarrow as pa
    import torch
    from torch.utils.dlpack import from_dlpack

    try:  # as Pillow stores them, without a copy
        flat = pa.array(image).values
    except ValueError:  # in several blocks, as images of more than 16 MB are
        return torch.from_numpy(np.array(image))  # that torch may write to, or it warns
    return from_dlpack(flat).view(image.height, image.width, -1)

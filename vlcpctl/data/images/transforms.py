"""From an encoded image to the pixels that a model gets: decode, augment, resize.

The random parameters of a view come from a generator seeded with (seed, key, visit), so a view
does not depend on the order, process or run in which it is made.
"""

from __future__ import annotations

import io
import warnings

import numpy as np
from PIL import Image, ImageOps

from vlcpctl.core.errors import BadInput, first_line
from vlcpctl.core.seeds import generator
from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.images.header import DECODING_FAILS, FORMATS, read_header
from vlcpctl.data.images.randaugment import randaugment

_DECODING_FAILS = (*DECODING_FAILS, Image.DecompressionBombError)
# Pillow's warnings about damaged metadata take several lines, and do not concern the pixels.
warnings.filterwarnings("ignore", module=r"PIL\.")

FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


def decode_image(data: bytes, what: str = "image") -> Image.Image:
    """Decode to an RGB image; `what` names the image in messages.

    For an animation it is the first frame. EXIF orientation is ignored, as open_clip and the tools
    around it do, so that embeddings stay comparable.

    Raises BadInput if it is damaged or too large; a size above the limit is found in the header,
    before any pixel is decoded.
    """
    try:
        read_header(data)
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            return _rgb(image)
    except _DECODING_FAILS as error:
        raise BadInput(f"{what} cannot be decoded: {first_line(error)}") from error


def eval_view(image: Image.Image, transform: ImageTransform) -> np.ndarray:
    """(H, W, 3) uint8: the image as open_clip's evaluation transform resizes and crops it."""
    size = transform.image_size
    if image.size == (size, size):
        return np.asarray(image)
    if transform.resize_mode == "squash":
        return _squashed(image, transform)
    if transform.resize_mode == "longest":
        return _padded(_scaled(image, size / max(image.size), transform), transform)
    return _center(_shortest(image, transform), size)


def train_view(
    image: Image.Image, transform: ImageTransform, seed: int, key: str, visit: int
) -> np.ndarray:
    """(H, W, 3) uint8: the augmented view of an image on its `visit`-th use, from 0."""
    if not transform.varies:
        return _unaugmented(image, transform)
    draw = generator(seed, "view", key, visit)
    if transform.crop == "random":
        image = _random_crop(image, transform, draw)
    else:
        image = Image.fromarray(_unaugmented(image, transform))
    if transform.flip and draw.random() < 0.5:
        image = ImageOps.mirror(image)
    if transform.randaugment is not None:
        image = randaugment(image, *transform.randaugment, draw)
    return np.asarray(image)


def _rgb(image: Image.Image) -> Image.Image:
    """Convert to RGB: transparency becomes white, 16-bit channels are reduced to their upper 8."""
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in {"RGBA", "LA", "PA"} or "transparency" in image.info:
        solid = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(solid, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def _unaugmented(image: Image.Image, transform: ImageTransform) -> np.ndarray:
    """The evaluation view; or, with crop "none", the whole image squashed to a square."""
    return _squashed(image, transform) if transform.crop == "none" else eval_view(image, transform)


def _squashed(image: Image.Image, transform: ImageTransform) -> np.ndarray:
    size = (transform.image_size, transform.image_size)
    return np.asarray(
        image if image.size == size else image.resize(size, FILTERS[transform.interpolation])
    )


def _shortest(image: Image.Image, transform: ImageTransform) -> Image.Image:
    width, height = image.size
    size = transform.image_size
    if width <= height:
        target = (size, int(size * height / width))
    else:
        target = (int(size * width / height), size)
    return image if image.size == target else image.resize(target, FILTERS[transform.interpolation])


def _center(image: Image.Image, size: int) -> np.ndarray:
    left = round((image.width - size) / 2.0)
    top = round((image.height - size) / 2.0)
    return np.asarray(image.crop((left, top, left + size, top + size)))


def _scaled(image: Image.Image, factor: float, transform: ImageTransform) -> Image.Image:
    target = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
    return image.resize(target, FILTERS[transform.interpolation])


def _padded(image: Image.Image, transform: ImageTransform) -> np.ndarray:
    size = transform.image_size
    solid = Image.new("RGB", (size, size), (transform.fill_color,) * 3)
    solid.paste(image, ((size - image.width) // 2, (size - image.height) // 2))
    return np.asarray(solid)


def _random_crop(
    image: Image.Image, transform: ImageTransform, draw: np.random.Generator
) -> Image.Image:
    """Random resized crop (Szegedy et al., 2015); the evaluation view if 10 draws do not fit."""
    width, height = image.size
    for _ in range(10):
        area = width * height * draw.uniform(*transform.crop_scale)
        ratio = np.exp(draw.uniform(np.log(3 / 4), np.log(4 / 3)))
        w, h = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(draw.integers(0, width - w + 1)), int(draw.integers(0, height - h + 1))
            box = (left, top, left + w, top + h)
            return image.resize(
                (transform.image_size,) * 2, FILTERS[transform.interpolation], box=box
            )
    return Image.fromarray(eval_view(image, transform))

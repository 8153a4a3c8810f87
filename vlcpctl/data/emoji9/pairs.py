"""Write the pairs of the built-in data set: views of every glyph and their captions, as Parquet.

A view is rotated, scaled, shifted and placed on a background, with colour jitter. Every operation
on pixels is elementwise, so that the images do not depend on a BLAS or on the number of threads.
Shapes: V views, S pixels a side, C = 3 colours.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from vlcpctl.core.console import progress
from vlcpctl.core.errors import BadInput
from vlcpctl.core.seeds import generator
from vlcpctl.data.emoji9.glyphs import Glyph, plain_captions, read_glyphs, train_captions
from vlcpctl.files.finished import already_written
from vlcpctl.files.outputs import new_file

SCHEMA = pa.schema(
    [
        pa.field("image", pa.binary(), nullable=False),
        pa.field("captions", pa.list_(pa.string()), nullable=False),
        pa.field("emoji", pa.string(), nullable=False),
        pa.field("group", pa.string(), nullable=False),
        pa.field("subgroup", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("view", pa.int32(), nullable=False),
    ]
)
_SETTINGS = b"vlcpctl.sample"  # key of the Parquet metadata that stores the settings
_GLYPHS_PER_ROW_GROUP = 64


@dataclass(frozen=True, kw_only=True)
class PairSettings:
    """The settings that determine every byte of the file."""

    data_set: str = "emoji9"
    views: int = 12
    val_views: int = 0
    test_views: int = 1
    size: int = 64
    seed: int = 0
    limit: int | None = None
    groups: tuple[str, ...] = ()

    def recorded(self) -> dict[str, Any]:
        """What the file records: `val_views` and `groups` only if given, as before they existed."""
        fields: dict[str, Any] = asdict(self) | {"groups": list(self.groups)}
        return {
            name: value
            for name, value in fields.items()
            if value or name not in {"val_views", "groups"}
        }


def write_pairs(out: Path, settings: PairSettings) -> int:
    """Write the Parquet file and return the number of pairs; an earlier sample is replaced.

    Raises UsageError for a group that does not exist.
    """
    glyphs = read_glyphs(settings.limit, settings.groups)
    schema = SCHEMA.with_metadata({_SETTINGS: json.dumps(settings.recorded())})
    per_glyph = settings.views + settings.val_views + settings.test_views
    with (
        new_file(out, is_sample) as temporary,
        progress("sample", len(glyphs) * per_glyph, "views") as bar,
        # The images are already compressed; dictionary encoding suits the repeated short texts.
        pq.ParquetWriter(temporary, schema, compression="zstd", use_dictionary=_TEXTS) as writer,
    ):
        for start in range(0, len(glyphs), _GLYPHS_PER_ROW_GROUP):
            some = glyphs[start : start + _GLYPHS_PER_ROW_GROUP]
            rows = [row for glyph in some for row in _pairs(glyph, settings)]
            writer.write_table(pa.Table.from_pylist(rows, schema))
            bar.advance(len(rows))
    return len(glyphs) * per_glyph


def already_sampled(out: Path, settings: PairSettings, *, force: bool) -> bool:
    """Whether `out` already has exactly these pairs. Raises OutputExists if not, unless `force`."""
    return already_written(out, settings.recorded(), is_sample, _read_settings, force=force)


def is_sample(path: Path) -> bool:
    """Whether a file was written by `sample`, so that it may be replaced."""
    return _read_settings(path) is not None


def _read_settings(path: Path) -> dict[str, Any] | None:
    try:
        metadata = pq.read_schema(path).metadata or {}
    except (OSError, pa.ArrowInvalid):
        return None
    if _SETTINGS not in metadata:
        return None
    try:
        settings: dict[str, Any] = json.loads(metadata[_SETTINGS])
    except ValueError as error:
        raise BadInput(f"{path}: its {_SETTINGS.decode()} metadata is not JSON: {error}") from error
    return settings


def _pairs(glyph: Glyph, settings: PairSettings) -> Iterator[dict[str, Any]]:
    """One row per view of a glyph: training views, then those of validation and test."""
    places = [("train", view) for view in range(settings.views)]
    places += [("val", view) for view in range(settings.val_views)]
    places += [("test", view) for view in range(settings.test_views)]
    generators = [
        generator(settings.seed, "emoji9", split, glyph.emoji, view) for split, view in places
    ]
    draws = np.stack([rng.random(DRAWS) for rng in generators])
    images = render_views(glyph.image(), draws, settings.size)
    for (split, view), rng, image in zip(places, generators, images, strict=True):
        yield {
            "image": encode(image),
            "captions": train_captions(glyph, rng) if split == "train" else plain_captions(glyph),
            "emoji": glyph.emoji,
            "group": glyph.group,
            "subgroup": glyph.subgroup,
            "split": split,
            "view": view,
        }


_TEXTS = ["emoji", "group", "subgroup", "split", "captions.list.element"]


# -- views

DRAWS = 18  # uniform random numbers that determine one view
_TURN = (-25.0, 25.0)  # degrees
_SCALE = (0.72, 1.02)
_SHIFT = (-0.08, 0.08)  # of the side
_BRIGHTNESS = (0.8, 1.2)
_CONTRAST = (0.8, 1.2)
_SATURATION = (0.7, 1.3)
_CHANNEL = (0.92, 1.08)
_BACKGROUND = (64.0, 255.0)  # not black: some glyphs are black pictograms
_GREY = (0.299, 0.587, 0.114)


def render_views(glyph: Image.Image, draws: np.ndarray, size: int) -> np.ndarray:
    """(V, S, S, C) uint8: one view of the RGBA glyph per row of (V, DRAWS) numbers in [0, 1)."""
    # Premultiplied alpha: colours of transparent pixels do not bleed into the edges.
    small = glyph.resize((size, size), Image.Resampling.LANCZOS).convert("RGBa")
    layers = np.stack([_placed(small, draw, size) for draw in draws]).transpose(0, 3, 1, 2)
    layers = np.ascontiguousarray(layers, np.float32)  # channels first: three times as fast
    clear = 1 - layers[:, 3:] / np.float32(255)
    images = layers[:, :3] + clear * _backgrounds(draws[:, 10:18], size)
    jittered = _jittered(images, draws[:, 4:10]) + np.float32(0.5)
    return np.clip(jittered, 0, 255).astype(np.uint8).transpose(0, 2, 3, 1)


def encode(image: np.ndarray) -> bytes:
    """The (S, S, C) uint8 view as PNG bytes: lossless, and the fastest to decode at this size."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _placed(small: Image.Image, draw: np.ndarray, size: int) -> np.ndarray:
    """(S, S, 4) uint8: the glyph rotated, scaled and shifted; transparent around it."""
    turn, scale = math.radians(_between(_TURN, draw[0])), _between(_SCALE, draw[1])
    cos, sin, centre = math.cos(turn) / scale, math.sin(turn) / scale, size / 2
    x = centre + size * _between(_SHIFT, draw[2])
    y = centre + size * _between(_SHIFT, draw[3])
    output_to_input = (cos, sin, centre - cos * x - sin * y, -sin, cos, centre + sin * x - cos * y)
    placed = small.transform(
        small.size, Image.Transform.AFFINE, output_to_input, Image.Resampling.BICUBIC
    )
    return np.frombuffer(placed.tobytes(), np.uint8).reshape(size, size, 4)


def _backgrounds(draws: np.ndarray, size: int) -> np.ndarray:
    """(V, C, S, S): a plain colour in about half of the views, a ramp between two in the others."""
    colours = _between(_BACKGROUND, draws[:, :6]).astype(np.float32).reshape(-1, 2, 3, 1, 1)
    angle = (draws[:, 7] * 2 * math.pi)[:, None, None]
    along = (np.arange(size) + 0.5) / size - 0.5
    ramp = (np.cos(angle) * along + np.sin(angle) * along[:, None]) / math.sqrt(2) + 0.5
    is_plain = draws[:, 6, None, None] < 0.5
    mix = np.where(is_plain, 0, ramp).astype(np.float32)[:, None]
    return colours[:, 0] + mix * (colours[:, 1] - colours[:, 0])


def _jittered(images: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Jitter brightness, saturation, contrast around middle grey, then the gain of each channel."""
    values = draws.astype(np.float32)[:, :, None, None]
    brightness = _between(_BRIGHTNESS, values[:, 0:1])
    contrast = _between(_CONTRAST, values[:, 1:2])
    saturation = _between(_SATURATION, values[:, 2:3])
    gain = _between(_CHANNEL, values[:, 3:6])
    grey = sum(
        images[:, place : place + 1] * np.float32(share) for place, share in enumerate(_GREY)
    )
    coloured = grey + saturation * (images - grey)
    return gain * (contrast * (brightness * coloured - 128) + 128)


def _between(limits: tuple[float, float], share: np.ndarray) -> np.ndarray:
    return limits[0] + (limits[1] - limits[0]) * share

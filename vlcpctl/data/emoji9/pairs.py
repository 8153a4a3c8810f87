"""Write the pairs of the built-in data set: views of every glyph and their captions, as Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.core.console import progress
from vlcpctl.core.errors import BadInput
from vlcpctl.core.seeds import generator
from vlcpctl.data.emoji9.captions import plain_captions, train_captions
from vlcpctl.data.emoji9.glyphs import Glyph, read_glyphs
from vlcpctl.data.emoji9.views import DRAWS, encode, render_views
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

"""Make the weekly batches of recipes/production.sh: pictures of OpenMoji with descriptions.

    python recipes/production_weeks.py DIR              writes DIR/week1.parquet to week4.parquet
    python recipes/production_weeks.py DIR --weeks 6    the same pictures in six weeks

Each week has other subjects, so that every batch is new to the model. A batch is what a user would
bring: one Parquet file of images and captions, whose column `split` marks what is held out. Views
are drawn as those of Emoji-9 (rotated, scaled, on a background), 32 pixels a side. The same glyphs
give the same pairs.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from vlcpctl.core.seeds import generator
from vlcpctl.data.emoji9.glyphs import Glyph, plain_captions, train_captions
from vlcpctl.data.emoji9.pairs import DRAWS, encode, render_views

GLYPHS = Path(__file__).with_name("openmoji") / "glyphs.parquet"
SIZE = 32
VIEWS = {"train": 12, "test": 2}
WEEKS = (
    ("emergency", "healthcare", "people"),
    (
        *("animals-nature", "climate-environment", "food-drink", "gardening", "objects"),
        *("smileys-emotion", "travel-places"),
    ),
    ("interaction", "regional-indicator", "symbols", "technology", "ui-element"),
    ("flags", "queer-symbols", "subdivision-flag", "symbol-other"),
)
SIX_WEEKS = (
    ("emergency", "climate-environment"),
    ("healthcare", "animals-nature", "people", "food-drink"),
    ("symbol-other",),
    ("subdivision-flag", "flags", "regional-indicator"),
    ("ui-element", "interaction", "queer-symbols", "symbols", "smileys-emotion"),
    ("technology", "travel-places", "objects", "gardening"),
)
SCHEMA = pa.schema(
    [
        pa.field("image", pa.binary(), nullable=False),
        pa.field("captions", pa.list_(pa.string()), nullable=False),
        pa.field("emoji", pa.string(), nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
    ]
)


def read_glyphs(path: Path = GLYPHS) -> list[Glyph]:
    """The pictures, with OpenMoji's hexadecimal code in place of the emoji."""
    return [
        Glyph(
            emoji=row["code"],
            name=row["name"],
            keywords=tuple(row["keywords"]),
            group="",
            subgroup=row["subgroup"],
            webp=row["image"],
        )
        for row in pq.read_table(path).to_pylist()
    ]


def pairs_of(glyph: Glyph) -> Iterator[dict[str, Any]]:
    """One row per view of a picture: the training views, then the test views."""
    places = [(split, view) for split, count in VIEWS.items() for view in range(count)]
    generators = [generator(0, "openmoji", split, glyph.emoji, view) for split, view in places]
    draws = np.stack([rng.random(DRAWS) for rng in generators])
    images = render_views(Image.open(io.BytesIO(glyph.webp)).convert("RGBA"), draws, SIZE)
    for (split, _), rng, image in zip(places, generators, images, strict=True):
        yield {
            "image": encode(image),
            "captions": train_captions(glyph, rng) if split == "train" else plain_captions(glyph),
            "emoji": glyph.emoji,
            "subject": glyph.subgroup,
            "split": split,
        }


def write_weeks(
    out: Path, glyphs: list[Glyph], weeks: Sequence[Sequence[str]] = WEEKS
) -> list[int]:
    """Write one Parquet file per week and return their numbers of pairs."""
    counts = []
    for week, subjects in enumerate(weeks, start=1):
        rows = [row for glyph in glyphs if glyph.subgroup in subjects for row in pairs_of(glyph)]
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), out / f"week{week}.parquet")
        counts.append(len(rows))
    return counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--weeks", type=int, choices=[len(WEEKS), len(SIX_WEEKS)], default=4)
    given = parser.parse_args()
    subjects = WEEKS if given.weeks == len(WEEKS) else SIX_WEEKS
    counts = write_weeks(given.directory, read_glyphs(), subjects)
    for week, count in enumerate(counts, start=1):
        print(f"week{week}.parquet: {count} pairs", file=sys.stderr)

"""The glyphs and names that ship with the package (made by recipes/make_emoji9.py); captions."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from vlcpctl.core.errors import UsageError, unknown_name

PATH = Path(__file__).with_name("glyphs.parquet")


@dataclass(frozen=True)
class Glyph:
    """One emoji: its picture, and its name, keywords and groups in Unicode's CLDR."""

    emoji: str
    name: str
    keywords: tuple[str, ...]
    group: str
    subgroup: str
    webp: bytes

    def image(self) -> Image.Image:
        """The glyph as a 64 x 64 RGBA image."""
        return Image.open(io.BytesIO(self.webp)).convert("RGBA")


def read_glyphs(limit: int | None = None, groups: Collection[str] = ()) -> list[Glyph]:
    """All glyphs in Unicode order; with `limit`, that many, taken from the groups in turn.

    With `groups`, only glyphs of these. Raises UsageError for a group that does not exist.

    >>> len({glyph.group for glyph in read_glyphs(limit=9)})
    9
    """
    columns = ["emoji", "name", "keywords", "group", "subgroup", "image"]
    glyphs = [
        Glyph(
            emoji=row["emoji"],
            name=row["name"],
            keywords=tuple(word for word in row["keywords"] if word != row["name"]),
            group=row["group"],
            subgroup=row["subgroup"],
            webp=row["image"],
        )
        for row in pq.read_table(PATH, columns=columns).to_pylist()
    ]
    if groups:
        glyphs = _of_groups(glyphs, groups)
    return glyphs if limit is None else _in_turn(glyphs, limit)


def _of_groups(glyphs: list[Glyph], groups: Collection[str]) -> list[Glyph]:
    known = dict.fromkeys(glyph.group for glyph in glyphs)
    for group in groups:
        if group not in known:
            raise UsageError(unknown_name("group", group, known))
    return [glyph for glyph in glyphs if glyph.group in groups]


def _in_turn(glyphs: list[Glyph], limit: int) -> list[Glyph]:
    turn_of_group: dict[str, int] = defaultdict(int)
    turns = []
    for place, glyph in enumerate(glyphs):
        turns.append((turn_of_group[glyph.group], place))
        turn_of_group[glyph.group] += 1
    return [glyphs[place] for place in sorted(place for _, place in sorted(turns)[:limit])]


# -- captions

_WITH_NAME = (
    "a picture of {}",
    "an emoji of {}",
    "a small drawing of {}",
    "this is {}",
    "an icon of {}",
)
_WITH_KEYWORDS = ("{}, {}", "{}: {}", "{} with the words {}")


def train_captions(glyph: Glyph, rng: np.random.Generator) -> list[str]:
    """Up to four captions: the name, the name in a sentence, name and keywords, keywords only."""
    captions = [glyph.name, _one_of(_WITH_NAME, rng).format(glyph.name)]
    if glyph.keywords:
        words = _some(glyph.keywords, 1, 3, rng)
        captions.append(_one_of(_WITH_KEYWORDS, rng).format(glyph.name, " ".join(words)))
    if len(glyph.keywords) > 1:
        captions.append(", ".join(_some(glyph.keywords, 2, 4, rng)))
    return captions


def plain_captions(glyph: Glyph) -> list[str]:
    """The CLDR name as the only caption, for evaluation."""
    return [glyph.name]


def _one_of(templates: tuple[str, ...], rng: np.random.Generator) -> str:
    return templates[rng.integers(len(templates))]


def _some(words: tuple[str, ...], least: int, most: int, rng: np.random.Generator) -> list[str]:
    """Between `least` and `most` of the words, in random order."""
    count = int(rng.integers(min(least, len(words)), min(most, len(words)) + 1))
    return [words[place] for place in rng.permutation(len(words))[:count]]

"""Captions of a glyph, built from its CLDR name and keywords."""

from __future__ import annotations

import numpy as np

from vlcpctl.data.emoji9.glyphs import Glyph

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

"""Make the pairs that the base model of recipes/pretrained.sh is trained on: pictures of Twemoji.

    python recipes/make_twemoji.py OUT.parquet            downloads the package once, beside OUT
    python recipes/make_twemoji.py OUT.parquet TARBALL    reads a tarball that is already here

The package is npm's emoji-datasource-twitter 16.0.0 (62 MB), checked by its SHA-256. Its pictures
are Twemoji 16.0.1 (https://github.com/jdecked/twemoji), Copyright Twitter, Inc and other
contributors, under CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/); its list of names is
under the MIT licence, Copyright (c) 2013 Cal Henderson. OUT is adapted material: each picture is
rotated, scaled and shifted, its colours are changed, and it is put on backgrounds.

Pictures with skin tones are left out, and of pictures with the same pixels the first is kept. Views
and captions are drawn as those of Emoji-9, which has the same emoji in Google's drawings (Noto) and
with Unicode's CLDR names; names here are those of characters and the short names of chat programs.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.core.seeds import generator
from vlcpctl.data.emoji9.captions import plain_captions, train_captions
from vlcpctl.data.emoji9.glyphs import Glyph
from vlcpctl.data.emoji9.views import DRAWS, encode, render_views

NAME = "emoji-datasource-twitter-16.0.0.tgz"
URL = f"https://registry.npmjs.org/emoji-datasource-twitter/-/{NAME}"
TARBALL = "f64a530c63bca463bd8317fdc4615ce63a53a0c65018e4ce2d848aaba7a28877"  # its SHA-256
LEFT_OUT = "Component"  # the skin tones alone
SIZE = 32
VIEWS = {"train": 24, "test": 1}
SCHEMA = pa.schema(
    [
        pa.field("image", pa.binary(), nullable=False),
        pa.field("captions", pa.list_(pa.string()), nullable=False),
        pa.field("emoji", pa.string(), nullable=False),
        pa.field("group", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
    ]
)
TEXTS = ["emoji", "group", "split", "captions.list.element"]
_GLYPHS_PER_ROW_GROUP = 32


def read_glyphs(package: tarfile.TarFile) -> list[Glyph]:
    """The pictures in Unicode's order, those with the same pixels only once."""
    listed = json.loads(read(package, "emoji.json"))
    entries = {
        f"package/img/twitter/64/{one['image']}": one
        for one in sorted(listed, key=lambda one: one["sort_order"])
        if one["has_img_twitter"] and one["category"] != LEFT_OUT
    }
    # In the order of the archive: a compressed one cannot be read at random places quickly.
    pictures = {
        member.name: package.extractfile(member).read()
        for member in package
        if member.name in entries
    }
    seen = set()
    glyphs = []
    for path, one in entries.items():
        glyph = glyph_of(one, pictures[path])
        pixels = glyph.image().tobytes()
        if pixels not in seen:
            seen.add(pixels)
            glyphs.append(glyph)
    return glyphs


def read(package: tarfile.TarFile, name: str) -> bytes:
    """A file of an npm package."""
    member = package.extractfile(f"package/{name}")
    assert member is not None, f"{name} is a directory"
    return member.read()


def glyph_of(one: dict[str, Any], png: bytes) -> Glyph:
    """A picture with its name; its keywords are its short names and its subcategory."""
    name = one["name"].lower() if one["name"].isupper() else one["name"]
    words = [words_of(short) for short in one["short_names"]]
    keywords = dict.fromkeys([*words, words_of(one["subcategory"])])
    return Glyph(
        emoji="".join(chr(int(code, 16)) for code in one["unified"].split("-")),
        name=name,
        keywords=tuple(word for word in keywords if word != name),
        group=one["category"],
        subgroup=one["subcategory"],
        webp=png,
    )


def words_of(short: str) -> str:
    """A short name as words.

    >>> words_of("sun_behind_cloud"), words_of("man-woman-boy")
    ('sun behind cloud', 'man woman boy')
    """
    return " ".join(short.replace("_", " ").replace("-", " ").split())


def pairs_of(glyph: Glyph) -> Iterator[dict[str, Any]]:
    """One row per view of a picture: the training views, then the test views."""
    places = [(split, view) for split, count in VIEWS.items() for view in range(count)]
    generators = [generator(0, "twemoji", split, glyph.emoji, view) for split, view in places]
    draws = np.stack([rng.random(DRAWS) for rng in generators])
    images = render_views(glyph.image(), draws, SIZE)
    for (split, _), rng, image in zip(places, generators, images, strict=True):
        yield {
            "image": encode(image),
            "captions": train_captions(glyph, rng) if split == "train" else plain_captions(glyph),
            "emoji": glyph.emoji,
            "group": glyph.group,
            "split": split,
        }


def write_pairs(out: Path, glyphs: list[Glyph]) -> int:
    """Write the Parquet file, at once or not at all, and return the number of pairs."""
    temporary = out.with_name(f".{out.name}.partial")
    # A dictionary of the images would save nothing: no two are alike.
    with pq.ParquetWriter(temporary, SCHEMA, compression="zstd", use_dictionary=TEXTS) as writer:
        for start in range(0, len(glyphs), _GLYPHS_PER_ROW_GROUP):
            some = glyphs[start : start + _GLYPHS_PER_ROW_GROUP]
            rows = [row for glyph in some for row in pairs_of(glyph)]
            writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
    temporary.replace(out)
    return len(glyphs) * sum(VIEWS.values())


def download(path: Path) -> None:
    """Download the package, unless it is already here."""
    if path.exists():
        return
    print(f"downloading {URL}", file=sys.stderr)
    partial = path.with_name(f".{path.name}.partial")
    with urllib.request.urlopen(URL, timeout=60) as answer, partial.open("wb") as file:
        while chunk := answer.read(1 << 20):
            file.write(chunk)
    partial.replace(path)


def check(tarball: Path) -> None:
    """Refuse any file but the one package whose licence and content are described above."""
    found = hashlib.sha256(tarball.read_bytes()).hexdigest()
    if found != TARBALL:
        raise SystemExit(f"{tarball} is not {NAME}: its SHA-256 is {found}, not {TARBALL}")


def main(out: Path, tarball: Path | None = None) -> None:
    """Write the pairs, unless they are already there."""
    if out.exists():
        return
    if tarball is None:
        tarball = out.with_name(NAME)
        download(tarball)
    check(tarball)
    with tarfile.open(tarball) as package:
        glyphs = read_glyphs(package)
    print(f"{out}: {write_pairs(out, glyphs)} pairs of {len(glyphs)} pictures", file=sys.stderr)


if __name__ == "__main__":
    main(*(Path(word) for word in sys.argv[1:3]))

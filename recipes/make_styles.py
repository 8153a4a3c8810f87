"""Make the pairs of Emoji by style: the same emoji as seven vendors draw them.

    python recipes/make_styles.py OUT.parquet          downloads seven packages once, beside OUT
    python recipes/make_styles.py OUT.parquet --packages DIR          reads those that are in DIR
    python recipes/make_styles.py OUT.parquet --held-out emojione

A model learns names from the drawings of five vendors, and is tested on those of another one: a
picture that it has not seen in any view, under a name that it knows. The splits of OUT:

    train    five vendors (Noto, Noto v1, Twemoji, EmojiOne, EmojiOne v1); captions are the name,
             and the name with keywords in two orders
    test     Fluent: unseen pictures, known names
    query    Fluent: unseen pictures of *unseen names*, which are in no training pair
    gallery  Noto: pictures that were trained on
    val      OpenMoji: unseen pictures of known names, in a style far from all others (line art)

With --held-out, that vendor's drawings are the split val and are not trained on, and there is no
other split for evaluation: settings are chosen on it. Of every 100 families of names about 15 are
unseen, chosen by a hash of the family; names that differ only in who is shown (man, woman, person)
are one family.

Pictures are on white, without skin tones and flags, and only emoji that Noto, Twemoji and Fluent
draw. The packages are npm's @iconify-json, each checked by its SHA-256: Noto and Noto v1
(Apache-2.0), Twemoji (CC BY 4.0), EmojiOne (CC BY 4.0), EmojiOne v1 (CC BY-SA 4.0), Fluent Emoji
(MIT), OpenMoji (CC BY-SA 4.0). Names and keywords are Unicode's, as in Emoji-9. SVG is drawn by
resvg-py, which is not a dependency of vlcpctl: `pip install resvg-py==0.5.0`.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import sys
import tarfile
import unicodedata
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from vlcpctl.core.seeds import generator
from vlcpctl.data.emoji9.glyphs import Glyph, read_glyphs

PACKAGES = {  # name and version of npm's @iconify-json, SHA-256 of the tarball
    "noto-1.2.9": "3e918d88fc945c0bb3d468dbace6f88caef67f01c9f0e7bcae0915a042e8f1ad",
    "noto-v1-1.2.5": "2bf62c26c2c2884aa99e90aec942cdaee17a5921f05690694f4978ad4b017c37",
    "twemoji-1.2.5": "19046dff7d8707ce96212ec86468b36ac5f8e60409629dd13f809265c6d0ebb7",
    "emojione-1.2.3": "26a14f44284407e8bcde91799388dca2bfd91dbcd55a97f425524a1c5b73610e",
    "emojione-v1-1.2.3": "6641d59d48a42823fdc2b84e7427e9f302944eb98d2c7d94d6e67c139e7b37b3",
    "fluent-emoji-flat-1.2.6": "7d064769dee690815f823bc5bcc511d957198caf9f5edd8dd9c1aa48a6aeb175",
    "openmoji-1.2.29": "03181e2c156cab35cf4a62f1f7886bd971d59212e75ac3f189d5a4cae3930fc5",
}
TRAIN = ("noto", "noto-v1", "twemoji", "emojione", "emojione-v1")
TEST, FAR, SEEN = "fluent-emoji-flat", "openmoji", "noto"
EVERYWHERE = ("noto", "twemoji", TEST)  # an emoji that one of these does not draw is left out
TASKS = {  # a task holds the emoji of two of Unicode's groups, about 1,300 training pictures
    "Smileys & Emotion": "people and smileys",
    "People & Body": "people and smileys",
    "Animals & Nature": "animals and food",
    "Food & Drink": "animals and food",
    "Travel & Places": "places and activities",
    "Activities": "places and activities",
    "Objects": "objects and symbols",
    "Symbols": "objects and symbols",
}
SHOWN = re.compile(r"\b(?:men|women|people|man|woman|person|boy|girl|child|mx|mrs)\b")
UNSEEN = 15  # percent of the families of names
SIZE = 32
SCHEMA = pa.schema(
    [
        pa.field("image", pa.binary(), nullable=False),
        pa.field("captions", pa.list_(pa.string()), nullable=False),
        pa.field("emoji", pa.string(), nullable=False),
        pa.field("vendor", pa.string(), nullable=False),
        pa.field("group", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
    ]
)

Draw = Callable[[str], bytes]


@dataclass(frozen=True)
class Style:
    """One vendor's drawings: icons by name, other names of them, and names by code points."""

    icons: Mapping[str, Mapping[str, Any]]
    aliases: Mapping[str, Mapping[str, Any]]
    by_code: Mapping[str, str]
    size: tuple[int, int]

    def svg(self, glyph: Glyph, slug: str | None) -> str | None:
        """The drawing of an emoji, by code points or by its unique name; None if there is none."""
        name = next(
            (self.by_code[code] for code in codes(glyph.emoji) if code in self.by_code), slug
        )
        while name in self.aliases:
            name = str(self.aliases[name]["parent"])
        icon = None if name is None else self.icons.get(name)
        if icon is None:
            return None
        width, height = icon.get("width", self.size[0]), icon.get("height", self.size[1])
        box = f"{icon.get('left', 0)} {icon.get('top', 0)} {width} {height}"
        return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}">{icon["body"]}</svg>'


def codes(emoji: str) -> tuple[str, str]:
    """The code points of an emoji, as the packages write them: with and without U+FE0F.

    >>> codes("\N{HEAVY BLACK HEART}\N{VARIATION SELECTOR-16}")
    ('2764-fe0f', '2764')
    """
    points = [f"{ord(character):x}" for character in emoji]
    return "-".join(points), "-".join(point for point in points if point != "fe0f")


def slug_of(name: str) -> str:
    """A name of Unicode's as the packages write it.

    >>> slug_of("piñata"), slug_of("man\N{RIGHT SINGLE QUOTATION MARK}s shoe"), slug_of("A & B")
    ('pinata', 'mans-shoe', 'a-and-b')
    """
    plain = name.replace("&", "and").replace("\N{RIGHT SINGLE QUOTATION MARK}", "")
    letters = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    return re.sub("[^a-z0-9]+", "-", letters.lower()).strip("-")


def family(name: str) -> str:
    """What names of the same thing have in common, whoever is shown.

    >>> family("woman running"), family("man running") == family("person running")
    ('_ running', True)
    """
    return SHOWN.sub("_", name)


def is_unseen(name: str) -> bool:
    """Whether the family of a name is in no training pair."""
    return bool(generator(0, "styles", family(name)).integers(100) < UNSEEN)


def style_of(tarball: Path) -> Style:
    """The drawings of a package."""
    with tarfile.open(tarball) as package:
        icons = json.loads(read(package, "icons.json"))
        chars = "package/chars.json" in package.getnames()
        by_code = json.loads(read(package, "chars.json")) if chars else {}
    size = icons.get("width", 16), icons.get("height", 16)
    return Style(icons["icons"], icons.get("aliases", {}), by_code, size)


def read(package: tarfile.TarFile, name: str) -> bytes:
    """A file of an npm package."""
    member = package.extractfile(f"package/{name}")
    assert member is not None, f"{name} is a directory"
    return member.read()


def drawings(glyphs: Iterable[Glyph], styles: Mapping[str, Style]) -> dict[str, dict[str, str]]:
    """The SVGs by emoji and vendor, of the emoji that every vendor of EVERYWHERE draws."""
    slugs = {glyph.emoji: slug_of(glyph.name) for glyph in glyphs}
    times = Counter(slugs.values())
    found = {}
    for glyph in glyphs:
        slug = slugs[glyph.emoji]
        unique = slug if times[slug] == 1 else None  # "keycap: #" and "keycap: *" have one
        of_vendors = {vendor: style.svg(glyph, unique) for vendor, style in styles.items()}
        drawn = {vendor: svg for vendor, svg in of_vendors.items() if svg is not None}
        if all(vendor in drawn for vendor in EVERYWHERE):
            found[glyph.emoji] = drawn
    return found


def splits_of(glyph: Glyph, vendor: str, held_out: str | None) -> Iterator[str]:
    """The splits that have the drawing of an emoji by a vendor."""
    unseen = is_unseen(glyph.name)
    if vendor in TRAIN and vendor != held_out and not unseen:
        yield "train"
    if held_out is not None:
        if vendor == held_out and not unseen:
            yield "val"
        return
    if vendor == TEST:
        yield "query" if unseen else "test"
    if vendor == SEEN and not unseen:
        yield "gallery"
    if vendor == FAR and not unseen:
        yield "val"


def captions(glyph: Glyph, vendor: str) -> list[str]:
    """Captions for training: the name, and the name with its keywords in two orders."""
    words = list(glyph.keywords)
    if not words:
        return [glyph.name]
    order = generator(0, "styles", glyph.emoji, vendor).permutation(len(words))
    shuffled = [words[place] for place in order]
    return [glyph.name, f"{glyph.name}: {', '.join(words)}", f"{glyph.name}: {', '.join(shuffled)}"]


def rows(styles: Mapping[str, Style], draw: Draw, held_out: str | None) -> Iterator[dict[str, Any]]:
    """The pairs, in the order of Unicode's emoji and of the packages."""
    glyphs = [glyph for glyph in read_glyphs() if glyph.group in TASKS]
    found = drawings(glyphs, styles)
    for glyph in glyphs:
        for vendor, svg in found.get(glyph.emoji, {}).items():
            splits = list(splits_of(glyph, vendor, held_out))
            image = draw(svg) if splits else b""
            for split in splits:
                yield {
                    "image": image,
                    "captions": captions(glyph, vendor) if split == "train" else [glyph.name],
                    "emoji": glyph.emoji,
                    "vendor": vendor,
                    "group": TASKS[glyph.group],
                    "split": split,
                }


def draw_svg(svg: str) -> bytes:
    """A drawing on white as PNG bytes: drawn at four times the size and scaled down."""
    import resvg_py

    png = resvg_py.svg_to_bytes(svg, width=4 * SIZE, height=4 * SIZE, skip_system_fonts=True)
    large = Image.open(io.BytesIO(bytes(png))).convert("RGBA")
    white = Image.new("RGBA", large.size, "white")
    small = Image.alpha_composite(white, large).convert("RGB")
    buffer = io.BytesIO()
    small.resize((SIZE, SIZE), Image.Resampling.LANCZOS).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def fetch(directory: Path, name: str) -> Path:
    """The tarball of a package, downloaded unless it is there. Another file is refused."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"iconify-json-{name}.tgz"
    if not path.exists():
        prefix, _, version = name.rpartition("-")
        url = f"https://registry.npmjs.org/@iconify-json/{prefix}/-/{prefix}-{version}.tgz"
        print(f"downloading {url}", file=sys.stderr)
        with urllib.request.urlopen(url, timeout=60) as answer:
            partial = path.with_name(f".{path.name}.partial")
            partial.write_bytes(answer.read())
            partial.replace(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != PACKAGES[name]:
        sys.exit(f"{path} is not the package {name}: its SHA-256 is {digest}, not {PACKAGES[name]}")
    return path


def main() -> None:
    """Write the pairs, unless they are there."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--packages", type=Path, help="where the packages are [beside OUT]")
    parser.add_argument("--held-out", choices=TRAIN, help="a vendor that is not trained on, as val")
    given = parser.parse_args()
    if given.out.exists():
        return
    if find_spec("resvg_py") is None:
        sys.exit("make_styles.py draws SVG with resvg-py: pip install resvg-py==0.5.0")
    directory = given.packages or given.out.parent
    styles = {name.rpartition("-")[0]: style_of(fetch(directory, name)) for name in PACKAGES}
    table = pa.Table.from_pylist(list(rows(styles, draw_svg, given.held_out)), SCHEMA)
    partial = given.out.with_name(f".{given.out.name}.partial")
    pq.write_table(table, partial, compression="zstd")
    partial.replace(given.out)
    counts = Counter(table["split"].to_pylist())
    said = ", ".join(f"{split} {counts[split]}" for split in sorted(counts))
    print(f"{given.out}: {len(table)} pairs ({said})", file=sys.stderr)


if __name__ == "__main__":
    main()

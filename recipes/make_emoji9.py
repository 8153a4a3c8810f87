"""Make vlcpctl/data/emoji9/glyphs.parquet from three Debian packages (once, never to install).

    apt-get download fonts-noto-color-emoji unicode-data unicode-cldr-core
    for package in *.deb; do dpkg-deb -x "$package" root; done
    python recipes/make_emoji9.py root vlcpctl/data/emoji9/glyphs.parquet

Needs a Pillow with RAQM, as the wheels of PyPI are: it joins sequences (families, flags).
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageDraw, ImageFont, features

FONT = "usr/share/fonts/truetype/noto/NotoColorEmoji.ttf"
LIST = "usr/share/unicode/emoji/emoji-test.txt"
ANNOTATIONS = (
    "usr/share/unicode/cldr/common/annotations/en.xml",
    "usr/share/unicode/cldr/common/annotationsDerived/en.xml",
)
FONT_SIZE = 109  # the one size of the font's bitmaps
CANVAS = (
    136  # the advance of every glyph: kept, so that small, medium and large squares differ in size
)
STORED = 64
SKIN_TONES = re.compile("[\U0001f3fb-\U0001f3ff]")
VARIATION_SELECTOR = "\ufe0f"  # CLDR leaves it out


@dataclass
class Emoji:
    """One fully-qualified emoji of emoji-test.txt."""

    text: str
    name: str
    group: str
    subgroup: str
    same_glyph: list[str] = field(default_factory=list)


def read_emoji(path: Path) -> Iterator[Emoji]:
    """The fully-qualified emoji without skin tones, in Unicode order."""
    group = subgroup = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# group: "):
            group = line.removeprefix("# group: ")
        elif line.startswith("# subgroup: "):
            subgroup = line.removeprefix("# subgroup: ")
        found = re.match(r"([0-9A-F ]+?) *; fully-qualified *# \S+ E[0-9.]+ (.+)", line)
        if not found or group == "Component":
            continue
        text = "".join(chr(int(code, 16)) for code in found[1].split())
        if not SKIN_TONES.search(text):
            yield Emoji(text, found[2], group, subgroup)


def read_keywords(root: Path) -> dict[str, list[str]]:
    """CLDR's English keywords of each emoji."""
    keywords: dict[str, list[str]] = {}
    for path in ANNOTATIONS:
        for element in ET.parse(root / path).iter("annotation"):  # noqa: S314 - Debian's own file
            if element.get("type") is None:
                words = [word.strip() for word in (element.text or "").split("|")]
                keywords[element.attrib["cp"]] = words
    return keywords


def draw(text: str, font: ImageFont.FreeTypeFont) -> Image.Image:
    """The glyph on the font's own canvas, made square, at the stored size."""
    canvas = Image.new("RGBA", (CANVAS, CANVAS))
    ImageDraw.Draw(canvas).text(
        (CANVAS // 2, CANVAS // 2), text, font=font, embedded_color=True, anchor="mm"
    )
    return canvas.resize((STORED, STORED), Image.Resampling.LANCZOS)


def webp(image: Image.Image) -> bytes:
    """The image as WebP with alpha, small."""
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=75, alpha_quality=40, method=6)
    return buffer.getvalue()


def main(root: Path, out: Path) -> None:
    """Draw every emoji, merge identical glyphs, write the Parquet file."""
    assert features.check("raqm"), "this Pillow has no RAQM: sequences would not be joined"
    font = ImageFont.truetype(root / FONT, FONT_SIZE, layout_engine=ImageFont.Layout.RAQM)
    keywords = read_keywords(root)
    first: dict[bytes, Emoji] = {}
    for emoji in read_emoji(root / LIST):
        assert round(font.getlength(emoji.text)) == CANVAS, f"{emoji.name} is not one glyph"
        pixels = draw(emoji.text, font)
        kept = first.setdefault(pixels.tobytes(), emoji)
        if kept is not emoji:
            kept.same_glyph.append(emoji.name)
    kept_emoji = list(first.values())
    table = pa.table(
        {
            "emoji": [emoji.text for emoji in kept_emoji],
            "name": [emoji.name for emoji in kept_emoji],
            "keywords": [
                keywords.get(emoji.text.replace(VARIATION_SELECTOR, ""), []) for emoji in kept_emoji
            ],
            "group": [emoji.group for emoji in kept_emoji],
            "subgroup": [emoji.subgroup for emoji in kept_emoji],
            "same_glyph": pa.array(
                [emoji.same_glyph for emoji in kept_emoji], pa.list_(pa.string())
            ),
            "image": [webp(Image.frombytes("RGBA", (STORED, STORED), pixels)) for pixels in first],
        }
    )
    pq.write_table(table, out, compression="zstd", use_dictionary=["group", "subgroup"])
    merged = sum(len(emoji.same_glyph) for emoji in kept_emoji)
    print(f"{out}: {len(kept_emoji)} glyphs, {merged} names merged, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

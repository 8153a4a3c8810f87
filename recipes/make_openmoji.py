"""Make recipes/openmoji/glyphs.parquet from npm's package openmoji (once, never to run a recipe).

    npm pack openmoji@17.0.0 && sha256sum openmoji-17.0.0.tgz    # TARBALL below
    python -m pip install resvg-py==0.5.0                        # draws SVG; no dependency of ours
    python recipes/make_openmoji.py openmoji-17.0.0.tgz recipes/openmoji/glyphs.parquet

It keeps what is in no emoji standard (the groups extras-openmoji and extras-unicode), so that no
picture and hardly a name is among those of Emoji-9. Brands are left out: they are trademarks.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

# The SHA-256 of openmoji-17.0.0.tgz.
TARBALL = "55ee7d13485dec86e9f38c1f3a645a13382d33ff97c0cd845ee824b0aef45e68"
GROUPS = ("extras-openmoji", "extras-unicode")
LEFT_OUT = ("brand",)
STORED = 64  # pixels a side

Draw = Callable[[bytes], Image.Image]


def read_glyphs(package: tarfile.TarFile, draw: Draw) -> Iterator[dict[str, Any]]:
    """One row per picture, in OpenMoji's order; pictures with the same pixels only once."""
    seen = set()
    for one in json.loads(read(package, "data/openmoji.json")):
        if one["group"] not in GROUPS or one["subgroups"] in LEFT_OUT or one["skintone"]:
            continue
        image = draw(read(package, f"color/svg/{one['hexcode']}.svg"))
        pixels = image.tobytes()
        if pixels in seen:
            continue
        seen.add(pixels)
        yield {
            "code": one["hexcode"],
            "name": one["annotation"],
            "keywords": words_of(one),
            "subgroup": one["subgroups"],
            "author": one["openmoji_author"],
            "image": webp(image),
        }


def read(package: tarfile.TarFile, name: str) -> bytes:
    """A file of an npm package."""
    member = package.extractfile(f"package/{name}")
    assert member is not None, f"{name} is a directory"
    return member.read()


def words_of(one: dict[str, str]) -> list[str]:
    """The tags of a picture, without its name, each once."""
    words = [word.strip() for key in ("tags", "openmoji_tags") for word in one[key].split(",")]
    return [word for word in dict.fromkeys(words) if word and word != one["annotation"]]


def draw_svg(svg: bytes) -> Image.Image:
    """The picture as RGBA, drawn at four times the stored size and scaled down."""
    import resvg_py

    png = resvg_py.svg_to_bytes(svg.decode(), width=4 * STORED, skip_system_fonts=True)
    large = Image.open(io.BytesIO(bytes(png))).convert("RGBA")
    return large.resize((STORED, STORED), Image.Resampling.LANCZOS)


def webp(image: Image.Image) -> bytes:
    """The image as WebP with alpha, small."""
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=75, alpha_quality=40, method=6)
    return buffer.getvalue()


def main(tarball: Path, out: Path) -> None:
    """Draw every picture and write the Parquet file."""
    found = hashlib.sha256(tarball.read_bytes()).hexdigest()
    assert found == TARBALL, f"{tarball} is not openmoji-17.0.0.tgz: its SHA-256 is {found}"
    with tarfile.open(tarball) as package:
        rows = list(read_glyphs(package, draw_svg))
    out.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), out, compression="zstd")
    print(f"{out}: {len(rows)} pictures, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

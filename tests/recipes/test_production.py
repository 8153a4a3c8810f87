"""recipes/production.sh: its data, its lines, and what its table makes of rows and verdicts."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.recipe_lines import RECIPES

from vlcpctl.data.emoji9.glyphs import read_glyphs


def script(name: str) -> ModuleType:
    """A Python script of recipes/ as a module."""
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


weeks = script("production_weeks")
maker = script("make_openmoji")


def one(code: str, name: str, **more: str) -> dict[str, str]:
    """An entry of OpenMoji's list."""
    entry = {"hexcode": code, "annotation": name, "group": "extras-openmoji"}
    entry |= {"subgroups": "objects", "tags": "", "openmoji_tags": "", "skintone": ""}
    return entry | {"openmoji_author": "Ada"} | more


def package_of(tmp_path: Path, entries: list[dict[str, str]]) -> Path:
    """An npm package with a list and pictures; the digits of a code are the picture's grey."""
    path = tmp_path / "package.tgz"
    files = {"data/openmoji.json": json.dumps(entries).encode()}
    files |= {f"color/svg/{each['hexcode']}.svg": each["hexcode"].encode() for each in entries}
    with tarfile.open(path, "w:gz") as package:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            package.addfile(member, io.BytesIO(content))
    return path


def grey(svg: bytes) -> Image.Image:
    value = int(svg[-2:])
    return Image.new("RGBA", (64, 64), (value, value, value, 255))


def test_the_maker_keeps_what_is_in_no_emoji_standard_and_each_picture_once(tmp_path: Path) -> None:
    entries = [
        one("E10", "goldfish", tags="fish, water", openmoji_tags="water, goldfish, pet"),
        one("E20", "grinning face", group="smileys-emotion"),
        one("E30", "some shop", subgroups="brand"),
        one("E40", "waving hand", skintone="1"),
        one("F10", "golden fish"),
        one("E50", "black star", group="extras-unicode", subgroups="symbol-other"),
    ]
    with tarfile.open(package_of(tmp_path, entries)) as package:
        rows = list(maker.read_glyphs(package, grey))
    assert [(row["code"], row["name"], row["keywords"]) for row in rows] == [
        ("E10", "goldfish", ["fish", "water", "pet"]),
        ("E50", "black star", []),
    ]
    assert {row["author"] for row in rows} == {"Ada"}
    assert Image.open(io.BytesIO(rows[0]["image"])).size == (64, 64)


def test_the_maker_refuses_another_package(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"is not openmoji-17\.0\.0\.tgz"):
        maker.main(package_of(tmp_path, [one("E10", "goldfish")]), tmp_path / "glyphs.parquet")
    assert not (tmp_path / "glyphs.parquet").exists()


def test_every_picture_is_in_one_week_and_hardly_a_name_is_among_emoji9() -> None:
    glyphs = weeks.read_glyphs()
    subjects = [subject for week in weeks.WEEKS for subject in week]
    assert len(subjects) == len(set(subjects))
    assert {glyph.subgroup for glyph in glyphs} == set(subjects)
    names = {glyph.name for glyph in glyphs}
    assert len(names & {glyph.name for glyph in read_glyphs()}) < 0.03 * len(names)


def test_weeks_are_files_of_pairs_with_other_subjects_and_held_out_views(tmp_path: Path) -> None:
    glyphs = weeks.read_glyphs()[::25]
    counts = weeks.write_weeks(tmp_path, glyphs)
    assert sum(counts) == 14 * len(glyphs)
    seen: set[str] = set()
    for number, count in enumerate(counts, start=1):
        rows = pq.read_table(tmp_path / f"week{number}.parquet").to_pylist()
        assert len(rows) == count > 0
        codes = {row["code"] for row in rows}
        assert not codes & seen
        seen |= codes
        for split, views in (("train", 12), ("test", 2)):
            assert sum(row["split"] == split for row in rows) == views * len(codes)
        assert len({row["image"] for row in rows}) == count
        assert Image.open(io.BytesIO(rows[0]["image"])).size == (32, 32)


def test_the_same_glyphs_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        weeks.write_weeks(tmp_path / name, weeks.read_glyphs()[::100])
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()

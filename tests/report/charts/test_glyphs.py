"""Characters that no font has are shown as their code points, and one line says so."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from vlcpctl.report.charts import glyphs, paper
from vlcpctl.report.charts.bars import BarChart, BarPanel
from vlcpctl.report.charts.style import styles

pytest.importorskip("matplotlib")

PRIVATE = "\ue0aa"  # no font should have it


@pytest.fixture
def only_dejavu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine without the fallbacks."""
    monkeypatch.setattr(glyphs, "FALLBACKS", ())
    glyphs.families.cache_clear()
    glyphs._characters.cache_clear()
    yield
    monkeypatch.undo()
    glyphs.families.cache_clear()
    glyphs._characters.cache_clear()


@pytest.mark.usefixtures("only_dejavu")
def test_a_character_without_a_glyph_is_its_code_point() -> None:
    crab = chr(0x1F980)
    assert glyphs.drawable("R@1, \u00e9\u03b1\u0436") == "R@1, \u00e9\u03b1\u0436"
    assert glyphs.drawable(f"a{crab}b") == "a U+1F980 b"
    assert glyphs.drawable("\u4e2d\u6587") == "U+4E2D U+6587"
    assert glyphs.drawable("a\x1bb") == r"a\x1bb"


@pytest.mark.usefixtures("only_dejavu")
def test_the_note_names_the_characters_once() -> None:
    assert glyphs.missing_note(["ctp", "\u00e9"]) is None
    note = glyphs.missing_note(["\u4e2d\u6587", "\u4e2d"])
    assert note is not None
    assert note.startswith("--figures: no installed font has U+4E2D, U+6587; the figures show")
    many = glyphs.missing_note([chr(0x4E00 + place) for place in range(9)])
    assert many is not None
    assert "U+4E04 and 4 more;" in many


def test_installed_fallbacks_follow_the_font_of_every_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    glyphs.families.cache_clear()
    monkeypatch.setattr(glyphs, "FALLBACKS", ("No Such Font", "STIXGeneral"))
    try:
        assert glyphs.families() == ("DejaVu Sans", "STIXGeneral")
    finally:
        glyphs.families.cache_clear()


def test_nothing_is_drawn_as_a_box() -> None:
    """Matplotlib warns of each glyph that it replaces by a box."""
    name = f"{PRIVATE} \u4e2d {chr(0x1F980)}"
    panel = BarPanel(name, styles([name])[name], (50.0,), (60.0,))
    chart = BarChart("tasks", name, "", (name,), (panel,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ((_, files),) = paper.drawings(chart)
    assert set(files) == set(paper.FORMATS)
    assert set(chart.names) == {name}

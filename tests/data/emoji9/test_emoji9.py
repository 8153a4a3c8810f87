"""The built-in data set: what ships, and that views are a pure function of the options."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from vlcpctl.core.errors import UsageError
from vlcpctl.core.seeds import generator
from vlcpctl.data.emoji9.glyphs import PATH, Glyph, read_glyphs, train_captions
from vlcpctl.data.emoji9.pairs import DRAWS, PairSettings, render_views, write_pairs


@pytest.fixture(scope="module")
def glyphs() -> list[Glyph]:
    return read_glyphs()


def test_nine_groups_of_distinct_names(glyphs: list[Glyph]) -> None:
    sizes = Counter(glyph.group for glyph in glyphs)
    assert (len(sizes), sizes["Activities"], sizes["People & Body"]) == (9, 85, 362)
    assert len({glyph.subgroup for glyph in glyphs}) == 99
    assert len({glyph.name for glyph in glyphs}) == len(glyphs) == 1861
    same = pq.read_table(PATH, columns=["same_glyph"])["same_glyph"].to_pylist()
    assert len(glyphs) + sum(map(len, same)) == 1870  # merged names account for every emoji


def test_view_depends_on_its_own_draws_alone(glyphs: list[Glyph]) -> None:
    draws = generator(0, "test").random((5, DRAWS))
    image = glyphs[3].image()
    together = render_views(image, draws, 32)
    alone = render_views(image, draws[3:4], 32)
    assert together.shape == (5, 32, 32, 3)
    np.testing.assert_array_equal(together[3], alone[0])
    assert not np.array_equal(together[0], together[1])


def test_middle_draws_show_the_glyph_upright_and_uncoloured() -> None:
    red = Image.new("RGBA", (64, 64), (200, 40, 40, 255))
    view = render_views(red, np.full((1, DRAWS), 0.5), 32)[0]
    assert view[16, 16].tolist() == [200, 40, 40]


def test_glyph_in_the_colour_of_its_background_leaves_no_rim() -> None:
    # Below alpha 0 the glyph is black, which must not show at its edges.
    grey = np.zeros((64, 64, 4), np.uint8)
    grey[16:48, 16:48] = (160, 160, 160, 255)
    draws = np.full((1, DRAWS), 0.5)
    draws[0, 0] = 0.9  # turned: edges fall between pixels
    draws[0, 16] = 0  # a plain background, of the same grey
    view = render_views(Image.fromarray(grey), draws, 32).astype(int)
    # Bicubic interpolation overshoots by up to a tenth; a rim would be off by half.
    assert np.abs(view - 160).max() <= 16


def test_captions_start_with_the_name_and_never_repeat_it_as_keyword(glyphs: list[Glyph]) -> None:
    for glyph in glyphs[::37]:
        captions = train_captions(glyph, generator(0, glyph.emoji))
        assert captions[0] == glyph.name
        assert glyph.name not in glyph.keywords
        assert len(set(captions)) == len(captions)


def test_only_the_groups_that_are_named_are_sampled() -> None:
    found = read_glyphs(groups=("Flags", "Activities"))
    assert {glyph.group for glyph in found} == {"Flags", "Activities"}
    assert found == [glyph for glyph in read_glyphs() if glyph.group in {"Flags", "Activities"}]
    with pytest.raises(UsageError, match="unknown group 'Flag'; did you mean 'Flags'"):
        read_glyphs(groups=("Flag",))


def sampled(path: Path, **how: int) -> list[dict[str, Any]]:
    write_pairs(path, PairSettings(size=16, limit=9, **how))
    return list(pq.read_table(path).to_pylist())


def test_pairs_depend_on_their_seed_and_not_on_how_many_there_are(tmp_path: Path) -> None:
    few = sampled(tmp_path / "few", views=2, test_views=2)
    again, other = (sampled(tmp_path / f"{n}", views=2, test_views=2, seed=n) for n in (0, 1))
    assert few == again != other
    assert (tmp_path / "few").read_bytes() == (tmp_path / "0").read_bytes()
    many = sampled(tmp_path / "many", views=4, test_views=2, val_views=1)
    kept = [row for row in many if row["split"] == "test" or row["view"] < 2]
    assert [row for row in kept if row["split"] != "val"] == few
    names = {glyph.emoji: glyph.name for glyph in read_glyphs()}
    held = {name: [row for row in many if row["split"] == name] for name in ("val", "test")}
    assert (len(held["val"]), len(held["test"])) == (9, 18)
    assert all(row["captions"] == [names[row["emoji"]]] for rows in held.values() for row in rows)
    assert not {row["image"] for row in held["val"]} & {row["image"] for row in held["test"]}
    assert {"val_views", "groups"}.isdisjoint(PairSettings().recorded())

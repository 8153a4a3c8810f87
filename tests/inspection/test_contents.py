"""`vlcpctl inspect --pairs`: what raw data and tasks hold, and a page that shows some of it."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.program import run_program

from vlcpctl.inspection.contents import SHOWN, is_sheet, look


def picture(number: int) -> bytes:
    """A PNG of 8 + `number` pixels by 8."""
    file = io.BytesIO()
    Image.new("RGB", (8 + number, 8), (number % 256, 0, 0)).save(file, "PNG")
    return file.getvalue()


def table(path: Path, number: int) -> Path:
    """Pictures of growing width; the last two rows repeat the first picture, and are no image."""
    rows = [{"jpg": picture(n), "text": [f"picture {n}", "a <b>photo</b>"]} for n in range(number)]
    rows += [rows[0] | {"text": ["again"]}, {"jpg": b"no image", "text": ["x"]}]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_raw_pairs_are_counted_with_what_repeats(tmp_path: Path) -> None:
    facts, shown = look(table(tmp_path / "p.parquet", 5), 100)
    assert facts["columns"] == [{"image": "jpg", "captions": "text"}]
    assert (facts["looked_at"], facts["is_all"], facts["unusable"]) == (
        7,
        True,
        {"broken image": 1},
    )
    assert facts["widths"] == {"least": 8, "median": 9.5, "most": 12}
    assert facts["captions_per_image"] == {"least": 1, "median": 2.0, "most": 2}
    assert facts["words_per_caption"] == {"least": 1, "median": 2, "most": 2}
    assert facts["repeated_images"] == 1
    assert facts["shared_captions"] == 5
    assert facts["most_frequent_caption"] == {"caption": "a <b>photo</b>", "images": 5}
    assert len(shown) == 6
    facts, _ = look(tmp_path / "p.parquet", 3)
    assert (facts["looked_at"], facts["is_all"]) == (3, False)


@pytest.mark.parametrize("number", [SHOWN, 2 * SHOWN - 1, 200])
def test_the_pairs_shown_are_spread_over_all(tmp_path: Path, number: int) -> None:
    _, shown = look(table(tmp_path / "p.parquet", number), number)
    places = [pair.width - 8 for pair in shown]
    assert len(places) == SHOWN
    steps = [two - one for one, two in pairwise(places)]
    assert (places[0], min(steps) > 0) == (0, True)
    assert max(steps) <= 2 * min(steps)
    assert number - places[-1] <= 2 * max(steps)


def test_columns_of_other_names_are_given(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"picture": [picture(1)], "alt_text": ["a photo"]}), path)
    refused = run_program(capfd, "inspect", path, "--pairs")
    assert (refused.code, "--image-column" in refused.err) == (3, True)
    words = ["--image-column", "picture", "--caption-column", "alt_text"]
    ended = run_program(capfd, "inspect", path, "--pairs", "--json", *words)
    found = json.loads(ended.out)["columns"]
    assert (ended.code, found) == (0, [{"image": "picture", "captions": "alt_text"}])


def test_the_page_shows_the_pairs_and_replaces_only_a_page(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, page = table(tmp_path / "p.parquet", 3), tmp_path / "p.html"
    for _ in range(2):
        ended = run_program(capfd, "inspect", source, "--pairs", "--html", page, "--json")
        assert (ended.code, json.loads(ended.out)["looked_at"]) == (0, 5)
    text = page.read_text()
    assert is_sheet(page)
    assert text.count("<li>") == text.count("<img ") == 4
    assert "a &lt;b&gt;photo&lt;/b&gt;" in text
    (foreign := tmp_path / "notes.html").write_text("<p>mine")
    ended = run_program(capfd, "inspect", source, "--pairs", "2", "--html", foreign)
    assert (ended.code, foreign.read_text()) == (4, "<p>mine")
    assert run_program(capfd, "inspect", source, "--html", page).code == 2

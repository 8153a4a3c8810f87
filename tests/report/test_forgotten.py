"""What was forgotten: which ranks are compared, which queries are shown, and the page of them."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from support.deletion_world import pair_at, traces
from support.forgotten_world import ForgottenWorld, add_zeroshot, make_world
from support.program import check_refused, run_program

from vlcpctl.core.errors import BadInput
from vlcpctl.data.images.transforms import small_jpeg
from vlcpctl.evaluation.rank_files import Named, QueryRanks, SavedRanks, write_without
from vlcpctl.files.rows import read_rows
from vlcpctl.report import forgotten
from vlcpctl.report.forgotten import (
    MOST_EXAMPLES,
    Change,
    Forgotten,
    Library,
    Tally,
    deepest,
    open_library,
    sides,
)
from vlcpctl.report.report import Files, ReportRequest, build, read_facts
from vlcpctl.testing.tiny_stream import make_pair, make_stream, make_task


def found_in(*worlds: ForgottenWorld) -> Forgotten:
    return of_rows([one.rows for one in worlds], [one.ranks for one in worlds])


def of_rows(rows: Sequence[Path], ranks: Sequence[Path]) -> Forgotten:
    files = Files([*map(SavedRanks.open, ranks)])
    found = build(read_rows(list(map(str, rows))), ReportRequest(), files).forgotten
    assert found
    return found


def lost(one: Tally) -> list[tuple[str, int]]:
    return [(change.key, change.now) for change in one.changes]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> ForgottenWorld:
    return make_world(tmp_path_factory.mktemp("world"))


def test_every_task_but_the_last_is_compared(world: ForgottenWorld) -> None:
    found = found_in(world)
    assert [(one.task, one.way, one.learned, one.last) for one in found.tallies] == [
        (f"0{task}-part-{task}", way, task, 2) for task in (0, 1) for way in ("i2t", "t2i")
    ]
    for one in found.tallies:
        assert (one.forgotten, one.gained, one.queries) == (2, 1, 4)
        task = one.learned
        assert lost(one) == [(world.key(task, 0), 4), (world.key(task, 1), 2)]
    assert found.used == {world.ranks}


def test_the_first_seed_with_ranks_is_shown(world: ForgottenWorld, tmp_path: Path) -> None:
    first = make_world(tmp_path, seed=1, stream=world.stream)
    second = make_world(tmp_path, seed=2, stream=world.stream)
    rows = [one.rows for one in (world, first, second)]
    found = of_rows(rows, [second.ranks, first.ranks])
    assert {(one.seed, one.seeds) for one in found.tallies} == {(1, (0, 1, 2))}


def test_queries_that_were_removed_are_not_shown(world: ForgottenWorld, tmp_path: Path) -> None:
    gone = world.key(0, 0)
    write_without(world.ranks, tmp_path / "ranks.parquet", [gone])
    one = of_rows([world.rows], [tmp_path / "ranks.parquet"]).tallies[0]
    assert [key for key, _ in lost(one)] == [world.key(0, 1)]


def test_a_page_has_at_most_200_examples(world: ForgottenWorld) -> None:
    tallies = list(found_in(world).tallies)
    shown = [len(one.changes) for one in deepest(tallies * 60, MOST_EXAMPLES)]
    assert sum(shown) == MOST_EXAMPLES
    assert shown == [1] * 200 + [0] * 40, "one of each list, before the next of any"
    assert [len(one.changes) for one in deepest(tallies, 6)] == [2, 2, 1, 1]


def ranks_of(
    keys: Sequence[str],
    rank: Sequence[int],
    wrong: Sequence[str | None],
    captions: Sequence[int],
) -> QueryRanks:
    answers = Named(pa.array(wrong, pa.string()), pa.array([0] * len(keys), pa.int32()))
    return QueryRanks(pa.array(keys), np.array(captions), None, np.array(rank), answers)


def test_queries_are_ordered_by_how_far_they_fell_and_each_sample_is_shown_once() -> None:
    keys, captions = ["a", "a", "b", "c"], [0, 1, 0, 0]
    then = ranks_of(keys, [1, 1, 1, 7], ["x", "x", "x", None], captions)
    now = ranks_of(keys, [4, 6, 5, 1], ["p", "q", "r", "s"], captions)
    found = list(forgotten._changes(then, now, np.array([0, 1, 2])))
    assert [(one.key, one.caption, one.then, one.now, one.wrong) for one in found] == [
        ("a", 1, 1, 6, "q"),
        ("b", 0, 1, 5, "r"),
    ]


def encoded(width: int, height: int, kind: str, **how: object) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **how)
    return file.getvalue()


@pytest.mark.parametrize(
    ("size", "wanted"),
    [((1000, 500), (96, 48)), ((20, 30), (20, 30)), ((2, 3000), (1, 96)), ((97, 97), (96, 96))],
)
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_a_picture_keeps_the_ratio_and_enlarges_nothing(
    size: tuple[int, int], wanted: tuple[int, int], form: str
) -> None:
    data = small_jpeg(encoded(*size, form), 96)
    with Image.open(io.BytesIO(data)) as image:
        assert (image.size, image.format) == (wanted, "JPEG")
    assert len(data) < 30_000


def test_comments_and_profiles_of_a_file_are_left_out_and_a_damaged_one_is_refused() -> None:
    words = PngInfo()
    words.add_text("Comment", "of a person")
    for data in (
        encoded(40, 40, "PNG", pnginfo=words, icc_profile=b"of a person"),
        encoded(40, 40, "JPEG", comment=b"of a person"),
    ):
        assert b"of a person" in data
        assert b"of a person" not in small_jpeg(data, 96)
    with pytest.raises(BadInput, match="the picture"):
        small_jpeg(encoded(40, 40, "JPEG")[:300], 96, "the picture")


def fallen(key: str, wrong: str, caption: int | None = None) -> Tally:
    """A query and what is retrieved instead."""
    change = Change(key, caption, None, 1, 2, wrong, None)
    track = ("retrieval", "cross-modal", "", "test")
    return Tally(track, "er", 0, (0,), "t", 0, 1, "i2t", 1, 1, 0, 1, 0, (change,))


def test_pairs_are_found_by_key_in_the_splits_that_are_searched(tmp_path: Path) -> None:
    stream = make_stream(tmp_path / "stream", 2, 3, pair=lambda n: make_pair(n, captions=2))
    tasks = open_library([stream, stream])
    assert len(tasks) == 2, "each task once"
    train, test = (tasks[1].split(name).keys[0] for name in ("train", "test"))
    library = Library(tasks, frozenset({"test"}))
    found = library.find([fallen(train, test), fallen(test, "a path, not a key")])
    assert [*found] == [test]
    captions = tasks[1].split("test").captions(0)
    for way, caption in (("i2t", None), ("t2i", 1)):
        query, right, wrong = sides(found, way, fallen(test, train, caption).changes[0])
        picture, text = (query, right) if way == "i2t" else (right, query)
        assert picture.address.startswith("data:image/jpeg;base64,")
        assert text.text == captions[caption or 0]
        assert (wrong.text, wrong.address) == (f"key {train}", "")
    task = make_task(tmp_path / "task")
    assert [one.path for one in open_library([task])] == [task]
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(BadInput, match="--images: "):
            open_library([path])


def report(
    capfd: pytest.CaptureFixture[str], out: Path, world: ForgottenWorld, *more: object
) -> Path:
    """A report with ranks; its directory."""
    words = ("forgetting-report", world.rows, "--ranks", world.ranks, "-o", out, *more)
    ended = run_program(capfd, *words, "-q")
    assert ended.code == 0, ended.err
    return out


def page_of(out: Path) -> str:
    return (out / "forgotten.html").read_text(encoding="utf-8")


def summary_of(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "summary.json").read_text(encoding="utf-8")))


def test_the_page_shows_queries_answers_and_ranks(
    world: ForgottenWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = report(capfd, tmp_path / "report", world, "--images", world.stream)
    page, test = page_of(out), world.tasks[0].split("test")
    for image in (0, 1):
        assert test.captions(image)[0] in page
        assert page.count(f'data-keys="{test.keys[image]} ') == 2, "in each direction"
    assert page.count('<img class="pic" src="data:image/jpeg;base64,') > 4
    assert "rank 1 \u2192 <b>4</b>" in page
    assert "Forgotten: 2 of 3 that were right" in page
    assert "Gained: 1 of 1 that were wrong" in page
    assert not re.search(r"(src|href)=\"?https?:", page), "nothing is loaded"
    assert 'href="forgotten.html"' in (out / "report.html").read_text(encoding="utf-8")
    assert "| er | 16 | 12 | 8 | 67 % | 4 | 8 |" in (out / "report.md").read_text("utf-8")
    summary = summary_of(out)
    assert summary["identity"]["images"] == sorted(one.content for one in world.tasks)
    facts = read_facts((out / "facts.csv").read_text())
    of = {
        one["metric"]: one["value"]
        for one in facts
        if one["data"] == "00-part-0" and one["key"] == "i2t"
    }
    assert (of["queries"], of["right_then"], of["forgotten"], of["gained"]) == (4, 3, 2, 1)
    bare = page_of(report(capfd, tmp_path / "bare", world))
    assert f"key {world.key(0, 0)}" in bare
    assert test.captions(0)[0] not in bare
    assert "data:" not in bare


@pytest.mark.parametrize("words", [("--images", "S", "-o", "R"), ("--ranks", "K", "--images", "S")])
def test_options_without_effect_are_refused(
    words: tuple[str, ...], world: ForgottenWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    places = {"S": world.stream, "K": world.ranks, "R": tmp_path / "report"}
    given = [places.get(word, word) for word in words]
    ended = run_program(capfd, "forgetting-report", world.rows, *given)
    check_refused(ended, "forgetting-report", 2, "--images has no effect")
    assert not (tmp_path / "report").exists()


def test_zero_shot_shows_the_classes_that_are_given(
    world: ForgottenWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = add_zeroshot(world, tmp_path)
    page = page_of(report(capfd, tmp_path / "report", found, "--images", found.stream))
    given = "given now</span><q>b</q>"
    assert page.count(f'data-keys="{found.key(0, 0)}"') == page.count(given) / 2 == 1


def test_hostile_captions_and_names_stay_text(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = '</q></li><script>alert(1)</script>" onload="x\n\u202e' + "long " * 100
    stream = make_stream(
        tmp_path / "stream", 2, 2, pair=lambda n: make_pair(n)._replace(captions=[f"{n} {text}"])
    )
    found = make_world(tmp_path, tasks=2, stream=stream)
    page = page_of(report(capfd, tmp_path / "report", found, "--images", stream))
    assert "<script" not in page
    assert "\u202e" not in page
    assert "long " * 40 not in page


def test_forget_removes_a_pair_from_reports_and_a_new_one_lacks_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    world = make_world(tmp_path / "world", tasks=2)
    images = ("--images", world.stream)
    out = report(capfd, tmp_path / "world/report", world, *images)
    pair = pair_at(world.tasks[0].path, 0, "test")
    kept = pair_at(world.tasks[0].path, 1, "test")
    assert "report/forgotten.html" in traces(tmp_path / "world", pair)
    ended = run_program(capfd, "forget", "--key", pair.key, tmp_path / "world", "--json", "-q")
    assert ended.code == 0, ended.err
    assert traces(tmp_path / "world", pair) == []
    entries = {Path(one["path"]).name: one for one in json.loads(ended.out)["artifacts"]}
    assert entries["report"]["action"] == "rewritten"
    assert entries["report"]["removed"]["examples"] == 2
    assert kept.captions[0] in page_of(out), "the other pairs stay"
    assert page_of(out).endswith("</html>\n")
    assert traces(report(capfd, tmp_path / "new", world, *images), pair) == []
    # The old report is of other images; it is not taken for the new one.
    words = ("forgetting-report", world.rows, "--ranks", world.ranks, "-o", out, *images)
    check_refused(run_program(capfd, *words), "forgetting-report", 4, "other settings")

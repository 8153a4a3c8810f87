"""What was forgotten, as forgetting-report writes it: pages, report, summary; and `forget`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.deletion_world import pair_at, traces
from support.forgotten_world import ForgottenWorld, add_zeroshot, make_world
from support.program import check_refused, run_program

from vlcpctl.report.forgotten import changes as limits
from vlcpctl.testing.tiny_stream import make_pair, make_stream


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> ForgottenWorld:
    return make_world(tmp_path_factory.mktemp("world"))


def report(
    capfd: pytest.CaptureFixture[str], out: Path, world: ForgottenWorld, *more: object
) -> Path:
    """A report with ranks; its directory."""
    words = ("forgetting-report", world.rows, "--ranks", world.ranks, "-o", out, *more)
    ended = run_program(capfd, *words, "-q")
    assert ended.code == 0, ended.err
    return out


def page_of(out: Path, name: str = "00-part-0") -> str:
    return (out / f"forgotten/{name}.html").read_text(encoding="utf-8")


def summary_of(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "summary.json").read_text(encoding="utf-8")))


def test_a_page_shows_queries_answers_and_ranks_with_each_picture_once(
    world: ForgottenWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = report(capfd, tmp_path / "report", world, "--images", world.stream)
    names = sorted(path.name for path in (out / "forgotten").iterdir())
    assert names == ["00-part-0.html", "01-part-1.html"]
    page, test = page_of(out), world.tasks[0].split("test")
    for image in (0, 1):
        assert test.captions(image)[0] in page
        assert page.count(f'<image id="p-{test.keys[image]}"') == 1
        assert page.count(f'href="#p-{test.keys[image]}"') > 1
    assert "rank 1 \u2192 <b>4</b> of 4" in page
    assert "Forgotten: 2 of 3 that were right" in page
    assert "Gained: 1 of 1 that were wrong" in page
    assert not re.search(r"(src|href)=\"?https?:", page), "nothing is loaded"
    whole = (out / "report.html").read_text(encoding="utf-8")
    assert 'href="forgotten/00-part-0.html"' in whole
    assert '<image id="p-' in whole
    text = (out / "report.md").read_text(encoding="utf-8")
    assert "| er | 16 | 12 | 8 | 67 % | 4 | 8 |" in text
    assert test.captions(0)[0] in text
    assert "base64" not in text
    (first, _) = summary_of(out)["forgotten"]["tasks"]
    assert first["page"] == "forgotten/00-part-0.html"
    assert first["directions"]["i2t"]["n_forgotten"] == 2
    assert first["directions"]["i2t"]["forgotten"][0] == {
        "key": world.key(0, 0),
        "caption": None,
        "ranks": [1, 4],
        "wrong": world.key(0, 1),
        "wrong_caption": 0,
    }


def test_without_images_keys_stand_for_pictures_and_texts(
    world: ForgottenWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = report(capfd, tmp_path / "report", world)
    page = page_of(out)
    assert f"key {world.key(0, 0)}" in page
    assert world.tasks[0].split("test").captions(0)[0] not in page
    assert "data:" not in page
    assert {"images", "examples"}.isdisjoint(summary_of(out)["identity"])


def test_the_images_are_part_of_what_a_report_is_made_of(
    world: ForgottenWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = report(capfd, tmp_path / "report", world, "--images", world.stream)
    found = summary_of(out)["identity"]["images"]
    assert found == sorted(one.content for one in world.tasks)
    words = ("forgetting-report", world.rows, "--ranks", world.ranks, "-o", out)
    check_refused(
        run_program(capfd, *words), "forgetting-report", 4, "was made with other settings"
    )


def test_the_terminal_does_not_list_queries(
    world: ForgottenWorld, capfd: pytest.CaptureFixture[str]
) -> None:
    ended = run_program(capfd, "forgetting-report", world.rows, "--ranks", world.ranks)
    assert ended.code == 0
    assert "fell furthest" not in ended.out
    assert world.key(0, 0) not in ended.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--images", "S", "-o", "R"), "--images has no effect"),
        (("--ranks", "K", "--images", "S"), "--images has no effect: pictures are in the report"),
    ],
)
def test_options_without_effect_are_refused(
    words: tuple[str, ...],
    message: str,
    world: ForgottenWorld,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    places = {"S": world.stream, "K": world.ranks, "R": tmp_path / "report"}
    given = [places.get(word, word) for word in words]
    ended = run_program(capfd, "forgetting-report", world.rows, *given)
    check_refused(ended, "forgetting-report", 2, message)
    assert not (tmp_path / "report").exists()


def test_zero_shot_shows_the_classes_that_are_confused(
    world: ForgottenWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = add_zeroshot(world, tmp_path)
    out = report(capfd, tmp_path / "report", found, "--images", found.stream)
    page = page_of(out)
    assert "Classes most confused now" in page
    assert "Classes most confused then" in page
    assert page.count(f'<image id="p-{found.key(0, 0)}"') == 1
    assert summary_of(out)["forgotten"]["tasks"][0]["confused_now"] == [
        {"class": "a", "wrong": "b", "counts": [0, 2], "keys": [found.key(0, 0), found.key(0, 1)]}
    ]


def test_a_page_stays_small_whatever_its_pictures(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = make_stream(tmp_path / "stream", 2, 2, pair=lambda n: make_pair(n, size=120))
    found = make_world(tmp_path, tasks=2, stream=stream)
    out = report(capfd, tmp_path / "all", found, "--images", stream)
    assert page_of(out).count("<image ") == 4
    whole = sum(map(len, re.findall('base64,([^"]*)', page_of(out))))
    monkeypatch.setattr(limits, "PAGE_BYTES", whole - 1)
    small = page_of(report(capfd, tmp_path / "some", found, "--images", stream))
    assert 0 < sum(map(len, re.findall('base64,([^"]*)', small))) < whole
    assert small.count("<image ") == 3
    assert "no-picture" in small, "the others are named"
    monkeypatch.setattr(limits, "MOST_BYTES", 0)
    assert "base64" not in page_of(report(capfd, tmp_path / "none", found, "--images", stream))


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
    other = report(capfd, tmp_path / "world/other", world, *images, "--metric", "i2t_r1")
    pair = pair_at(world.tasks[0].path, 0, "test")
    kept = pair_at(world.tasks[0].path, 1, "test")
    assert {"report/report.html", "report/report.md", "report/forgotten/00-part-0.html"} < set(
        traces(tmp_path / "world", pair)
    )
    ended = run_program(capfd, "forget", "--key", pair.key, tmp_path / "world", "--json", "-q")
    assert ended.code == 0, ended.err
    assert traces(tmp_path / "world", pair) == []
    entries = {Path(one["path"]).name: one for one in json.loads(ended.out)["artifacts"]}
    assert entries["report"]["action"] == entries["other"]["action"] == "rewritten"
    assert entries["report"]["removed"]["examples"] > 3
    assert kept.captions[0] in page_of(out), "the other pairs stay"
    assert page_of(out).endswith("</html>\n")
    assert summary_of(out)["forgotten"]["tasks"][0]["directions"]["i2t"]["n_forgotten"] == 2
    new = report(capfd, tmp_path / "new", world, *images)
    assert traces(tmp_path / "new", pair) == []
    changed = summary_of(new)["forgotten"]["tasks"][0]["directions"]["i2t"]
    assert [one["key"] for one in changed["forgotten"]] == [kept.key]
    # The old report is of other images; it is not taken for the new one.
    words = ("forgetting-report", world.rows, "--ranks", world.ranks, "-o", out, *images)
    check_refused(
        run_program(capfd, *words), "forgetting-report", 4, "was made with other settings: images"
    )
    assert other.is_dir()

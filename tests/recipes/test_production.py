"""recipes/production.sh: its data, its lines, and what its table makes of rows and verdicts."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.collected import write_facts
from support.recipe_lines import (
    RECIPES,
    dry_run_of,
    options_of,
    options_of_command,
    paths_read,
    script,
    train_request,
)

from vlcpctl.data.buffer.policies import check_policy
from vlcpctl.data.emoji9.glyphs import read_glyphs
from vlcpctl.jobs.script import CommandLine

weeks = script("production_weeks")
maker = script("make_openmoji")
table = script("production_table")

WEEKS = ("00-week1", "01-week2", "02-week3", "03-week4")
METHODS = ("seqf", "er", "ctp", "modx", "dha")


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
        codes = {row["emoji"] for row in rows}
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


def test_every_line_is_one_that_the_program_takes() -> None:
    lines = dry_run_of("production.sh")
    for line in lines:
        assert options_of(line), line
    for given in options_of_command(lines, "train-step"):
        train_request(given)
    for given in options_of_command(lines, "buffer"):
        check_policy(given["policy"], adds=False, has_checkpoint=False, stores_features=False)


def test_what_a_line_reads_is_written_by_a_line_before_it() -> None:
    made: list[str | None] = [os.path.realpath(f"week{n}.parquet") for n in (1, 2, 3, 4)]
    for line in dry_run_of("production.sh"):
        for path in paths_read(line) if line.words[0] != "sample" else []:
            assert CommandLine(0, (path,)).reads(made), f"{line} reads {path} too early"
        assert line.makes is not None
        assert line.makes not in made
        made.append(line.makes)


def weekly_steps() -> list[dict[str, Any]]:
    """The options of the updates, without the step that makes the production model."""
    steps = options_of_command(dry_run_of("production.sh"), "train-step")
    assert str(steps[0]["out"]) == "model"
    return steps[1:]


def test_five_methods_update_the_same_model_under_one_budget_with_three_seeds() -> None:
    steps = weekly_steps()
    keys = ("preset", "steps", "lr", "epochs", "batch_size")
    assert len({tuple(str(one[key]) for key in keys) for one in steps}) == 1
    assert not any(one["set"] for one in steps)
    for week in WEEKS:
        runs = [(one["method"], one["seed"]) for one in steps if one["out"].name == week]
        assert sorted(runs) == sorted((name, seed) for name in METHODS for seed in range(3))
    firsts = [one for one in steps if one["out"].name == WEEKS[0]]
    assert {str(one["previous"]) for one in firsts} == {"start"}


def test_replay_starts_with_pairs_of_the_production_model_and_goes_on_with_the_weeks() -> None:
    lines = dry_run_of("production.sh")
    buffers = {str(one["out"]): one for one in options_of_command(lines, "buffer")}
    for step in weekly_steps():
        if step["method"] not in {"er", "ctp"}:
            assert step["buffer"] is None
            continue
        held, tasks = buffers[str(step["buffer"])], []
        while True:
            tasks.append(str(held["task"]))
            if held["previous"] is None:
                break
            held = buffers[str(held["previous"])]
        past = WEEKS[: WEEKS.index(step["out"].name)]
        assert tasks[::-1] == ["production/00-pairs", *(f"weeks/{week}" for week in past)]


def test_each_week_is_judged_by_both_gates_on_what_is_known_then() -> None:
    reports = options_of_command(dry_run_of("production.sh"), "forgetting-report")
    assert [one["out"].name for one in reports] == list(WEEKS)
    for number, given in enumerate(reports, start=1):
        assert list(given["fail_if"]) == ["worst_drop:gt:5", "bwt_gem:lt:-10"]
        start, *rows = [str(path) for path in given["rows"]]
        assert start == "start.ndjson"
        assert len(rows) == number * (len(METHODS) + 1) * 3
        assert {Path(path).stem for path in rows} == set(WEEKS[:number])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--methods", "ewcc"), "unknown method 'ewcc'"),
        (("--methods", "er interpolate"), "interpolate needs seqf"),
        (("--speed", "9"), "unknown option '--speed'"),
        (("--out",), "--out needs a value"),
        (("--emoji9",), "it runs on Emoji-9 and OpenMoji always"),
    ],
)
def test_words_that_mean_nothing_are_refused(words: tuple[str, ...], message: str) -> None:
    command = ["bash", RECIPES / "production.sh", "--dry-run", *words]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr


def verdict(run: str, condition: str, outcome: str) -> dict[str, Any]:
    return {"run": run, "condition": condition, "outcome": outcome}


def report_of(
    guard: dict[str, list[float]], backward: float | None, worst: str, run: str = "er"
) -> Any:
    """A report of one run with two seeds, as far as the table reads it."""
    old = "not defined yet (1 task)" if backward is None else "passes"
    verdicts = [verdict(run, "worst_drop:gt:5", worst), verdict(run, "bwt_gem:lt:-10", old)]
    start = {"run": "production", "method": "imported", "metric": "own_final", "value": None}
    lost = [] if backward is None else [backward, backward - 2]
    about = {"run": run, "method": run}
    facts = [
        start,
        about | {"metric": "own_final", "value": 35.0},
        about | {"metric": "bwt_gem", "values": lost},
        *(
            about | {"metric": "score", "data": "00-pairs", "step": step, "values": values}
            for step, values in guard.items()
        ),
    ]
    return table.Report(verdicts, facts)


def test_the_table_has_guard_scores_forgetting_and_the_verdicts_of_each_week() -> None:
    first = report_of({"start": [80.0, 80.0], "0": [78.0, 76.0]}, None, "passes")
    second = report_of({"start": [80.0] * 2, "0": [78.0, 76.0], "1": [71.0, 69.0]}, -3.0, "fails")
    heading, _, _, _, row = table.table([first, second])
    assert "80.0" in heading
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "`er`",
        "77.0 (1.4)",
        "70.0 (1.4)",
        "35.0",
        "-4.0 (1.4)",
        "passes",
        "passes from week 1, fails from week 2",
    ]


def test_each_run_has_its_own_scores_and_verdicts_and_the_best_on_the_guard_is_first() -> None:
    report = report_of({"start": [80.0] * 2, "0": [60.0] * 2}, -3.0, "fails")
    better = report_of({"start": [80.0] * 2, "0": [77.0] * 2}, -3.0, "passes", "ctp")
    both = table.Report(report.verdicts + better.verdicts, report.facts + better.facts)
    *_, first, second = table.table([both])
    assert first.startswith("| `ctp` | 77.0 (0.0) |")
    assert first.endswith("| passes | passes |")
    assert second.startswith("| `er` | 60.0 (0.0) |")
    assert second.endswith("| passes | fails |")


def test_the_table_reads_reports_in_the_order_of_weeks(tmp_path: Path) -> None:
    for week in reversed(WEEKS):
        write_facts(tmp_path / "report" / week / "facts.csv", [])
        (tmp_path / "report" / week / "summary.json").write_text(json.dumps({"verdicts": week}))
    assert [one.verdicts for one in table.read_reports(tmp_path)] == list(WEEKS)

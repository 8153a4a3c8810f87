"""recipes/production.sh: its data, its lines, and what its table makes of rows and verdicts."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from PIL import Image
from support.recipe_lines import (
    dry_run_of,
    options_of_command,
    script,
)

from vlcpctl.data.emoji9.glyphs import read_glyphs

weeks = script("production_weeks")
table = script("production_table")

WEEKS = ("00-week1", "01-week2", "02-week3", "03-week4")
METHODS = ("seqf", "er", "ctp", "modx", "dha")


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


def report_of(
    guard: dict[str, list[float]], backward: float | None, worst: str, run: str = "er"
) -> Any:
    """A report of one run with two seeds, as far as the table reads it."""
    old = "not defined yet (1 task)" if backward is None else "passes"
    outcomes = {"worst_drop:gt:5": worst, "bwt_gem:lt:-10": old}
    verdicts = [{"run": run, "condition": name, "outcome": one} for name, one in outcomes.items()]
    facts = [
        {"run": "production", "method": "imported", "metric": "own_final", "value": None},
        {"metric": "own_final", "value": 35.0},
        {"metric": "bwt_gem", "values": [] if backward is None else [backward, backward - 2]},
        *(
            {"metric": "score", "data": "00-pairs", "step": s, "values": v}
            for s, v in guard.items()
        ),
    ]
    return table.Report(verdicts, [{"run": run, "method": run, **one} for one in facts])


def test_the_table_has_guard_scores_forgetting_and_the_verdicts_of_each_week() -> None:
    """The best run on the guard is first."""
    weeks = {"start": [80.0] * 2, "0": [78.0, 76.0], "1": [71.0, 69.0]}
    first, second = report_of(weeks, None, "passes"), report_of(weeks, -3.0, "fails")
    better = report_of({**weeks, "0": [77.0] * 2, "1": [77.0] * 2}, -3.0, "passes", "ctp")
    both = table.Report(second.verdicts + better.verdicts, second.facts + better.facts)
    heading, *_, best, other = table.table([first, both])
    assert "80.0" in heading
    assert best == "| `ctp` | 77.0 (0.0) | 77.0 (0.0) | 35.0 | -4.0 (1.4) | passes | passes |"
    assert other == (
        "| `er` | 77.0 (1.4) | 70.0 (1.4) | 35.0 | -4.0 (1.4) "
        "| passes | passes from week 1, fails from week 2 |"
    )

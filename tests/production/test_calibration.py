"""Updates of a model with a sigmoid loss: the probabilities are measured, shown and judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.production import SETTINGS, first_words, week_words
from support.program import ProgramResult

from vlcpctl.metrics.calibration import METRICS
from vlcpctl.models import encoders
from vlcpctl.models.encoders import NewModelOptions

Run = Callable[..., ProgramResult]

KEPT = ("--fail-if", "worst_drop.pair_calibration:gt:100")
LOST = ("--fail-if", "worst_drop.pair_calibration:gt:-100")


def first_words_of_sigmoid(run: Run, place: Path, tmp_path: Path) -> list[object]:
    """The line of the first week of a state `prod` that starts from a model with a bias."""
    source, model = tmp_path / "source", tmp_path / "model"
    source.mkdir()
    encoders.save(encoders.build("micro", NewModelOptions(is_sigmoid=True, batch_size=4)), source)
    assert run("import-checkpoint", source, "-o", model, "-q").code == 0
    words = first_words(place, tmp_path / "prod")
    return [model if word == place / "model" else word for word in words]


def rows_of(state: Path) -> list[dict[str, Any]]:
    lines = [
        line
        for file in sorted(state.rglob("*.ndjson"))
        if file.name != "history.ndjson"
        for line in file.read_text().splitlines()
    ]
    return [row for row in map(json.loads, lines) if row.get("evaluator") == "retrieval"]


def test_the_probabilities_before_and_after_are_judged_and_shown(
    run: Run, place: Path, tmp_path: Path
) -> None:
    words, state = first_words_of_sigmoid(run, place, tmp_path), tmp_path / "prod"
    rejected = run(*words, *LOST)
    assert rejected.code == 7, rejected.err
    assert "worst_drop.pair_calibration on 00-golden" in rejected.err
    page = (state / "pending" / "report" / "week.html").read_text()
    assert "of pair_calibration since the start" in page
    assert "rejected below" not in page  # its bars are of recalls
    done = run(*words, *KEPT)  # the same week, judged again
    assert done.code == 0, done.err

    on_index = [row for row in rows_of(state) if "gallery_checkpoint" in row]
    rows = [row for row in rows_of(state) if "gallery_checkpoint" not in row]
    assert all(set(METRICS) <= row["metrics"].keys() for row in rows)
    assert on_index
    assert not any(set(METRICS) & row["metrics"].keys() for row in on_index)
    of_guard = {row["step"]: row["metrics"] for row in rows if row["task"] == "00-golden"}
    start, last = of_guard[None], of_guard[0]
    assert start["pair_calibration"] != last["pair_calibration"]
    wanted = [one[key] for key in METRICS for one in (start, last)]
    (report,) = (state / "weeks").glob("*/report")
    section = (report / "report.md").read_text().partition("## Calibration")[2]
    (line,) = (one for one in section.splitlines() if one.startswith("| 00-golden |"))
    scores = [float(one) for one in line.split("|")[2:-1]]
    assert scores == pytest.approx(wanted, abs=0.005)
    week = (report / "week.html").read_text()
    assert week.index("recall: percent of true pairs") < week.index("<caption>Settings</caption>")


def test_a_condition_on_probabilities_that_a_model_does_not_have_is_refused(
    run: Run, place: Path, state: Path
) -> None:
    before = (state / "state.json").read_bytes()
    done = run(*week_words(place, state, 2), *SETTINGS, *KEPT)
    assert done.code == 2
    assert "has a softmax; leave the condition out" in done.err
    assert (state / "state.json").read_bytes() == before
    assert not (state / "pending").exists()

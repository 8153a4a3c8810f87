"""The command lines of an update follow from its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vlcpctl.production.layout import Layout
from vlcpctl.production.lines import Call, Lines, evaluated_weeks
from vlcpctl.production.settings import Settings
from vlcpctl.production.state import Start, State


def words_of(root: Path, command: str, **settings: Any) -> list[tuple[str, ...]]:
    """The lines of the first week that run this command."""
    how = Settings(run="shop", **settings)
    start = Start(given="model", source="id", buffer_from=(), settings=how)
    state = State(start=start, settings=how)
    lines = Lines(Layout(root), state, how, Call(data=["week.parquet"])).of_week()
    return [tuple(line.words) for line in lines if line.words[0] == command]


def test_threads_are_given_to_training_and_evaluations_unless_usual(tmp_path: Path) -> None:
    for command in ("train-step", "eval-retrieval"):
        for words in words_of(tmp_path, command, threads=2):
            assert words[words.index("--threads") + 1] == "2"
        for words in words_of(tmp_path, command, threads=1):
            assert "--threads" not in words


def test_all_weeks_of_a_year_are_evaluated_and_later_the_last_twelve_and_forty_at_most() -> None:
    for last in range(500):
        weeks = evaluated_weeks(last)
        assert weeks[-12:] == list(range(max(1, last - 11), last + 1))
        assert len(weeks) == last if last <= 52 else 32 <= len(weeks) <= 52


def test_each_evaluated_week_was_evaluated_by_the_model_before() -> None:
    for last in range(1, 500):
        assert set(evaluated_weeks(last)) - {last} <= set(evaluated_weeks(last - 1))


def test_the_report_counts_the_evaluated_weeks_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lines, "emptied", [])
    how = Settings(run="shop")
    start = Start(given="model", source="id", buffer_from=(), settings=how)
    monkeypatch.setattr(State, "last", property(lambda _: 60))
    state = State(start=start, settings=how)
    *_, report = Lines(Layout(tmp_path), state, how, Call(data=["week.parquet"])).of_week()
    assert "--allow-missing" in report.words

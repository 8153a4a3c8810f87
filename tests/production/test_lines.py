"""The command lines of an update follow from its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vlcpctl.production.layout import Layout
from vlcpctl.production.lines import Call, Lines
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

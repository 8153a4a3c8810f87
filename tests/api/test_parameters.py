"""A value in Python becomes the words that a user would type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vlcpctl.api.parameters import Parameter, each, parameters_of
from vlcpctl.commands.interpolate import run as interpolate
from vlcpctl.commands.merge import run as merge
from vlcpctl.commands.split import run as split
from vlcpctl.commands.train_step import run as train_step


def of(run: Any, name: str) -> Parameter:
    return parameters_of(run)[name]


@pytest.mark.parametrize(
    ("run", "name", "value", "words"),
    [
        (split, "not_", ["a", Path("b c")], ["--not=a", "--not=b c"]),
        (split, "not_", Path("a"), ["--not=a"]),
        (split, "not_", None, []),
        (split, "keep_columns", ["customer", "date"], ["--keep-columns=customer,date"]),
        (split, "decode", True, ["--decode"]),
        (split, "decode", False, []),
        (split, "by", "-x", ["--by=-x"]),
        (train_step, "flip", False, ["--no-flip"]),
        (train_step, "betas", (0.9, 0.99), ["--betas=0.9,0.99"]),
        (train_step, "lr", 1e-5, ["--lr=1e-05"]),
        (train_step, "run", "", []),
        (merge, "weights", (1, 3), ["--weights=1,3"]),
        (merge, "weights", [(1, 3), "1,1"], ["--weights=1,3", "--weights=1,1"]),
        (merge, "set", [], []),
        (interpolate, "alpha", 0.5, ["--alpha=0.5"]),
        (train_step, "wait", float("inf"), ["--wait=inf"]),
        (train_step, "set", ("ctp.m=0.8", "er.k=2"), ["--set=ctp.m=0.8", "--set=er.k=2"]),
    ],
)
def test_a_value_becomes_words(run: Any, name: str, value: Any, words: list[str]) -> None:
    assert list(of(run, name).words(value)) == words


def test_text_and_paths_are_not_taken_apart() -> None:
    row = {"schema": "x"}
    assert [list(each(one)) for one in ("ab", Path("a/b"), row, ["ab"], 3)] == [
        ["ab"],
        [Path("a/b")],
        [row],
        ["ab"],
        [3],
    ]


@pytest.mark.parametrize(
    ("name", "value"), [("run", True), ("lr", True), ("previous", False), ("wait", True)]
)
def test_true_and_false_are_no_values(name: str, value: bool) -> None:
    with pytest.raises(TypeError, match=f"^{name} must be .*, not {value}$"):
        list(of(train_step, name).words(value))

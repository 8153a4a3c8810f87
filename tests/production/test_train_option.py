"""--train-option: options of train-step that decide how a week is trained, not what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.production import PASSES, week_words
from support.program import ProgramResult, check_refused

from vlcpctl.production.layout import Layout
from vlcpctl.production.settings import Settings
from vlcpctl.production.state import read_state

Run = Callable[..., ProgramResult]


def training_of(printed: str) -> str:
    (line,) = [one for one in printed.splitlines() if one.startswith("vlcpctl train-step ")]
    return line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("--compil", "unknown option of train-step '--compil'; did you mean '--compile'?"),
        ("--nproc 2 --lr 3", "update has --lr itself; give it outside --train-option"),
        ("-mewc", "update has -m itself"),
        ("--method=ewc", "update has --method itself"),
        ("--weight-decay 0", "--weight-decay decides what is trained, and update takes it from"),
        ("--no-flip", "--no-flip decides what is trained"),
        ("--previous x", "update decides about --previous itself; it passes on --compile"),
        ("-o x", "update decides about -o itself"),
        ("--nodes 2", "update decides about --nodes itself"),
        ("--accept-inexact", "update has --accept-inexact itself"),
        ("--nproc", "--nproc needs a value"),
        ("--nproc --compile", "--nproc needs a value"),
        ("--nproc 0", "--nproc: 0 is not at least 1"),
        ("--nproc=x", "--nproc: 'x' is not a whole number"),
        ("--nproc 3", "--batch-size 4 is not divisible by 3 processes"),
        ("--save-every never", "--save-every 'never' is neither a number of steps nor a time"),
        ("--compile=1", "--compile does not take a value"),
        ("--tf32 --tf32", "--tf32 is given twice"),
        ("--local-loss", "--local-loss has no effect with one process"),
        ("2", "2 is not one of --compile, "),
        ("'2", "no closing quotation"),
        (" ", "--train-option is empty; 'none' stands for no options"),
    ],
)
def test_what_train_step_would_refuse_or_update_decides_is_refused_at_once(
    run: Run, place: Path, state: Path, text: str, said: str
) -> None:
    words = [*week_words(place, state, 2), "--train-option", text]
    done = run(*words)
    check_refused(done, "update", 2, said)
    assert "--train-option" in done.err
    assert not (state / "pending").exists()


def test_it_is_part_of_the_training_line_and_no_other(run: Run, place: Path, state: Path) -> None:
    words = [*week_words(place, state, 2), "--train-option", "--nproc 2  --save-every=5min"]
    printed = run(*words, "--dry-run").out
    assert training_of(printed).endswith(" --nproc 2 --save-every=5min")
    assert printed.count("--nproc") == 1


def test_it_is_remembered_replaced_and_emptied(run: Run, place: Path, state: Path) -> None:
    words = week_words(place, state, 2)
    given = ["--train-option", "--save-every 1 --grad-checkpointing"]
    assert run(*words, *PASSES, *given, "-q").code == 0
    recorded = ("--save-every", "1", "--grad-checkpointing")
    assert read_state(Layout(state)).settings.train_options == recorded
    assert "  train options: --save-every 1 --grad-checkpointing\n" in run("inspect", state).out
    later = [*week_words(place, state, 3), "--dry-run"]
    assert training_of(run(*later).out).endswith(" --save-every 1 --grad-checkpointing")
    other = training_of(run(*later, "--train-option", "--nproc 2").out)
    assert other.endswith(" --nproc 2")
    assert "--save-every" not in other
    assert "--save-every" not in run(*later, "--train-option", "none").out
    # Of the week that is there, only what it was made with.
    assert run(*words, *given, "-q").code == 0
    refused = run(*words, "--train-option", "none")
    check_refused(refused, "update", 4, "so that --train-option would not be applied")


def test_another_one_makes_no_other_week() -> None:
    before = Settings(run="shop")
    assert before.different_training(before.with_given({"train_options": ("--compile",)})) == {}

"""The resolved options of an update."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from vlcpctl.commands.update import Update, _settings
from vlcpctl.core.options import options_of
from vlcpctl.production.settings import NEW, Guard, Settings

# What is not an option, what cannot change, and what has a way of its own.
NEVER = {"run", "evaluated", "default_replay", "method_files", "drop_leaks", "index_week"}
LISTS = {"guards": "guard", "classes": "guard_classes", "assignments": "set"}
LISTS |= {"train_options": "train_option"}


def test_steps_and_epochs_take_the_place_of_each_other() -> None:
    for name, other in (("steps", "epochs"), ("epochs", "steps")):
        before = Settings(run="shop").with_given({name: 3})
        after = before.with_given({other: 5})
        assert (getattr(after, name), getattr(after, other)) == (None, 5)


def test_what_another_machine_decides_makes_no_other_week() -> None:
    before = Settings(run="shop")
    for given in ({"threads": 2}, {"device": "cpu"}, {"workers": 4}, {"fail_if": ("rm:lt:1",)}):
        assert before.different_training(before.with_given(given)) == {}
    assert before.different_training(before.with_given({"lr": 1.0})) == {"lr": (None, 1.0)}


@pytest.mark.parametrize(
    ("method", "given", "policy"),
    [
        ("er", None, "reservoir"),
        ("icarl", None, "herding"),
        ("lucir", None, "herding"),  # its paper's, though others are accepted
        ("lucir", "reservoir", "reservoir"),
    ],
)
def test_the_buffer_has_the_policy_of_the_method_unless_another_is_given(
    method: str, given: str | None, policy: str
) -> None:
    assert Settings(run="shop", method=method, policy=given).buffer_policy == policy


def test_conditions_and_guards_that_are_not_given_again_are_left_out() -> None:
    guards = tuple(Guard(name, "id", name) for name in ("golden", "silver"))
    gates = ("worst_drop:gt:2", "bwt_gem:lt:-2")
    before = Settings(run="shop", guards=guards, classes=("cifar10", "food101"), fail_if=gates)
    assert before.left_out_of(before) == []
    fewer = {"guards": guards[:1], "classes": ("food101",), "fail_if": ("worst_drop:gt:9",)}
    lost = ["bwt_gem:lt:-2", "guard silver", "guard cifar10"]
    assert before.left_out_of(before.with_given(fewer)) == lost
    nothing = {"guards": ("none",), "classes": ("none",), "fail_if": ("none",)}
    assert before.left_out_of(before.with_given(nothing)) == []
    defaults = Settings(run="shop", guards=guards)
    given = defaults.with_given({"fail_if": ("worst_drop:gt:9",)})
    assert defaults.left_out_of(given) == ["bwt_gem.rm:lt:-2"]


def test_every_setting_can_be_taken_back(tmp_path: Path) -> None:
    new = Settings(run="shop", **NEW)
    for one in fields(Settings):
        if one.name in NEVER:
            continue
        option = {**LISTS, "kept_weeks": "keep"}.get(one.name, one.name)
        is_list = not options_of(Update)[option][0].resets
        value = ["none"] if is_list and option != "train_option" else "none"
        found = _settings(tmp_path, {option: value})
        changed = new.with_given({one.name: ("none",)} if is_list else found)
        wanted = () if is_list else getattr(new, one.name)
        assert getattr(changed, one.name) == wanted, one.name


def test_a_hold_out_can_replace_the_column_that_is_taken_back() -> None:
    before = Settings(run="shop", split_column="split", keep_columns="customer")
    after = before.with_given({"split_column": None, "holdout": "test=0.2"})
    assert (after.split_column, after.holdout, after.keep_columns) == (None, "test=0.2", "customer")


@pytest.mark.parametrize(
    ("given", "replay"),
    [
        ({}, "least=0.25"),
        ({"replay": "union"}, "union"),
        ({"method": "der"}, None),  # which sets a share of its own
        ({"method": "der", "replay": "share=0.1"}, "share=0.1"),
    ],
)
def test_a_new_state_replays_at_least_a_quarter(given: dict[str, str], replay: str | None) -> None:
    settings = Settings(run="shop", **NEW).with_given(given)
    assert settings.of_training().get("replay") == replay
    assert "replay" not in settings.of_training(has_buffer=False)
    before = Settings(run="shop").with_given(given)  # a state that has recorded no default
    assert before.of_training().get("replay") == given.get("replay")

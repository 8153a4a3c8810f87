"""What users of other programs type is understood in the line that refuses it."""

from __future__ import annotations

import pytest
import typer.main

from vlcpctl import cli
from vlcpctl.commands import COMMANDS
from vlcpctl.commands.synonyms import _COMMANDS, _OPTIONS, command_meant, option_meant


def options_of(name: str) -> list[str]:
    program = typer.main.get_command(cli.application(name))
    return [option for one in program.commands[name].params for option in one.opts]  # type: ignore[attr-defined]


def test_commands_that_are_suggested_exist() -> None:
    for name, meant in _COMMANDS.items():
        assert name not in COMMANDS
        for one in meant.removesuffix(" --rollback").split(" or "):
            assert one in COMMANDS or one == "--version"


def test_options_that_are_suggested_exist() -> None:
    known = {option for name in COMMANDS for option in options_of(name)}
    for name, meant in _OPTIONS.items():
        assert all(f"--{one}" in known for one in meant if one), name


@pytest.mark.parametrize(
    ("command", "option", "meant"),
    [
        ("train-step", "--amp", "--precision"),
        ("train-step", "--learning_rate", "--lr"),
        ("train-step", "--resume", "--previous"),
        ("train-step", "--train-data", "TASK without an option"),
        ("train-step", "--dataset", "TASK without an option"),
        ("eval-zeroshot", "--dataset", "--data"),
        ("eval-retrieval", "--model", "--checkpoint"),
        ("eval-retrieval", "--ckpt", "--checkpoint"),
        ("eval-retrieval", "--num-workers", "--workers"),
        ("split", "--output-folder", "--out"),
        ("train-step", "--step", "--steps"),
        ("train-step", "--zzz", None),
    ],
)
def test_an_option_of_another_program_is_understood(
    command: str, option: str, meant: str | None
) -> None:
    assert option_meant(option, options_of(command), "TASK") == meant


def test_a_name_of_ours_is_not_a_synonym() -> None:
    assert command_meant("splitt", COMMANDS) == "split"
    assert command_meant("Report", COMMANDS) == "forgetting-report"
    assert command_meant("xyz", COMMANDS) is None

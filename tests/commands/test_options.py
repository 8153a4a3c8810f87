"""What the options of commands share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, get_args

import pytest

from vlcpctl.commands import options, train_step
from vlcpctl.commands.values import kind_of
from vlcpctl.core.errors import UsageError
from vlcpctl.core.option_rules import DATA, METHOD, option


def test_a_local_variable_of_a_command_is_not_an_option() -> None:
    usual = {name: one.default for name, one in signature(train_step.run).parameters.items()}
    values = usual | {"method": "seqf", "tasks": [], "steps": 3, "settings": "local"}
    given = options.given(train_step.run, values)
    assert given["steps"] == 3
    assert "settings" not in given
    assert "lr" not in given  # it has no value
    assert options.given(train_step.run, values | {"epochs": 2}) == given | {"epochs": 2}


@dataclass(frozen=True)
class Painting:
    """Options of a command that is not there."""

    size: tuple[int, int] = option((2, 3), DATA, "W,H", "Size", otherwise="the canvas")
    coats: int = option(1, METHOD, "N", "Coats of paint", within="[1, 9]")
    varnish: bool | None = option(None, METHOD, None, "Varnish it", has_opposite=True)
    brush: str = option("flat", METHOD, "NAME", "Brush", otherwise="flat", choices=("flat", "fan"))
    canvas: str = "linen"


def _command(only: Sequence[str] = (), words: dict[str, str] | None = None) -> Any:
    @options.with_fields(Painting, only=only, words=words)
    def run(out: str, *, quiet: bool = False, **fields: Any) -> None:
        """Paint."""

    return run


def test_the_fields_of_a_dataclass_with_a_row_become_options() -> None:
    made = signature(_command()).parameters
    assert list(made) == ["out", "size", "coats", "varnish", "brush", "quiet"]
    assert [made[name].default for name in ("size", "coats", "brush")] == [None, 1, None]
    size, coats, varnish, brush = (get_args(one.annotation)[1] for one in list(made.values())[1:5])
    assert (size.help, coats.help) == ("Size (default: the canvas).", "Coats of paint.")
    assert (coats.min, coats.max, coats.rich_help_panel) == (1, 9, METHOD)
    assert kind_of(made["coats"].annotation)[0] is int
    assert (varnish.default, brush.autocompletion("f")) == (
        "--varnish/--no-varnish",
        ["flat", "fan"],
    )
    assert size.parser("4,5") == (4, 5)
    with pytest.raises(UsageError, match="--size '4' is not two numbers"):
        size.parser("4")


def test_a_command_may_take_some_fields_and_word_them_itself() -> None:
    made = signature(_command(("brush", "coats"), {"coats": "Layers"})).parameters
    assert list(made) == ["out", "brush", "coats", "quiet"]
    assert get_args(made["coats"].annotation)[1].help == "Layers."

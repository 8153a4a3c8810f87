"""What the options of commands share."""

from __future__ import annotations

from inspect import signature

from vlcpctl.commands import options, train_step


def test_a_local_variable_of_a_command_is_not_an_option() -> None:
    usual = {name: one.default for name, one in signature(train_step.run).parameters.items()}
    values = usual | {"method": "seqf", "tasks": [], "steps": 3, "settings": "local"}
    given = options.given(train_step.run, values)
    assert given["steps"] == 3
    assert "settings" not in given
    assert "lr" not in given  # it has no value
    assert options.given(train_step.run, values | {"epochs": 2}) == given | {"epochs": 2}

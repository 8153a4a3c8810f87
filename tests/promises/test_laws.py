"""Properties that every method of the table has."""

from __future__ import annotations

import dataclasses

import pytest

from vlcpctl.methods import TABLE


@pytest.mark.parametrize("name", TABLE)
def test_every_hyper_parameter_has_a_description_and_an_origin(name: str) -> None:
    for field in dataclasses.fields(TABLE[name]):
        assert field.metadata["help"], field.name
        assert field.metadata["origin"], field.name


@pytest.mark.parametrize("name", TABLE)
def test_a_method_is_named_by_its_file_and_titled(name: str) -> None:
    assert TABLE[name].__module__ == f"vlcpctl.methods.{name}"
    assert TABLE[name].title

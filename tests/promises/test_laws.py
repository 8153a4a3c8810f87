"""Properties that every method of the table has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from vlcpctl.core.method import Method, Needs, Paper, Slot, hyper
from vlcpctl.methods import TABLE
from vlcpctl.testing.laws import broken_laws


@pytest.mark.parametrize("name", TABLE)
def test_every_method_keeps_the_laws(name: str) -> None:
    assert broken_laws(TABLE[name]) == []


@pytest.mark.parametrize("name", TABLE)
def test_a_method_is_named_by_its_file(name: str) -> None:
    assert TABLE[name].__module__ == f"vlcpctl.methods.{name}"


@dataclass(frozen=True, kw_only=True)
class Lawless(Method):
    """Breaks every law."""

    name: ClassVar[str] = "seqf"  # which the command line knows, as another method
    title: ClassVar[str] = "Ends with a full stop."
    preset: ClassVar[str] = "nice"
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(title="", authors="A", venue="B", year=1, url="c"),
    )
    settings: ClassVar[Mapping[str, Any]] = {"speed": 9}
    usual_policy: ClassVar[str] = "best"
    keeps: ClassVar[str] = "average"

    strength: float = hyper(-1.0, doc="", origin=" ", depends="the weather")
    variant: str = hyper("c", doc="Which.", origin="ours", choices=("a", "b"))

    def needs(self, *, first: bool) -> Needs:
        return Needs(buffer=True)

    def per_step(self, *, first: bool) -> tuple[str, ...]:
        return ("share",)

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        return (Slot(name="a", lifetime="task", start=lambda _: {}),) * 2


def test_a_broken_law_is_named() -> None:
    found = "\n".join(broken_laws(Lawless))
    for part in (
        "full stop",
        "preset 'nice' is unknown",
        "settings has speed",
        "strength has no doc",
        "strength has no origin",
        "the default of strength, -1.0, is not within [0, inf)",
        "the default of variant, 'c', is not one of its choices",
        "depends of strength",
        "a paper lacks its title",
        "a paper is of the year 1",
        "needs(first=True)",
        "buffer policy 'best' is unknown",
        "per_step names share",
        "two slots have the same name",
        "keeps names the slot 'average'",
        "unknown hyper-parameter of seqf: 'strength'",
    ):
        assert part in found

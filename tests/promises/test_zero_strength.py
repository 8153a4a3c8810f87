"""A method with strength 0 is plain fine-tuning or replay, byte for byte, in both families."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.marks import mostly_slow

from vlcpctl.methods import TABLE
from vlcpctl.methods.plugins.registry import MethodRegistry
from vlcpctl.testing.battery import TrainingWorld, with_fusion_model
from vlcpctl.testing.off import TurnedOff
from vlcpctl.training.methods import compose

PLAIN = {"seqf", "joint", "er"}
ELSEWHERE = {"incclip", "der", "derpp"}  # what they replay has tests of its own
OFF = sorted(name for name, method in TABLE.items() if method.off)

Bytes = Callable[[TurnedOff, str], bytes]


def test_every_method_can_be_turned_off() -> None:
    assert {*OFF} | PLAIN | ELSEWHERE == TABLE.keys()


@pytest.mark.parametrize("name", OFF)
def test_what_is_off_needs_no_other_model(name: str) -> None:
    (off,) = compose(name, [f"{name}.{one}" for one in TABLE[name].off])
    needs = off.needs(first=False)
    used = (needs.previous, needs.reference, needs.pseudo_texts, needs.stored_features)
    assert not any(used)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chains")


@pytest.fixture(scope="module")
def of_method(world: TrainingWorld) -> Callable[[str, str], TurnedOff]:
    worlds = {"dual": world, "fusion": with_fusion_model(world)}
    return lambda name, family: TurnedOff(TABLE[name](), worlds[family], MethodRegistry())


@pytest.fixture(scope="module")
def plain(place: Path) -> Bytes:
    """The weights of plain training; those with the same settings are trained once."""
    made: dict[tuple[str, ...], bytes] = {}

    def trained(off: TurnedOff, family: str) -> bytes:
        settings = "-".join(map(str, off.method.settings.values())) if family == "fusion" else ""
        key = (off.plain, off.policy, family, settings)
        if key not in made:
            made[key] = off.trained_plain(place / "-".join(key))
        return made[key]

    return trained


@pytest.mark.parametrize("family", mostly_slow(["dual", "fusion"], kept=["dual"]))
@pytest.mark.parametrize("name", OFF)
def test_a_method_that_is_turned_off_is_plain(
    of_method: Callable[[str, str], TurnedOff], plain: Bytes, place: Path, name: str, family: str
) -> None:
    off = of_method(name, family)
    assert off.trained(place / f"{family}-{name}") == plain(off, family)

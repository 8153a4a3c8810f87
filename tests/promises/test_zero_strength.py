"""A method with strength 0 is plain fine-tuning or replay, byte for byte, in both families."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.battery import TrainingWorld, make_world, request, with_fusion_model
from support.marks import mostly_slow

from vlcpctl.methods import TABLE
from vlcpctl.training.config.composition import compose
from vlcpctl.training.config.settings import resolve
from vlcpctl.training.train_step import train_step

# What turns a method off; with a buffer it is then `er`.
OFF = {
    "afec": ["strength=0", "forward_strength=0"],
    "co2l": ["strength=0", "asymmetric=false"],
    "ctp": ["momentum=false", "cross_modal=false", "same_modal=false"],
    "dha": ["adapt=false"],
    "ema": ["decay=0"],
    "ewc": ["strength=0"],
    "geodl": ["strength=0"],
    "icarl": ["strength=0"],
    "lucir": ["strength=0"],
    "lwf": ["strength=0"],
    "mas": ["strength=0"],
    "modx": ["alpha=0"],
    "rwalk": ["strength=0"],
    "si": ["strength=0"],
}
PLAIN = {"seqf", "joint", "er"}
ELSEWHERE = {"incclip", "der", "derpp"}  # what they replay has tests of its own
HEADS = {"lucir": "cosine"}

Chain = Callable[[str, str], bytes]


def test_every_method_can_be_turned_off() -> None:
    assert OFF.keys() | PLAIN | ELSEWHERE == TABLE.keys()


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """The weights after two tasks of a method that is turned off; each is trained once."""
    root = tmp_path_factory.mktemp("chains")
    dual = make_world(root / "world")
    worlds = {"dual": dual, "fusion": with_fusion_model(dual)}
    made: dict[tuple[str, ...], bytes] = {}

    def chain(family: str, name: str, policy: str = "", heads: str | None = None) -> bytes:
        place = (family, name, policy, heads or "")
        if place not in made:
            out = root / "-".join(place)
            made[place] = _trained(worlds[family], out, name, policy, heads)
        return made[place]

    return chain  # type: ignore[return-value]


def _trained(world: TrainingWorld, root: Path, name: str, policy: str, heads: str | None) -> bytes:
    off = [f"{name}.{value}" for value in OFF.get(name, ())]
    for number in range(2):
        step = request(world, name, number, root, buffered=False)
        buffer = world.buffers[policy][number - 1] if number and policy else None
        settings, _ = resolve("tiny", world.flags | ({"heads": heads} if heads else {}), {})
        train_step(replace(step, methods=compose(name, off), buffer=buffer, settings=settings))
    (weights,) = (root / "01").glob("*.safetensors")
    return weights.read_bytes()


@pytest.mark.parametrize("family", mostly_slow(["dual", "fusion"], kept=["dual"]))
@pytest.mark.parametrize("name", sorted(OFF))
def test_a_method_that_is_turned_off_is_plain(chains: Chain, name: str, family: str) -> None:
    method = TABLE[name]()
    policy = method.needs(first=False).policy or method.usual_policy
    heads = HEADS.get(name) if family == "fusion" else None
    plain = "er" if policy else "seqf"
    off = chains(family, name, policy, heads)  # type: ignore[call-arg]
    assert off == chains(family, plain, policy, heads)  # type: ignore[call-arg]

"""The grammar of --fail-if: what is accepted, whatever the names, and what is refused."""

from __future__ import annotations

import pytest

from vlcpctl.core.errors import UsageError
from vlcpctl.metrics.definitions import DEFINITIONS
from vlcpctl.report.facts import DROPS
from vlcpctl.report.gates import Gate, is_beyond, parse_gate

KEYS = ("rm", "t2i_r1", "acc1")


def _parsed(text: str) -> Gate:
    return parse_gate(text, KEYS)


@pytest.mark.parametrize("name", [*DEFINITIONS, *DROPS])
@pytest.mark.parametrize("key", [None, "acc1"])
def test_every_summary_and_drop_takes_a_key(name: str, key: str | None) -> None:
    gate = _parsed(f"{name}.{key}:gt:1" if key else f"{name}:gt:1")
    assert (gate.metric.name, gate.metric.key, gate.selectors) == (name, key, ())


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        ("data=coco", {"data": "coco"}),
        ("run=w*,data=c?,evaluator=r*", {"run": "w*", "data": "c?", "evaluator": "r*"}),
        ("data=a:b:lt:5", {"data": "a:b:lt:5"}),
        ("data=me@host", {"data": "me@host"}),
        ("data=a=b", {"data": "a=b"}),
        ("data=a[,]b,run=x", {"data": "a[,]b", "run": "x"}),
        ("data=[],]x,run=y", {"data": "[],]x", "run": "y"}),
        ("data=a[b,run=x", {"data": "a[b", "run": "x"}),
        ("data= ", {"data": " "}),
    ],
)
def test_a_pattern_may_contain_anything(selectors: str, expected: dict[str, str]) -> None:
    gate = _parsed(f"drop@{selectors}:gt:3")
    assert dict(gate.selectors) == expected
    assert (gate.metric.text, gate.comparison, gate.bound) == ("drop", "gt", 3.0)


@pytest.mark.parametrize(
    ("text", "key", "selectors"),
    [
        ("r@1:lt:5", "r@1", {}),
        ("r@1@run=a@b:lt:5", "r@1", {"run": "a@b"}),
        ("drop.r@1@data=x:lt:5", "r@1", {"data": "x"}),
        ("r:lt:5", "r", {}),
        ("a:b@run=x:lt:5", "a:b", {"run": "x"}),
        ("bwt_gem.a.b:lt:5", "a.b", {}),
    ],
)
def test_keys_of_rows_may_contain_anything(text: str, key: str, selectors: dict[str, str]) -> None:
    gate = parse_gate(text, ["r", "r@1", "a:b", "a.b"])
    assert (gate.metric.key, dict(gate.selectors)) == (key, selectors)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("R@1:lt:1", "t2i_r1"),
        ("bwt_gm:lt:1", "bwt_gem"),
        ("bwt_gem.t2i_r2:lt:1", "t2i_r1"),
        ("rm.t2i:lt:1", "rm"),
        ("bwt_gem:<:1", "<"),
        ("bwt_gem:lt:nan", "nan"),
        ("bwt_gem:lt:1_0", "1_0"),
        ("bwt_gem", "METRIC:OP:VALUE"),
        ("drop@dta=coco:lt:1", "data"),
        ("drop@:lt:1", "FIELD=GLOB"),
        ("drop@data=a,b:lt:1", r"\[,\]"),
        ("drop@data=:lt:1", "data="),
        ("drop@data=a,data=b:lt:1", "twice"),
        ("bwt_gem.rm@data=coco:lt:1", "rm@data="),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        _parsed(text)


def test_a_difference_that_is_a_bound_but_for_rounding_is_the_bound() -> None:
    assert 0.3 - 0.2 != 0.1
    assert not is_beyond(0.1 + 1e-13, "gt", 0.1)
    assert is_beyond(0.3 - 0.2, "ge", 0.1)
    assert is_beyond(0.1001, "gt", 0.1)

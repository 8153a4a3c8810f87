"""What `--method` and `--set` accept, and what they refuse."""

from __future__ import annotations

import dataclasses

import pytest

from vlcpctl.core.errors import UsageError
from vlcpctl.core.options import lies_within
from vlcpctl.methods import TABLE
from vlcpctl.training.methods import compose


def test_order_of_names_does_not_matter() -> None:
    assert compose("dha+ctp") == compose("ctp+dha")


@pytest.mark.parametrize(
    ("names", "assignments", "message"),
    [
        ("ctpp", [], "unknown method 'ctpp'; did you mean 'ctp'"),
        ("ctp+ctp", [], "names a method twice"),
        ("ctp", ["ctp.momentums=true"], "did you mean 'momentum'"),
        ("ctp", ["dha.every=3"], "'dha' is not in --method"),
        ("ctp", ["ctp.momentum"], "is not of the form METHOD.PARAMETER=VALUE"),
        ("ctp", ["ctp.momentum=maybe"], "'maybe' is neither true nor false"),
        ("dha", ["dha.every=2.5"], "'2.5' is not a whole number"),
        ("dha", ["dha.every=0"], r"dha.every=0: the value must be within \[1, inf\)"),
        ("ctp", ["ctp.queue=2147483648"], "too large; at most 2147483647 is possible"),
        ("dha", ["dha.main_share=nan"], "'nan' is not a finite number"),
        ("ema", ["ema.decay=2"], r"the value must be within \[0, 1\]"),
        ("modx", ["modx.alpha=inf"], "'inf' is not a finite number"),
        ("co2l", ["co2l.now=0"], r"the value must be within \(0, inf\)"),
        ("geodl", ["geodl.dimensions=-5"], r"the value must be within \[0, inf\)"),
        ("lwf", ["lwf.target=chanels"], "did you mean 'channels'"),
    ],
)
def test_mistakes_are_answered_with_the_nearest_right_thing(
    names: str, assignments: list[str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        compose(names, assignments)


def test_two_methods_that_write_the_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TABLE["lwf"], "writes_weights", True)
    with pytest.raises(UsageError, match="dha and lwf both overwrite the weights"):
        compose("lwf+dha")


def test_every_default_lies_within_its_interval() -> None:
    for name in TABLE:
        for field in dataclasses.fields(TABLE[name]):  # type: ignore[arg-type]
            interval = field.metadata["within"]
            assert bool(interval) == (type(field.default) in (int, float)), (name, field.name)
            assert not interval or lies_within(field.default, interval), (name, field.name)

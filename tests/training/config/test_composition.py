"""What `--method` and `--set` accept, and what they refuse."""

from __future__ import annotations

import pytest

from vlcpctl.core.errors import UsageError
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
        ("ctp", ["ctp.momentum"], "METHOD.PARAMETER=VALUE"),
        ("ctp", ["ctp.momentum=maybe"], "'maybe'"),
        ("ctp", ["ctp.queue=2147483648"], "at most 2147483647"),
        ("co2l", ["co2l.now=0"], r"within \(0, inf\)"),
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

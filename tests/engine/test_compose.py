"""What `--method` and `--set` accept, and what they refuse."""

from __future__ import annotations

import pytest

from vlcpctl.core.errors import UsageError
from vlcpctl.core.method import Method
from vlcpctl.engine import compose as composing
from vlcpctl.engine.compose import compose


def test_order_of_names_does_not_matter() -> None:
    assert compose("dha+ctp") == compose("ctp+dha")


@pytest.mark.parametrize(
    ("names", "assignments", "message"),
    [
        ("ctpp", [], "unknown method 'ctpp'; did you mean 'ctp'"),
        ("ctp+ctp", [], "names a method twice"),
        ("ctp", ["ctp.momentums=true"], "did you mean 'momentum'"),
        ("ctp", ["dha.every=3"], "'dha' does not run here"),
        ("ctp", ["ctp.momentum"], "is not METHOD.PARAMETER=VALUE"),
        ("ctp", ["ctp.momentum=maybe"], "'maybe' is not a bool"),
        ("dha", ["dha.every=2.5"], "'2.5' is not a int"),
        ("lwf", ["lwf.target=chanels"], "did you mean 'channels'"),
    ],
)
def test_mistakes_are_answered_with_the_nearest_right_thing(
    names: str, assignments: list[str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        compose(names, assignments)


def test_two_methods_that_write_the_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Method):
        name = "other"
        writes_weights = True

    monkeypatch.setitem(composing.TABLE, "other", Other)
    with pytest.raises(UsageError, match="dha and other both write the weights"):
        compose("other+dha")

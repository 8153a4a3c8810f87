"""The resolved options of an update."""

from __future__ import annotations

import pytest

from vlcpctl.production.settings import Settings


@pytest.mark.parametrize(
    ("method", "given", "policy"),
    [
        ("er", None, "reservoir"),
        ("icarl", None, "herding"),
        ("lucir", None, "herding"),  # its paper's, though others are accepted
        ("lucir", "reservoir", "reservoir"),
    ],
)
def test_the_buffer_has_the_policy_of_the_method_unless_another_is_given(
    method: str, given: str | None, policy: str
) -> None:
    assert Settings(run="shop", method=method, policy=given).buffer_policy == policy

"""Values of --temperature that are accepted and refused."""

from __future__ import annotations

import pytest

from vlcpctl.core.errors import UsageError
from vlcpctl.models.temperature import parse_temperature


@pytest.mark.parametrize(
    "text", ["0.07", "fixed", "fixed:", "fixed:0", "learn:-1", "learn:inf", "x:1"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"such as fixed:0\.07"):
        parse_temperature(text)


def test_the_scale_is_the_logarithm_of_the_inverse() -> None:
    assert parse_temperature("learn:0.07").log_scale == pytest.approx(2.6592600)

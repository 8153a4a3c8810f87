"""One wording for options that have no effect, with or without a reason of their own."""

from __future__ import annotations

import pytest

from vlcpctl.core.errors import UsageError
from vlcpctl.core.option_rules import GoesWith, refuse_idle


@pytest.mark.parametrize(
    ("row", "value", "said"),
    [
        (GoesWith("crop_scale", "crop"), None, "without --crop"),
        (GoesWith("crop_scale", "crop", None, "why"), None, "without --crop: why"),
        (GoesWith("crop_scale", "crop", ()), "x", "with --crop"),
        (GoesWith("crop_scale", "crop", (), "why"), "x", "with --crop: why"),
        (
            GoesWith("crop_scale", "crop", ("a", "b")),
            "x",
            "with --crop x: it applies only to --crop a, b",
        ),
        (GoesWith("crop_scale", "crop", ("a",), "why"), "x", "with --crop x: why"),
        (
            GoesWith("crop_scale", "crop", ("a",)),
            None,
            "without --crop: it applies only to --crop a",
        ),
    ],
)
def test_an_option_without_effect_is_refused_with_the_reason(
    row: GoesWith, value: str | None, said: str
) -> None:
    options = {"crop_scale": "0.2,1", "crop": value}
    with pytest.raises(UsageError) as refused:
        refuse_idle([row], options)
    assert str(refused.value) == f"--crop-scale has no effect {said}"
    refuse_idle([row], options | {"crop_scale": None})
    refuse_idle([row], options, given=["crop"])


@pytest.mark.parametrize(
    ("values", "value"), [(None, "x"), ((), None), (("x", "y"), "x"), (("x", "y"), "y")]
)
def test_an_option_with_an_effect_is_taken(
    values: tuple[str, ...] | None, value: str | None
) -> None:
    row = GoesWith("crop_scale", "crop", values)
    refuse_idle([row], {"crop_scale": "0.2,1", "crop": value})

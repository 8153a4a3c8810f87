"""A receipt as lines of text."""

from __future__ import annotations

import pytest

from vlcpctl.deletion.records import lines
from vlcpctl.deletion.selectors import Selectors


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["a"], "1 pair: a"),
        (["a", "b", "c"], "3 pairs: a, b, c"),
        (["a", "b", "c", "d"], "4 pairs: a, b, c, ..."),
    ],
)
def test_the_first_line_has_at_most_three_keys(keys: list[str], said: str) -> None:
    lists = ("artifacts", "checkpoints", "unknown", "mentions", "not_found")
    fields = {"keys": keys, "same_image": 0, **{name: [] for name in lists}}
    assert next(lines(fields, Selectors(), str)) == said

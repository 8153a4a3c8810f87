"""A receipt as lines of text."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlcpctl.deletion.receipt import Receipt, lines


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["a"], "1 pair: a"),
        (["a", "b", "c"], "3 pairs: a, b, c"),
        (["a", "b", "c", "d"], "4 pairs: a, b, c, ..."),
    ],
)
def test_the_first_line_has_at_most_three_keys(keys: list[str], said: str, tmp_path: Path) -> None:
    receipt = Receipt(path=tmp_path, request="", started="", paths=[], selectors=[])
    receipt.keys = keys
    assert next(lines(receipt, [], str)) == said

"""The header of a card is YAML that reads back as what it was made from."""

from __future__ import annotations

import yaml

from vlcpctl.export.data_card import front_matter


def test_any_text_reads_back() -> None:
    texts = [
        "no",
        "1e3",
        "\U0001f600 x",
        "\\ud83d\\ude00",
        "\\\U0001f600",
        "\xe9\u2028\x7f",
        "a: b",
    ]
    fields = {
        "texts": texts,
        "\U0001f601": {"no": [], "x": None},
        "dtype": [{"name": "\U00010000"}],
    }
    text = front_matter(fields)
    assert text.isascii()
    assert yaml.safe_load(text.removeprefix("---\n").removesuffix("---")) == fields

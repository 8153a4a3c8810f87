"""The caps: what they refuse, and how --cap changes them."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from vlcpctl.core.errors import UsageError
from vlcpctl.core.options import options_of
from vlcpctl.core.words import shortened
from vlcpctl.data.sources import limits
from vlcpctl.data.sources.limits import Caps, parse_caps
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.tasks.samples import Pair

PAIR = Pair("p", "k", b"", ["ab", "c"], "l", "v", None)
NAMES = [field.name.replace("_", "-") for field in fields(Caps)]


@pytest.mark.parametrize("field", ["source_key", "label", "value", "split"])
def test_a_long_name_exceeds_its_cap(field: str) -> None:
    long = PAIR._replace(**{field: "x" * 11})
    assert "11 characters in its key, label" in str(Caps(name_length=10).exceeded(long))
    assert Caps(name_length=11).exceeded(long) is None


def test_captions_exceed_their_caps() -> None:
    assert Caps(captions=2, caption_length=3).exceeded(PAIR) is None
    assert "--cap captions=N" in str(Caps(captions=1).exceeded(PAIR))
    assert "--cap caption-length=N" in str(Caps(caption_length=2).exceeded(PAIR))


@pytest.mark.parametrize(
    "word",
    [
        *("captions", "captions=", "x=3", "captions=-1", "captions=0", "captions=1e3"),
        *("captions=\u00b2", "captions=5QB", "captions=" + "9" * 400),
    ],
)
def test_a_cap_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="--cap"):
        parse_caps([word])


def test_every_cap_can_be_changed_and_is_explained() -> None:
    for name in NAMES:
        changed = parse_caps([f"{name}=2KiB"])
        assert getattr(changed, name.replace("-", "_")) == 2048
        assert re.search(rf"^  {name} ", str(limits.__doc__), re.M)
        assert f"{name}=" in options_of(SplitOptions)["cap"][0].text


def test_names_are_shown_on_one_short_line() -> None:
    assert shortened("a\x1b[31m\n") == "a\\x1b[31m\\n"
    assert len(shortened("x" * 10**6)) < 300

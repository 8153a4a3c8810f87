"""Suggestions in messages."""

from __future__ import annotations

from vlcpctl.core.errors import nearest, unknown_name


def test_a_name_is_never_suggested_for_itself() -> None:
    assert nearest("rm", ["rm", "rmm"]) == "rmm"
    assert nearest("rm", ["rm"]) is None
    assert unknown_name("metric", "rm", ["rm"]) == "unknown metric 'rm' (known: rm)"

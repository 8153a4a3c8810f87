"""Which cases of a long table run by default; all others are marked slow."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def mostly_slow(cases: Iterable[Any], kept: Collection[Any]) -> list[Any]:
    """The cases of a table, of which only those in `kept` run by default."""
    found = list(cases)
    assert all(one in found for one in kept), kept
    return [one if one in kept else pytest.param(one, marks=pytest.mark.slow) for one in found]

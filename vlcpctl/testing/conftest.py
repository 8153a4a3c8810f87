"""Collects the tests of a method only where `--method` of the plug-in names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlcpctl.testing.plugin import CASE


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the tests out of runs over directories that happen to contain them."""
    is_left_out = collection_path.name == "test_method.py" and CASE not in config.stash
    return True if is_left_out else None

"""Collects the tests of methods only where a method is named, and finds the method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vlcpctl.core.errors import VlcpError
from vlcpctl.methods.plugins.registry import MethodRegistry

_TESTS = "test_method.py"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the tests where nobody asked for them, such as in a run over a whole directory."""
    if collection_path.name != _TESTS or config.getoption("--method", None):
        return None
    named = any("vlcpctl.testing" in one or _TESTS in one for one in config.args)
    if named:
        raise pytest.UsageError(
            "the tests of vlcpctl.testing need a method: add --method NAME, and --method-file "
            "FILE.py if a file defines it"
        )
    return True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Find the method once, before any test; an unknown one is an error of the command line."""
    if "case" not in metafunc.fixturenames:
        return
    options: Any = metafunc.config
    try:
        registry = MethodRegistry.of([Path(one) for one in options.getoption("--method-file")])
        name = options.getoption("--method")
        registry.find(name)
        registry.refuse_idle_files(name)
    except VlcpError as error:
        raise pytest.UsageError(f"{error}") from error
    metafunc.parametrize("case", [(name, registry)], ids=[name], scope="module")

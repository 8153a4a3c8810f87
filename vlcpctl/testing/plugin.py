"""The options `--method` and `--method-file` of pytest, which finds this plug-in by itself.

It is imported in every run of pytest where vlcpctl is installed: nothing heavy is imported here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from vlcpctl.methods.plugins.registry import MethodRegistry

    Case = tuple[str, MethodRegistry]  # the method's name, and where it is found

CASE: pytest.StashKey[Case] = pytest.StashKey()  # set if vlcpctl.testing is to be run
_NAMES = ("vlcpctl.testing", "testing/test_method.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `pytest --pyargs vlcpctl.testing`."""
    group = parser.getgroup("vlcpctl", "methods of vlcpctl (pytest --pyargs vlcpctl.testing)")
    group.addoption("--method", metavar="NAME", help="Method that vlcpctl.testing tests.")
    group.addoption(
        "--method-file",
        action="append",
        default=[],
        metavar="FILE.py",
        help="Python file that defines methods; repeat for more. Its code is run.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Find the method, if the tests of vlcpctl.testing are named on the command line."""
    if any(name in argument for name in _NAMES for argument in config.args):
        config.stash[CASE] = _case(config.getoption("--method"), config.getoption("--method-file"))


def _case(name: str | None, files: list[str]) -> Case:
    """The method to test; raises pytest.UsageError if there is none of this name."""
    from vlcpctl.core.errors import VlcpError
    from vlcpctl.methods.plugins.registry import MethodRegistry

    if name is None:
        raise pytest.UsageError(
            "vlcpctl.testing tests one method: add --method NAME, and --method-file FILE.py if a "
            "file defines it"
        )
    try:
        registry = MethodRegistry.of(map(Path, files))
        registry.find(name)
        registry.refuse_idle_files(name)
    except VlcpError as error:
        raise pytest.UsageError(f"{error}") from error
    return name, registry

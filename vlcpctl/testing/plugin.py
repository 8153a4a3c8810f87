"""The options `--method` and `--method-file` of pytest, with `-p vlcpctl.testing.plugin`.

It has no entry point for pytest: its options have general names, and other projects' runs of pytest
in the same environment may define the same ones.
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
    """Add the options of the tests of vlcpctl.testing."""
    group = parser.getgroup("vlcpctl", "methods of vlcpctl (--pyargs vlcpctl.testing)")
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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give the tests the method as `case`: its name, and where it is found."""
    if "case" in metafunc.fixturenames and CASE in metafunc.config.stash:
        case = metafunc.config.stash[CASE]
        metafunc.parametrize("case", [case], ids=[case[0]], scope="module")


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
    except VlcpError as error:
        raise pytest.UsageError(f"{error}") from error
    return name, registry

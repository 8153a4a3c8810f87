"""The options `--method` and `--method-file` of pytest, which finds this plug-in by itself.

It is imported in every run of pytest where vlcpctl is installed: nothing heavy is imported here.
"""

from __future__ import annotations

from typing import Any


def pytest_addoption(parser: Any) -> None:
    """Add the options of `pytest --pyargs vlcpctl.testing`."""
    group = parser.getgroup("vlcpctl", "methods of vlcpctl (pytest --pyargs vlcpctl.testing)")
    group.addoption(
        "--method", default=None, metavar="NAME", help="Method that vlcpctl.testing tests."
    )
    group.addoption(
        "--method-file",
        action="append",
        default=[],
        metavar="FILE.py",
        help="Python file that defines methods; repeat for more. Its code is run.",
    )

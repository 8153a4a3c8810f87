"""`import vlcpctl` is instant; what it offers comes when it is used."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import vlcpctl
from vlcpctl.api import HOMES

LIGHT = "sorted({'torch', 'pyarrow', 'numpy', 'typer', 'pandas'} & sys.modules.keys())"


@pytest.mark.parametrize(
    "words",
    ["", "dir(vlcpctl)", "vlcpctl.VlcpError", "vlcpctl.update", "from vlcpctl import core"],
)
def test_the_import_itself_is_light(words: str) -> None:
    code = f"import sys, vlcpctl\n{words}\nprint({LIGHT})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", sorted(HOMES))
def test_every_name_is_there_and_documented(name: str) -> None:
    assert name in dir(vlcpctl)
    found = getattr(vlcpctl, name)
    assert getattr(vlcpctl, name) is found  # and not made again
    assert found.__name__ == name
    assert found.__doc__


def test_no_name_is_that_of_a_package() -> None:
    """After `import vlcpctl.report`, vlcpctl.report is the package."""
    packages = {one.name for one in pkgutil.iter_modules(vlcpctl.__path__)}
    assert not packages & HOMES.keys()


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'vlcpctl' has no attribute 'spilt'"):
        vlcpctl.spilt  # noqa: B018

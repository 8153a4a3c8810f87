"""`python -m vlcpctl.testing --method NAME`: runs pytest with the tests of one method."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

WORDS = ("-p", "vlcpctl.testing.plugin", "--pyargs", "vlcpctl.testing")


def main() -> None:
    """Run the tests with the options of the command line, and exit with pytest's code."""
    if find_spec("pytest") is None:
        sys.exit("vlcpctl.testing needs pytest; install it with: pip install pytest")
    import pytest

    # The project in this directory may have a conftest.py that defines the same options, or a
    # configuration that only its own tests fit.
    alone = ("--noconftest", "-c", os.devnull, "--rootdir", str(Path.cwd()))
    sys.exit(pytest.main([*WORDS, *alone, *sys.argv[1:]]))


if __name__ == "__main__":
    main()

"""`python -m vlcpctl.testing --method NAME`: as `pytest --pyargs vlcpctl.testing` does."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> None:
    """Run the tests with the options of the command line, and exit with pytest's code."""
    if find_spec("pytest") is None:
        sys.exit("vlcpctl.testing needs pytest; install it with: pip install 'vlcpctl[testing]'")
    import pytest

    words = ["-p", "vlcpctl.testing.plugin", "--pyargs", "vlcpctl.testing", *sys.argv[1:]]
    sys.exit(pytest.main(words))


if __name__ == "__main__":
    main()

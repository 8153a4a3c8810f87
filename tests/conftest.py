"""One thread for arithmetic, and tests/ importable, so that fixtures are shared as functions."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import hypothesis
import pytest

from vlcpctl.core.console import set_quiet

# Slow is not wrong on a busy machine: an example may take longer than 200 ms.
hypothesis.settings.register_profile("vlcpctl", deadline=None)
hypothesis.settings.load_profile("vlcpctl")
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
# What is imported for thousands of tests stays: searching it for garbage took a third of the time.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands read, see `make_place`; who changes it makes a copy."""
    from support.writers import make_place

    from vlcpctl.models.imports import preload

    preload()
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture(autouse=True)
def _not_quiet() -> None:
    set_quiet(False)  # as a command line of an earlier test may have left it


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    # Only where a test has torch already: importing it takes seconds.
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)

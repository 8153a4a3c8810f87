"""One thread for arithmetic, and tests/ importable, so that fixtures are shared as functions."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from vlcpctl.core.console import set_quiet

if TYPE_CHECKING:
    from vlcpctl.testing.battery import TrainingWorld

# Slow is not wrong on a busy machine: an example may take longer than 200 ms.
hypothesis.settings.register_profile("vlcpctl", deadline=None)
hypothesis.settings.load_profile("vlcpctl")
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _not_quiet() -> None:
    set_quiet(False)  # as a command line of an earlier test may have left it


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    # Only where a test has torch already: importing it takes seconds.
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> TrainingWorld:
    """The tiny stream on which most tests of training train; none of them changes it."""
    from vlcpctl.testing.battery import make_world

    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def first(world: TrainingWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the first task's checkpoint, 00, by seqf; no test changes it."""
    from vlcpctl.testing.battery import request
    from vlcpctl.training.train_step import train_step

    root = tmp_path_factory.mktemp("first")
    train_step(request(world, "seqf", 0, root, buffered=False))
    return root

"""The tiny stream on which most tests of training train."""

from __future__ import annotations

import pytest

from vlcpctl.testing.battery import TrainingWorld, make_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> TrainingWorld:
    return make_world(tmp_path_factory.mktemp("world"))

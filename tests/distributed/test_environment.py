"""What a launcher sets in the environment, and what a user may have set there by mistake."""

from __future__ import annotations

import pytest
import torch

from vlcpctl.core.errors import UsageError
from vlcpctl.distributed.peers import run_as_rank
from vlcpctl.distributed.ranks import ProcessRanks, process_ranks
from vlcpctl.distributed.world import join_processes

RANKS = ProcessRanks(0, 2, 0)


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    for name in ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_ranks_are_those_of_the_environment(launcher: pytest.MonkeyPatch) -> None:
    assert process_ranks() == ProcessRanks(0, 2, 0)
    launcher.setenv("LOCAL_RANK", "1")
    assert process_ranks() == ProcessRanks(0, 2, 1)
    launcher.delenv("RANK")
    assert process_ranks() is None


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "LOCAL_RANK"])
@pytest.mark.parametrize("value", ["", "two", "-1", "\u00b2", "1\n"])
def test_a_rank_that_is_no_number_is_named(
    launcher: pytest.MonkeyPatch, name: str, value: str
) -> None:
    launcher.setenv(name, value)
    with pytest.raises(UsageError, match=f"variable {name} is '.*', not a number"):
        process_ranks()


@pytest.mark.usefixtures("launcher")
def test_ranks_without_the_address_of_the_first_process_are_refused() -> None:
    said = "MASTER_ADDR expected, but not set; start vlcpctl with a launcher such as torchrun"
    with pytest.raises(UsageError, match=said):
        run_as_rank(RANKS, "cpu", lambda: None)
    with pytest.raises(UsageError, match=said), join_processes(RANKS, torch.device("cpu")):
        pass

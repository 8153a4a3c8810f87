"""Processes of a pool end with its block, whatever they do."""

from __future__ import annotations

import multiprocessing
import signal
import time
from pathlib import Path

import pytest
from support.processes import wait_until

from vlcpctl.distributed import peers


class Deaf:
    """A model whose process is deaf to the signal that ends it."""

    def __init__(self, begun: Path) -> None:
        self.begun = begun

    def load(self, device: str) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.begun.touch()
        time.sleep(100)


@pytest.mark.timeout(60)
def test_a_process_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "_END_S", 0.1)
    with peers.start_peers(2, "cpu", lambda: None) as (peer,):
        peer.requests.send((Deaf(tmp_path / "begun"), None, []))
        wait_until((tmp_path / "begun").exists)
    assert multiprocessing.active_children() == []

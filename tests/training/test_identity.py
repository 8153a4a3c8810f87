"""Which finished checkpoints are those of a request, also after their data were rewritten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.rewritten import rewrite_stream

from vlcpctl.core.errors import OutputExists
from vlcpctl.testing.battery import make_world, request
from vlcpctl.training import identity
from vlcpctl.training.train_step import train_step


def test_a_smaller_batch_is_the_same_run_only_where_it_was_cut(tmp_path: Path) -> None:
    """To data with fewer pairs since; a batch that was asked for is another setting."""
    step = request(make_world(tmp_path), "seqf", 0, tmp_path, buffered=False)
    step = replace(step, settings=replace(step.settings, steps=1))
    train_step(step)
    rewrite_stream(tmp_path / "stream", step.tasks[0])
    fewer = replace(step, settings=replace(step.settings, batch_size=3))
    cut = replace(fewer, asked={"batch_size": 4})
    assert identity.already_trained(cut, identity.semantic(cut))
    with pytest.raises(OutputExists, match=r"settings\.batch_size was 4 and is now 3"):
        identity.already_trained(fewer, identity.semantic(fewer))

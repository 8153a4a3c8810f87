"""One interpreter = one process per task = processes killed and resumed, byte for byte.

A method is in the battery by being in the table.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.marks import mostly_slow

from vlcpctl.methods import TABLE
from vlcpctl.testing.battery import (
    TrainingWorld,
    chain,
    require_exact_resume,
    with_fusion_model,
)

COMPOSED = ["ctp+dha", "ema+ewc", "ewc+mas"]
BUFFERED = ["ctp"]
FUSED = ["ctp", "lucir", "mas", "afec"]  # each has terms over tokens of its own


@pytest.mark.parametrize(
    "name",
    mostly_slow(
        [
            *(*sorted(TABLE), *COMPOSED),
            *(f"{name} with a buffer" for name in BUFFERED),
            *(f"fused {name}" for name in FUSED),
        ],
        kept=["ctp", "er"],
    ),
)
def test_killed_and_resumed_equals_never_stopped(
    world: TrainingWorld, tmp_path: Path, name: str
) -> None:
    method = name.removesuffix(" with a buffer").removeprefix("fused ")
    buffered = name.endswith("buffer")
    data = with_fusion_model(world) if name.startswith("fused") else world
    require_exact_resume(lambda root: chain(data, method, root, buffered=buffered), tmp_path)

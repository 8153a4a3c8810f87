"""Inputs and results of single functions of the CTP authors' code, in double precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from support.fake_run import FakeRun, features
from torch import Tensor

DATA = Path(__file__).parent.parent / "authors" / "data"
# Read whole: forked readers would share a place in the file.
GOLDEN = dict(np.load(DATA / "ctp_functional.npz"))


def given(name: str) -> Tensor:
    """An input of the first case."""
    return torch.tensor(GOLDEN[f"s0/in/{name}"])


def close(found: Tensor | float | None, expected: object) -> None:
    """Compare with a number of theirs, or that of a name."""
    ours = found.detach().numpy() if isinstance(found, Tensor) else found
    theirs = GOLDEN[expected] if isinstance(expected, str) else expected
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def given_run(*, first: bool = False, processes: int = 1) -> FakeRun:
    """A run with their teacher, momentum model and full queue."""
    run = FakeRun(
        old=features(given("R_img"), given("R_txt")),
        slow=features(given("M_img"), given("M_txt")),
        started_first=first,
        processes=processes,
    )
    run.slots["momentum"] = {}
    run.slots["queue"] = {
        "image": given("queue_img").T.clone(),
        "text": given("queue_txt").T.clone(),
        "position": torch.tensor(int(GOLDEN["s0/in/queue_ptr"][0])),
        "filled": torch.tensor(12),
    }
    return run

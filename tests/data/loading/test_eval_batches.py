"""Images for evaluation: in order, the same with workers, an error in a worker on one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from vlcpctl.core.errors import VlcpError
from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.images.transforms import decode_image, eval_view
from vlcpctl.data.loading.eval_batches import EvalImages, read_views
from vlcpctl.data.tasks.task import Split, open_task
from vlcpctl.testing.tiny_stream import make_task

VIEW = ImageTransform(image_size=16, mean=(0, 0, 0), std=(1, 1, 1))
ROWS = np.array([6, 0, 3, 1, 5])


@pytest.fixture
def split(tmp_path: Path) -> Split:
    return open_task(make_task(tmp_path / "task", 7)).split("train")


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_hold_the_rows_in_their_order(split: Split, workers: int) -> None:
    batches = list(read_views(EvalImages(split, ROWS, VIEW, 2), workers))
    assert [tuple(batch.shape) for batch in batches] == [
        (2, 16, 16, 3),
        (2, 16, 16, 3),
        (1, 16, 16, 3),
    ]
    expected = [eval_view(decode_image(split.image(row)), VIEW) for row in ROWS.tolist()]
    assert torch.equal(torch.cat(batches), torch.from_numpy(np.stack(expected)))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory: 9 bytes")])
def test_an_image_at_which_memory_runs_out_is_named(
    split: Split, workers: int, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def view(*_: object) -> None:
        raise error

    monkeypatch.setattr("vlcpctl.data.loading.eval_batches.eval_view", view)
    with pytest.raises(VlcpError, match=rf"{split.path.name}, row {ROWS[0]} .*out of memory"):
        list(read_views(EvalImages(split, ROWS, VIEW, 2), workers))

"""`vlcpctl buffer`: what it prints, what it refuses, and that features reach the policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import buffer as run
from support.one_by_one import projections

from vlcpctl.commands.buffer import Buffer
from vlcpctl.data.buffer.update import open_buffer
from vlcpctl.data.precomputed.features import read_features
from vlcpctl.data.tasks.task import Split, open_task
from vlcpctl.distributed.pool import Pool
from vlcpctl.files.manifest import read_manifest, write_manifest
from vlcpctl.testing.tiny_stream import make_stream


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    return make_stream(tmp_path / "stream", tasks=2, n=8)


def test_previous_buffer_and_json(
    stream: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(stream / "00-part-0", tmp_path / "b0", size="50%", of="stream", policy="ring", quiet=True)
    capsys.readouterr()
    run(
        stream / "01-part-1",
        tmp_path / "b1",
        previous=tmp_path / "b0",
        size="50%",
        of="stream",
        policy="ring",
        quiet=True,
        json=True,
    )
    result = json.loads(capsys.readouterr().out)
    assert (result["path"], result["images"]) == (str(tmp_path / "b1"), 8)
    assert result["buffer"]["items"] == {"part 0": 4, "part 1": 4}
    assert (result["buffer"]["size"], result["buffer"]["of"]) == ("50%", 16)
    assert list(result["buffer"]["seen"].values()) == [8, 8]


def test_herding_looks_at_features_of_the_checkpoint_and_records_it(
    stream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "run"
    checkpoint.mkdir()
    write_manifest(checkpoint, "checkpoint", {}, "c0ffee", {})

    def embed(model: Any, _pool: Pool, split: Split, rows: np.ndarray) -> np.ndarray:
        assert (model.checkpoint, model.device) == (checkpoint, "cpu")
        angles = np.array(rows) * 0.1  # row 3 or 4 is nearest to the mean
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)

    monkeypatch.setattr(Buffer, "_embed", embed)
    run(
        stream / "00-part-0",
        tmp_path / "buffer",
        size="1",
        policy="herding",
        checkpoint=checkpoint,
        device="cpu",
        quiet=True,
    )
    buffer = open_buffer(tmp_path / "buffer")
    keys = open_task(stream / "00-part-0").split("train").keys
    assert buffer.split("train").keys[0] in keys[3:5]
    assert buffer.buffer.checkpoint == "c0ffee"


def test_stored_features_are_those_of_the_checkpoint(place: Path, tmp_path: Path) -> None:
    task, checkpoint = place / "stream" / "00-part-0", place / "plain"
    run(task, tmp_path / "b", size="5", checkpoint=checkpoint, store_features=True, quiet=True)
    buffer = open_buffer(tmp_path / "b")
    found = read_features(buffer)
    image, text = projections(checkpoint, buffer.split("train"))
    np.testing.assert_allclose(found.image_ND, image, rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(found.text_TD, text, rtol=2e-3, atol=1e-4)
    assert set(found.makers) == {read_manifest(checkpoint, "checkpoint")["content"]}
    assert buffer.buffer.features.width == image.shape[1]

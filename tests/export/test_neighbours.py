"""Other programs read what `vlcpctl export` writes, with nothing but their own loaders."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.program import run_program

from vlcpctl.testing.tiny_stream import make_image, make_pair, make_task

SPLITS = {"train": 5, "val": 2, "test": 3, "query": 2, "gallery": 2}
KINDS = ("PNG", "JPEG", "WEBP")


@pytest.fixture
def exported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    """Exports a task with all splits and kinds of images, and returns the directory."""
    task = make_task(
        tmp_path / "task",
        splits=SPLITS,
        pair=lambda number: make_pair(number, captions=2, kind=KINDS[number % 3]),
    )

    def export(form: str, *words: object) -> Path:
        out = tmp_path / form
        ended = run_program(capfd, "export", task, "--to", form, "-o", out, "-q", *words)
        assert ended.code == 0, ended.err
        return out

    return export


@pytest.mark.slow
def test_datasets_shows_the_images_of_every_split(
    exported: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    found = datasets.load_dataset(str(exported("hf")), cache_dir=str(tmp_path / "cache"))
    names = {"val": "validation"}
    assert {name: len(rows) for name, rows in found.items()} == {
        names.get(name, name): count for name, count in SPLITS.items()
    }
    number = 0
    for name in SPLITS:
        rows = found[names.get(name, name)]
        assert rows.features["image"] == datasets.Image()
        assert rows.features["captions"] == datasets.List(datasets.Value("string"))
        for row in sorted(rows, key=lambda one: one["source_key"]):
            assert row["captions"] == make_pair(number, captions=2).captions
            with Image.open(io.BytesIO(make_image(number, kind=KINDS[number % 3]))) as wanted:
                assert row["image"].tobytes() == wanted.tobytes()
            number += 1


@pytest.mark.slow
def test_the_card_describes_the_features_that_datasets_finds(exported: Any, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    out = exported("hf")
    files = [str(path) for path in (out / "data").glob("train-*")]
    plain = datasets.load_dataset("parquet", data_files=files, cache_dir=str(tmp_path / "cache"))
    told = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    assert plain["train"].features == told["train"].features

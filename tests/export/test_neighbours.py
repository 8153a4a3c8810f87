"""Other programs read what `vlcpctl export` writes, with nothing but their own loaders."""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.environments import install, new_python, run
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
@pytest.mark.parametrize("form", ["hf", "imagefolder"])
def test_datasets_shows_the_images_of_every_split(
    form: str, exported: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    found = datasets.load_dataset(str(exported(form)), cache_dir=str(tmp_path / "cache"))
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


@pytest.mark.slow
def test_duckdb_and_pandas_read_the_parquet(exported: Any) -> None:
    duckdb, pandas = pytest.importorskip("duckdb"), pytest.importorskip("pandas")
    out = exported("hf")
    counts = duckdb.sql(
        f"select label, count(*), sum(len(captions)) from '{out}/data/*.parquet' "
        "group by label order by label"
    ).fetchall()
    assert counts == [("class-0", 5, 10), ("class-1", 5, 10), ("class-2", 4, 8)]
    frame = pandas.read_parquet(out / "data" / "train-00000-of-00001.parquet")
    assert frame["image"][1]["bytes"] == make_image(1, kind="JPEG")
    shards = exported("img2dataset")
    assert list(pandas.read_parquet(shards / "test" / "00000.parquet")["status"].unique()) == [
        "success"
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it closes no file
def test_webdataset_reads_the_tars(exported: Any) -> None:
    wds = pytest.importorskip("webdataset")
    tar = exported("img2dataset") / "train" / "00000.tar"
    found = list(
        wds.WebDataset(str(tar), shardshuffle=False)
        .decode("pil")
        .to_tuple("jpg;png;webp", "txt", "json", "__key__")
    )
    assert [key for _, _, _, key in found] == [f"{number:09d}" for number in range(10)]
    assert [text for _, text, _, _ in found] == [one["caption"] for _, _, one, _ in found]
    assert {image.size for image, _, _, _ in found} == {(24, 24)}


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Path]:
    """A Python with open_clip's trainer, and the last webdataset that its release works with.

    OPEN_CLIP_PYTHON is the Python of an existing environment with both.
    """
    given = os.environ.get("OPEN_CLIP_PYTHON")
    if given:
        yield Path(given)
        return
    place = tmp_path / "environment"
    python = new_python(place)
    pinned = [f"{name}=={version(name)}" for name in ("torch", "torchvision", "transformers")]
    install(python, "open_clip_torch[training]==3.3.*", "webdataset==0.2.86", *pinned)
    yield python
    shutil.rmtree(place)


@pytest.mark.slow
@pytest.mark.net
@pytest.mark.timeout(1800)
def test_open_clips_trainer_trains_on_the_tars(
    trainer: Path, exported: Any, tmp_path: Path
) -> None:
    out = exported("img2dataset", "--split", "train", "--shard-size", "15kB")
    shards = sorted((out / "train").glob("*.tar"))
    assert len(shards) > 1
    done = run(
        *(trainer, "-m", "open_clip_train.main", "--device", "cpu"),
        *("--train-data", f"{out}/train/{{00000..{len(shards) - 1:05d}}}.tar"),
        *("--train-num-samples", 10, "--dataset-type", "webdataset", "--batch-size", 5),
        *("--model", "ViT-S-32-alt", "--force-image-size", 32, "--precision", "fp32"),
        *("--workers", 1, "--epochs", 1, "--warmup", 1, "--log-every-n-steps", 1),
        *("--logs", tmp_path / "logs", "--name", "theirs"),
        HF_HUB_OFFLINE="1",
        OMP_NUM_THREADS="1",
    )
    assert len(re.findall(r"Loss: (\d+\.\d+)", done.stderr + done.stdout)) >= 2, done.stderr

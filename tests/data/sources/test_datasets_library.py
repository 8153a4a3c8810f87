"""What the `datasets` library itself writes and reads is the same to `split`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.pair_files import read_pairs

from vlcpctl.testing.tiny_stream import make_image

pytestmark = pytest.mark.slow


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    return datasets


def data_set(library: Any, directory: Path) -> Any:
    directory.mkdir()
    for number in range(9):
        (directory / f"{number}.png").write_bytes(make_image(number, 8))
    features = library.Features(
        {
            "image": library.Image(),
            "captions": library.List(library.Value("string")),
            "label": library.ClassLabel(names=["cat", "dog", "tree"]),
            "year": library.Value("int32"),
        }
    )
    columns = {
        "image": [str(directory / f"{number}.png") for number in range(9)],
        "captions": [[f"caption {number}", "x"] for number in range(9)],
        "label": [number % 3 for number in range(8)] + [None],
        "year": [2000 + number for number in range(9)],
    }
    return library.Dataset.from_dict(columns, features=features)


def test_a_shuffled_and_filtered_data_set_is_saved_with_its_rows(
    tmp_path: Path, library: Any
) -> None:
    whole = data_set(library, tmp_path / "images")
    chosen = whole.shuffle(seed=1).filter(lambda row: row["year"] != 2003).select(range(6))
    parts = library.DatasetDict(train=chosen, validation=whole.select([8, 2]))
    parts.save_to_disk(tmp_path / "saved", num_shards={"train": 3, "validation": 1})
    pairs = read_pairs(tmp_path / "saved", split="split", value="year")
    expected = [("train", row) for row in chosen] + [
        ("validation", row) for row in parts["validation"]
    ]
    names = ["cat", "dog", "tree"]
    assert [(pair.split, pair.value, pair.captions, pair.label) for pair in pairs] == [
        (
            split,
            row["year"],
            row["captions"],
            None if row["label"] is None else names[row["label"]],
        )
        for split, row in expected
    ]
    assert [bytes(pair.image or b"") for pair in pairs] == [
        make_image(row["year"] - 2000, 8) for _, row in expected
    ]
    loaded = library.load_from_disk(str(tmp_path / "saved"))
    assert loaded["train"]["year"] == [pair.value for pair in pairs[:6]]


def test_an_image_folder_is_read_as_the_library_reads_it(tmp_path: Path, library: Any) -> None:
    for part, count in (("train", 3), ("test", 2)):
        place = tmp_path / "folder" / part
        place.mkdir(parents=True)
        for number in range(count):
            (place / f"{number}.png").write_bytes(make_image(number, 8))
        lines = [
            f'{{"file_name": "{number}.png", "text": "{part} {number}"}}\n'
            for number in range(count)
        ]
        (place / "metadata.jsonl").write_text("".join(lines))
    loaded = library.load_dataset(
        "imagefolder", data_dir=str(tmp_path / "folder"), cache_dir=str(tmp_path / "cache")
    )
    theirs = sorted((split, row["text"]) for split in loaded for row in loaded[split])
    pairs = read_pairs(tmp_path / "folder", split="split")
    assert sorted((pair.split, *pair.captions) for pair in pairs) == theirs
    assert all(pair.image for pair in pairs)

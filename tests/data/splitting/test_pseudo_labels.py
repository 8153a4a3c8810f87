"""Predicted labels replace those of the data, whatever the number of threads or the batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.pair_files import rows, write_parquet

from vlcpctl.core.errors import OutputExists
from vlcpctl.data.splitting.labels import LabelsFrom, labels_from
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream
from vlcpctl.data.tasks.task import open_stream


class Brightest:
    """The class is the brightest channel of the first pixel."""

    names = ("red", "green", "blue")

    def __init__(self, batch_size: int = 4) -> None:
        self.batch_size = batch_size
        self.seen = 0

    def prepare(self, image: Image.Image) -> np.ndarray:
        return np.asarray(image)[:1, :1]

    def classify(self, batch: np.ndarray) -> np.ndarray:
        self.seen += len(batch)
        assert len(batch) <= self.batch_size
        return batch.reshape(len(batch), 3).argmax(axis=1)


def colour(data: bytes) -> str:
    import io

    pixel = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))[0, 0]
    return Brightest.names[int(pixel.argmax())]


def split(
    out: Path, source: Path, classifier: Brightest | None = None, threads: int = 0, **options: Any
) -> dict[str, str]:
    """Each image's label, by its source's key, as the index of the stream has it."""
    given = SplitOptions(sources=[str(source)], **{"by": "iid", "tasks": 2, **options})
    load: Callable[[], Brightest] | None = (lambda: classifier) if classifier else None
    make_stream(given, out, classifier=load, threads=threads)
    found = {}
    for task in open_stream(out):
        for name in task.counts:
            part = task.split(name)
            found |= dict(zip(part.column("source_key"), part.column("label"), strict=True))
    return found


@pytest.mark.parametrize(("threads", "batch_size"), [(0, 1), (3, 4), (2, 100)])
def test_labels_of_a_classifier_land_in_the_index(
    tmp_path: Path, threads: int, batch_size: int
) -> None:
    pairs = rows(30)
    source = write_parquet(tmp_path / "pairs.parquet", pairs)
    classifier = Brightest(batch_size)
    found = split(tmp_path / "out", source, classifier, threads, holdout="test=0.2", limit=25)
    assert found == {pair["id"]: colour(pair["image"]) for pair in pairs[:25]}
    assert classifier.seen == 25


class WithTwins(Brightest):
    """Two of its three classes have one name, as two pairs of ImageNet's have."""

    names = ("red", "green", "red")


def test_two_classes_of_one_name_are_two_classes(tmp_path: Path) -> None:
    pairs = rows(40)
    source = write_parquet(tmp_path / "pairs.parquet", pairs)
    found = split(tmp_path / "out", source, WithTwins(), by="classes", tasks=3)
    label_of = {"red": "red [class 0]", "green": "green", "blue": "red [class 2]"}
    assert found == {pair["id"]: label_of[colour(pair["image"])] for pair in pairs}
    labels = [list(task.manifest.labels) for task in open_stream(tmp_path / "out")]
    assert sorted(labels) == [["green"], ["red [class 0]"], ["red [class 2]"]]


def test_an_image_is_classified_once_however_often_the_data_is_read(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "pairs.parquet", rows(30))
    classifier = Brightest()
    split(tmp_path / "out", source, classifier, by="classes", tasks=2, holdout="test=3")
    assert classifier.seen == 30


def test_an_image_that_cannot_be_decoded_gets_no_label(tmp_path: Path) -> None:
    pairs = rows(12)
    pairs[4]["image"] = pairs[4]["image"][:40]
    pairs[7]["image"] = None
    source = write_parquet(tmp_path / "pairs.parquet", pairs)
    found = split(tmp_path / "out", source, Brightest(), max_skip="2")
    good = [pair for number, pair in enumerate(pairs) if number not in {4, 7}]
    assert found == {pair["id"]: colour(pair["image"]) for pair in good}


def test_a_column_is_named_either_way(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "pairs.parquet", rows(30))
    here = split(tmp_path / "out", source, label_column="group")
    assert set(here.values()) == {"food", "travel & places", "art"}
    assert split(tmp_path / "out", source, labels_from="group") == here
    assert split(tmp_path / "out", source, labels_from="column:group") == here
    with pytest.raises(OutputExists, match="label_column"):
        split(tmp_path / "out", source, labels_from="label")


def test_other_weights_are_another_split(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "pairs.parquet", rows(30))
    weights = tmp_path / "weights.safetensors"
    how = {"labels_from": f"timm:resnet18,{weights}"}
    weights.write_bytes(b"one")
    split(tmp_path / "out", source, Brightest(), **how)
    moved = tmp_path / "moved.safetensors"
    moved.write_bytes(b"one")
    split(tmp_path / "out", source, Brightest(), labels_from=f"timm:resnet18,{moved}")
    weights.write_bytes(b"other")
    with pytest.raises(OutputExists, match="labels_from"):
        split(tmp_path / "out", source, Brightest(), **how)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("subgroup", LabelsFrom("column", "subgroup", None)),
        ("column:a:b", LabelsFrom("column", "a:b", None)),
        ("timm:resnet18", LabelsFrom("timm", "resnet18", None)),
        ("timm:resnet18,w", LabelsFrom("timm", "resnet18", "w")),
    ],
)
def test_a_source_of_labels_is_read(text: str, found: LabelsFrom) -> None:
    assert labels_from(text) == found

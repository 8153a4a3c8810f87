"""Saved embeddings: row i of all three files is the same image with the same caption."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from vlcpctl.data.tasks.samples import Pair
from vlcpctl.data.tasks.task import open_task
from vlcpctl.evaluation.samples import Samples, write_part
from vlcpctl.evaluation.search.galleries import Embeddings
from vlcpctl.testing.tiny_stream import make_pair, make_task


def test_rows_of_the_three_files_belong_together(tmp_path: Path) -> None:
    captions = (["one"], ["two", "one"], ["three"])

    def pair(number: int) -> Pair:
        own = make_pair(number % 2)
        return own._replace(captions=captions[number], label=["x", None, "y"][number])

    task = open_task(make_task(tmp_path / "task", splits={"test": 3}, pair=pair))
    samples = Samples(task, "test", None)
    images = np.array([[1, 0], [0, 1]], dtype=np.float32)
    texts = np.array([[0.6, 0.8], [0.8, 0.6], [0, 1]], dtype=np.float32)
    write_part(tmp_path / "emb", 3, 10, Embeddings(images, texts), samples)
    image_rows = np.load(tmp_path / "emb" / "img_emb" / "img_emb_03.npy")
    text_rows = np.load(tmp_path / "emb" / "text_emb" / "text_emb_03.npy")
    rows = pq.read_table(tmp_path / "emb" / "metadata" / "metadata_03.parquet").to_pylist()
    keys = samples.split.keys
    assert [(row["image_path"], row["caption"], row["label"]) for row in rows] == [
        (keys[0], "one", "x"),
        (keys[1], "two", None),
        (keys[1], "one", None),
        (keys[2], "three", "y"),
    ]
    assert {row["task"] for row in rows} == {task.slug}
    assert image_rows.dtype == text_rows.dtype == np.float16
    assert np.array_equal(image_rows, images[[0, 1, 1, 0]])
    assert np.allclose(text_rows, texts[[0, 1, 0, 2]], atol=1e-3)

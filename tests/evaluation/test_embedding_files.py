"""Saved embeddings: row i of all three files is the same image with the same caption."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from vlcpctl.evaluation.embedding_files import Samples, write_part
from vlcpctl.evaluation.search.gallery import Embeddings, lay_out


def test_rows_of_the_three_files_belong_together(tmp_path: Path) -> None:
    layout = lay_out(["a", "b", "a"], [["one"], ["two", "one"], ["three"]])
    images = np.array([[1, 0], [0, 1]], dtype=np.float32)
    texts = np.array([[0.6, 0.8], [0.8, 0.6], [0, 1]], dtype=np.float32)
    samples = Samples("00-t", ["k0", "k1", "k2"], ["x", None, "y"])
    write_part(tmp_path, 0, 1, Embeddings(layout, images, texts), samples)
    image_rows = np.load(tmp_path / "img_emb" / "img_emb_0.npy")
    text_rows = np.load(tmp_path / "text_emb" / "text_emb_0.npy")
    rows = pq.read_table(tmp_path / "metadata" / "metadata_0.parquet").to_pylist()
    assert [(row["image_path"], row["caption"], row["label"]) for row in rows] == [
        ("k0", "one", "x"),
        ("k1", "two", None),
        ("k1", "one", None),
        ("k2", "three", "y"),
    ]
    assert image_rows.dtype == text_rows.dtype == np.float16
    assert np.array_equal(image_rows, images[[0, 1, 1, 0]])
    assert np.allclose(text_rows, texts[[0, 1, 0, 2]], atol=1e-3)


def test_ten_parts_are_numbered_with_two_digits(tmp_path: Path) -> None:
    layout = lay_out(["a"], [["one"]])
    part = Embeddings(layout, np.ones((1, 2), np.float32), np.ones((1, 2), np.float32))
    write_part(tmp_path, 3, 10, part, Samples("t", ["k"], [None]))
    assert (tmp_path / "img_emb" / "img_emb_03.npy").is_file()

"""Pseudo texts: what is written is read, and told by `inspect` and `check`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from vlcpctl.core.errors import BadInput
from vlcpctl.data.precomputed.pseudo_texts import (
    EMBEDDINGS,
    SCORES,
    TEXTS,
    open_pseudo_texts,
    write_pseudo_texts,
)
from vlcpctl.inspection.check import check
from vlcpctl.inspection.lineage import describe

IDENTITY = {"checkpoint": "c" * 32, "buffer": "b" * 32, "count": 5, "seed": 0}


def columns(first: int, count: int) -> dict[str, Any]:
    draw = np.random.default_rng(first)
    numbers = {name: draw.random(count).astype(np.float32) for name in ("share", *SCORES)}
    keys = [f"{first + row:032x}" for row in range(count)]
    ends = np.arange(count) % 3
    embeddings = draw.normal(size=(count, 3, 2)).astype(np.float32)
    return {**numbers, "first": keys, "second": keys[::-1], "end": ends, "embeddings": embeddings}


def make(out: Path, cuts: tuple[int, ...] = (0, 2, 5)) -> Path:
    whole = columns(0, 5)
    parts = [
        {key: values[start:stop] for key, values in whole.items()}
        for start, stop in itertools.pairwise(cuts)
    ]
    write_pseudo_texts(out, parts, (3, 2), IDENTITY)
    return out


def test_what_is_written_is_read_in_half_precision(tmp_path: Path) -> None:
    found, expected = open_pseudo_texts(make(tmp_path / "texts")), columns(0, 5)
    halves = expected["embeddings"].astype(np.float16)
    assert np.array_equal(found.embeddings(np.array([4, 0])), halves[[4, 0]])
    assert np.array_equal(np.load(tmp_path / "texts" / EMBEDDINGS), halves.reshape(5, 6))
    assert found.ends.tolist() == [0, 1, 2, 0, 1]
    assert (len(found), found.shape, found.identity) == (5, (3, 2), IDENTITY)
    assert list(found.column("first")) == expected["first"]


def test_the_same_texts_are_the_same_bytes_however_they_are_grouped(tmp_path: Path) -> None:
    one, two = make(tmp_path / "one", (0, 5)), make(tmp_path / "two")
    for name in (EMBEDDINGS, TEXTS):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    assert open_pseudo_texts(one).content == open_pseudo_texts(two).content


def test_texts_that_were_changed_are_found_and_not_used(tmp_path: Path) -> None:
    path = make(tmp_path / "texts")
    open_pseudo_texts(path).verify()
    assert list(check(path, deep=True)) == []
    pq.write_table(pq.read_table(path / TEXTS).take([1, 0, 2, 3, 4]), path / TEXTS)
    assert TEXTS in " ".join(check(path, deep=False))
    with pytest.raises(BadInput, match=TEXTS):
        open_pseudo_texts(path).verify()


def test_its_parents_are_told_and_anything_else_is_refused(tmp_path: Path) -> None:
    parents = describe(make(tmp_path / "texts"))["parents"]
    assert [one["role"] for one in parents] == ["checkpoint", "buffer"]
    (tmp_path / "old.parquet").write_text("PAR1")
    with pytest.raises(BadInput, match="invert-texts"):
        open_pseudo_texts(tmp_path / "old.parquet")

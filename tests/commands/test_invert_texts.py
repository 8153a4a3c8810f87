"""`vlcpctl invert-texts`: the file, what is printed, going on after a kill, what is refused."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.commands import invert_texts
from support.processes import exit_code_of, start_child

from vlcpctl.data.precomputed.pseudo_texts import EMBEDDINGS, TEXTS, open_pseudo_texts
from vlcpctl.data.tasks.task import open_task
from vlcpctl.precompute.invert_texts import TextWork

ENOUGH = {"count": 11, "images": 4, "iterations": 2, "rate": 0.5}


@pytest.fixture
def invert(place: Path, tmp_path: Path) -> Callable[..., Path]:
    def run(name: str = "pseudo", **options: Any) -> Path:
        given = {"checkpoint": place / "plain", "buffer": place / "buffer", **ENOUGH, **options}
        invert_texts(tmp_path / name, **given)
        return tmp_path / name

    return run


def data(out: Path) -> list[bytes]:
    return [(out / name).read_bytes() for name in (EMBEDDINGS, TEXTS)]


def test_the_file_holds_texts_with_their_parents(
    invert: Callable[..., Path], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = invert()
    printed = capsys.readouterr()
    assert printed.out == f"{out}\n"
    assert "11 texts from a buffer of 6" in printed.err
    assert printed.err.count("of 11 texts and") == 2
    found = open_pseudo_texts(out)
    keys = set(open_task(place / "buffer").split("train").keys)
    rows = pq.read_table(out / TEXTS).to_pylist()
    assert len(rows) == len(found) == 11
    assert found.shape == (12, 8)
    embeddings = np.load(out / EMBEDDINGS)
    assert embeddings.dtype == np.float16
    assert np.array_equal(embeddings.reshape(11, 12, 8), found.embeddings(np.arange(11)))
    assert {row["first"] for row in rows} | {row["second"] for row in rows} <= keys
    assert all(0 <= row["share"] <= 1 for row in rows)
    assert all(row["loss"] <= row["loss_before"] + 1e-6 for row in rows)
    assert not out.with_name(".pseudo.vlcpctl").exists()


def test_the_same_command_makes_the_same_bytes_with_any_number_of_workers(
    invert: Callable[..., Path],
) -> None:
    assert data(invert("a")) == data(invert("b", workers=2))


def test_killed_and_started_again_it_ends_with_the_same_bytes(
    invert: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = data(invert("whole"))

    def act(_: int) -> None:
        monkeypatch.setattr(TextWork, "_rows", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        invert("killed")

    assert exit_code_of(start_child(act)) == -signal.SIGKILL
    assert not (tmp_path / "killed").exists()
    assert data(invert("killed")) == expected
    assert not (tmp_path / ".killed.parquet.vlcpctl").exists()


def test_a_larger_count_begins_with_the_same_texts(invert: Callable[..., Path]) -> None:
    few, many = (open_pseudo_texts(invert(f"{n}", count=n)) for n in (6, 13))
    six = np.arange(6)
    np.testing.assert_allclose(few.embeddings(six), many.embeddings(six), atol=1e-5)
    assert list(few.column("first")) == list(many.column("first"))[:6]

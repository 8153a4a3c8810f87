"""`vlcpctl invert-texts`: the file, what is printed, going on after a kill, what is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.commands import buffer, invert_texts, train_step
from support.processes import exit_code_of, start_child

from vlcpctl.core.errors import BadInput, Incompatible, OutputExists, UsageError
from vlcpctl.data.precomputed.pseudo_texts import EMBEDDINGS, TEXTS, open_pseudo_texts
from vlcpctl.data.tasks.task import open_task
from vlcpctl.precompute.invert_texts import TextWork
from vlcpctl.testing.tiny_stream import make_stream

ENOUGH = {"count": 11, "images": 4, "iterations": 2, "rate": 0.5}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of one task, and a buffer of nine pairs."""
    root = tmp_path_factory.mktemp("inputs")
    task = make_stream(root / "stream", tasks=1, n=12) / "00-part-0"
    buffer(task, root / "buffer", size="9", quiet=True)
    train_step(
        [task],
        root / "run",
        "seqf",
        preset="tiny",
        model="micro",
        batch_size=4,
        epochs=1,
        quiet=True,
    )
    return root


@pytest.fixture
def invert(inputs: Path, tmp_path: Path) -> Callable[..., Path]:
    def run(name: str = "pseudo", **options: Any) -> Path:
        given = {"checkpoint": inputs / "run", "buffer": inputs / "buffer", **ENOUGH, **options}
        invert_texts(tmp_path / name, **given)
        return tmp_path / name

    return run


def data(out: Path) -> list[bytes]:
    return [(out / name).read_bytes() for name in (EMBEDDINGS, TEXTS)]


def test_the_file_holds_texts_with_their_parents(
    invert: Callable[..., Path], inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = invert()
    printed = capsys.readouterr()
    assert printed.out == f"{out}\n"
    assert "11 texts from a buffer of 9" in printed.err
    assert printed.err.count("of 11 texts and") == 2
    found = open_pseudo_texts(out)
    keys = set(open_task(inputs / "buffer").split("train").keys)
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


def test_how_many_are_made_at_once_changes_rounding_alone(invert: Callable[..., Path]) -> None:
    one, other = (open_pseudo_texts(invert(f"{size}", batch_size=size)) for size in (1, 256))
    # They are stored as float16, whose values below 1 are up to 2^-11 apart.
    found = [texts.embeddings(np.arange(11)) for texts in (one, other)]
    np.testing.assert_allclose(*found, rtol=2**-10, atol=1e-4)
    assert list(one.column("second")) == list(other.column("second"))


def test_again_it_prints_the_path_and_other_settings_are_refused(
    invert: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = invert()
    before = data(out)
    capsys.readouterr()
    invert()
    again = capsys.readouterr()
    assert again.out == f"{out}\n"
    assert "is already finished" in again.err
    with pytest.raises(OutputExists, match="seed was 0 and is now 1"):
        invert(seed=1)
    invert(seed=1, force=True)
    assert data(tmp_path / ".pseudo.vlcpctl/replaced/pseudo") == before
    assert data(out) != before


def test_json_tells_what_was_reached(
    invert: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    out = invert(json=True, quiet=True)
    found = json.loads(capsys.readouterr().out)
    assert found["path"] == str(out)
    assert (found["count"], found["length"], found["width"]) == (11, 12, 8)
    assert found["loss"] <= found["loss_before"]


def test_a_plan_writes_nothing(
    invert: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    out = invert(dry_run=True)
    assert "2 iterations each" in capsys.readouterr().err
    assert list(out.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"min_score": 0.6, "max_score": 0.2}, "the lower bound must be below the upper bound"),
        ({"min_score": 0.3, "max_score": 0.3}, "the lower bound must be below the upper bound"),
        ({"rate": 0.0}, "above 0"),
    ],
)
def test_bad_settings_are_refused(
    invert: Callable[..., Path], wrong: dict[str, float], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        invert(**wrong)


def test_a_mini_batch_larger_than_the_buffer_is_all_of_it(invert: Callable[..., Path]) -> None:
    found = open_pseudo_texts(invert(images=50))
    assert found.identity["inversion"]["pairs"] == 9


def test_what_is_no_buffer_or_checkpoint_is_refused(
    invert: Callable[..., Path], inputs: Path
) -> None:
    with pytest.raises(BadInput, match="is a task, not a buffer"):
        invert(buffer=inputs / "stream" / "00-part-0")
    with pytest.raises(BadInput, match="is not a checkpoint"):
        invert(checkpoint=inputs / "stream")


def test_an_empty_buffer_is_refused(
    invert: Callable[..., Path], inputs: Path, tmp_path: Path
) -> None:
    task = inputs / "stream" / "00-part-0"
    buffer(task, tmp_path / "empty", size="0.1%", quiet=True)
    assert open_task(tmp_path / "empty").counts == {"train": 0}
    with pytest.raises(BadInput, match="is empty"):
        invert(buffer=tmp_path / "empty")


def test_what_stands_there_and_is_no_such_file_stays(
    invert: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "pseudo").write_text("mine")
    with pytest.raises(OutputExists, match="choose another --out"):
        invert()
    assert (tmp_path / "pseudo").read_text() == "mine"


def test_a_checkpoint_without_its_weights_is_refused(
    invert: Callable[..., Path], inputs: Path, tmp_path: Path
) -> None:
    shutil.copytree(inputs / "run", tmp_path / "run")
    (tmp_path / "run" / "open_clip_model.safetensors").unlink()
    with pytest.raises(Incompatible):
        invert(checkpoint=tmp_path / "run")

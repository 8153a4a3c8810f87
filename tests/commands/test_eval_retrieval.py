"""`vlcpctl eval-retrieval`: rows of real tasks and a real model, each task embedded once."""

from __future__ import annotations

import io
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.checkpoints import save_run, tasks_of
from support.commands import eval_retrieval as run
from support.eval_rows import rows_in

from vlcpctl.core import console
from vlcpctl.core.errors import OutputExists
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.data.tasks.task import Split, open_stream
from vlcpctl.evaluation import embedding
from vlcpctl.metrics.recall import recalls
from vlcpctl.models.configuration import checkpoint_transform
from vlcpctl.report import formats
from vlcpctl.testing.tiny_stream import make_pair, make_stream

KEYS = [f"{way}_{key}" for way in ("i2t", "t2i") for key in ("r1", "r5", "r10", "rmean")] + ["rm"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of three tasks, two captions an image, and checkpoints of its first two steps."""
    root = tmp_path_factory.mktemp("eval")
    make_stream(root / "stream", 3, 4, test=12, pair=partial(make_pair, captions=2))
    return save_run(root, "tiny")


def evaluate(place: Path, out: Path, **options: Any) -> list[dict[str, Any]]:
    run(
        tasks_of(place),
        [place / "run" / "00", place / "run" / "01"],
        out=out,
        quiet=True,
        **options,
    )
    return rows_in(out)


def test_a_row_for_every_gallery_goes_to_stdout(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timings = tmp_path / "timings"
    run(tasks_of(place), [place / "run" / "01"], gallery="both", quiet=True, timings=timings)
    told = [row["what"] for row in rows_in(timings) if row["seconds"] >= 0]
    assert (told.count("embed"), "search" in told) == (3, True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["gallery"], row["task_step"], len(row["tasks"])) for row in rows] == [
        *(("own", step, 1) for step in range(3)),
        ("merged", 0, 1),
        ("merged", 1, 2),
    ]
    assert [(row["n_images"], row["n_texts"]) for row in rows] == [(12, 24)] * 4 + [(24, 48)]
    assert list(rows[0]["metrics"]) == KEYS
    assert rows[0]["metrics"] == rows[3]["metrics"]
    assert {row["checkpoint"] for row in rows} == {"content 1"}


def test_recalls_are_those_of_the_saved_embeddings_of_one_pass(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: list[int] = []
    real = embedding.image_vectors

    def counted(*args: Any, **options: Any) -> Any:
        for found in real(*args, **options):
            embedded.append(len(found))
            yield found

    monkeypatch.setattr(embedding, "image_vectors", counted)
    rows = evaluate(place, tmp_path / "rows", gallery="both", save_embeddings=tmp_path / "emb")
    assert embedded == [12] * 6  # each task once by each checkpoint
    assert sorted(path.name for path in (tmp_path / "emb").iterdir()) == ["00", "01"]
    saved = tmp_path / "emb" / "00"
    images = np.load(saved / "img_emb" / "img_emb_2.npy").astype(np.float32)[::2]
    texts = np.load(saved / "text_emb" / "text_emb_2.npy").astype(np.float32)
    assert np.allclose(np.linalg.norm(images, axis=1), 1, atol=1e-2)
    best = np.argmax(images @ texts.T, axis=1)
    assert rows[2]["metrics"]["i2t_r1"] == pytest.approx(100 * np.mean(best // 2 == np.arange(12)))


def test_images_are_decoded_once_for_all_checkpoints(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    real = Split.image
    monkeypatch.setattr(Split, "image", lambda self, row: (decoded.append(row), real(self, row))[1])
    rows = evaluate(place, tmp_path / "both", batch_size=5)
    assert evaluate(place, tmp_path / "workers", batch_size=5, workers=2) == rows
    assert len(decoded) == 3 * 12
    alone = []
    for step in ("00", "01"):
        run(tasks_of(place), [place / "run" / step], out=tmp_path / step, batch_size=5, quiet=True)
        alone += rows_in(tmp_path / step)
    assert rows == alone
    assert len(decoded) == 3 * 36
    batch = 5 * 3 * checkpoint_transform(place / "run" / "00").image_size ** 2
    monkeypatch.setattr("vlcpctl.evaluation.evaluator.free_memory", lambda: 4 * 4 * batch)
    evaluate(place, tmp_path / "few", batch_size=5)
    assert 3 * 36 + 36 < len(decoded) < 3 * 36 + 72  # what does not fit is decoded again


def test_a_precision_is_an_option_of_the_row(place: Path, tmp_path: Path) -> None:
    found = []
    for name in ("fp32", "bf16"):
        how = {"precision": name, "save_embeddings": tmp_path / name}
        cache = tmp_path / "cache"  # which keeps them apart
        found.append(evaluate(place, tmp_path / f"{name}.rows", embedding_cache=cache, **how))
    for usual, half in zip(*found, strict=True):
        assert half["options"] == {**usual["options"], "precision": "bf16"}
    images = [np.load(next((tmp_path / one).rglob("img_emb_0.npy"))) for one in ("fp32", "bf16")]
    assert not np.array_equal(*images)
    assert np.allclose(*images, atol=0.05)


def recalled(found: list[dict[str, Any]], row: dict[str, Any]) -> dict[str, float]:
    """The recalls of a row, computed again from a file of ranks."""
    named = ("run", "seed", "step", "checkpoint", "data", "gallery", "task", "split")
    own = [one for one in found if all(one[name] == row[name] for name in named)]
    ranks = {
        way: np.array([one["rank"] for one in own if one["direction"] == way])
        for way in ("i2t", "t2i")
    }
    assert [len(ranks["i2t"]), len(ranks["t2i"])] == [row["n_images"], row["n_texts"]]
    return recalls(ranks["i2t"], ranks["t2i"])


def doubled(number: int) -> Pair:
    """Pairs of which the third have the image of another, or its captions."""
    pair = make_pair(number, captions=2)
    if number % 3 == 0:
        return pair._replace(image=make_pair(number + 1).image)
    return pair._replace(captions=["one for all", *pair.captions]) if number % 3 == 1 else pair


@pytest.mark.parametrize("duplicates", ["unite", "separate"])
@pytest.mark.parametrize("limit", [None, 7])
def test_saved_ranks_give_the_recalls_of_every_row(
    tmp_path: Path, duplicates: str, limit: int | None
) -> None:
    stream = make_stream(tmp_path / "stream", 2, 4, test=30, pair=doubled)
    checkpoint = save_run(tmp_path, "tiny") / "run" / "01"
    how: dict[str, Any] = {"gallery": "both", "duplicates": duplicates, "limit": limit}
    paths = sorted(stream.glob("[0-9]*"))
    ranks = tmp_path / "ranks.parquet"
    run(paths, [checkpoint], out=tmp_path / "rows", save_ranks=ranks, quiet=True, **how)
    found = pq.read_table(ranks).to_pylist()
    rows = rows_in(tmp_path / "rows")
    assert len(rows) == 4
    assert len(found) == sum(row["n_images"] + row["n_texts"] for row in rows)
    for row in rows:
        assert recalled(found, row) == row["metrics"]
    by_key = {
        key: task.split("test").captions(at)
        for task in open_stream(stream)
        for at, key in enumerate(task.split("test").keys)
    }
    for one in found:
        captions = [one[name] for name in ("query_caption", "wrong_caption")]
        texts = [
            None if at is None else by_key[one[name]][at]
            for name, at in zip(("query", "wrong"), captions, strict=True)
        ]
        assert [at is None for at in captions] == (
            [True, False] if one["direction"] == "i2t" else [False, True]
        )
        # The wrong answer is not a right one: not a caption of the image, not an image with it.
        image = one["query"] if one["direction"] == "i2t" else one["wrong"]
        assert texts[0 if texts[0] else 1] not in by_key[image] or duplicates == "separate"
        assert (one["rank"] == 1) == (one["wrong_rank"] > 1)


def test_finished_files_that_were_damaged_are_refused(place: Path, tmp_path: Path) -> None:
    """They would otherwise be reported as finished, and read by others."""
    ranks, embeddings = tmp_path / "ranks.parquet", tmp_path / "emb"

    def again() -> None:
        evaluate(place, tmp_path / "rows", save_ranks=ranks, save_embeddings=embeddings)

    again()
    for path in (ranks, next(embeddings.rglob("img_emb_0.npy"))):
        whole = path.read_bytes()
        damaged = bytearray(whole)
        damaged[200] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(OutputExists, match=f"{path.name}.*--force replaces it"):
            again()
        path.write_bytes(whole)
    again()


def test_rows_and_ranks_are_made_again_without_each_other(place: Path, tmp_path: Path) -> None:
    rows, ranks = tmp_path / "rows", tmp_path / "ranks.parquet"
    first = evaluate(place, rows, save_ranks=ranks)
    before = {path: path.read_bytes() for path in (rows, ranks)}
    made = ranks.stat().st_mtime_ns
    for lost in ((), (rows,), (ranks,)):
        for path in lost:
            path.unlink()
        assert evaluate(place, rows, save_ranks=ranks) == first
        assert {path: path.read_bytes() for path in (rows, ranks)} == before
        assert (ranks.stat().st_mtime_ns == made) is (ranks not in lost)


def test_a_terminal_shows_a_table_and_with_json_rows(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    for part in (console, formats):
        monkeypatch.setattr(part, "results", lambda: screen)
    run(tasks_of(place)[:2], [place / "run" / "01"])
    shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert {"00-part-0", "01-part-1"} <= set(re.findall(r"^[0-9]\S+", shown, re.MULTILINE))
    screen.truncate(0)
    screen.seek(0)
    run(tasks_of(place)[:2], [place / "run" / "01"], json=True)
    rows = [json.loads(line) for line in screen.getvalue().splitlines()]
    assert [row["task"] for row in rows] == ["00-part-0", "01-part-1"]

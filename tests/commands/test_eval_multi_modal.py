"""`eval-retrieval --protocol multi-modal`: rows of real tasks, their numbers worked out by hand."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.checkpoints import save_run, tasks_of
from support.commands import eval_retrieval as run
from support.eval_rows import rows_in
from support.fused_by_colour import FusedByColour, feature

from vlcpctl.core.errors import BadInput
from vlcpctl.data.images.transforms import decode_image, eval_view
from vlcpctl.data.tasks.task import Split, open_stream, open_task
from vlcpctl.evaluation.evaluator import Session
from vlcpctl.files.rows import read_rows
from vlcpctl.models import encoders
from vlcpctl.report.report import ReportRequest, build
from vlcpctl.testing.tiny_stream import make_pair, make_stream, make_task

KEYS = ["map_1", "map_5", "map_10"]
TWO = {"train": 2, "query": 5, "gallery": 25}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of three tasks with two captions an image, and checkpoints of two steps."""
    root = tmp_path_factory.mktemp("multi")
    make_stream(root / "stream", 3, 2, test=30, pair=partial(make_pair, captions=2, labels=4))
    return save_run(root, "albef-micro")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FusedByColour:
    """What every checkpoint is taken to be."""
    encoder = FusedByColour()
    monkeypatch.setattr(Session, "encoder", encoder)
    return encoder


def evaluate(place: Path, out: Path, *given: Path, **options: Any) -> list[dict[str, Any]]:
    run(
        list(given) or tasks_of(place),
        [place / "run" / "00", place / "run" / "01"],
        out=out,
        quiet=True,
        protocol="multi-modal",
        **options,
    )
    return rows_in(out)


def features(split: Split, view: Any) -> np.ndarray:
    rows = range(len(split))
    images = [eval_view(decode_image(split.image(row), "it"), view) for row in rows]
    found = np.array([feature(images[row], split.captions(row)[0]) for row in rows])
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def by_hand(queries: list[Split], gallery: list[Split], cutoff: int, view: Any) -> float:
    """Equation 11, query by query, sorted by score; there are no ties."""
    asked = np.concatenate([features(split, view) for split in queries])
    held = np.concatenate([features(split, view) for split in gallery])
    names = [
        [name for split in side for name in split.column("label")] for side in (queries, gallery)
    ]
    values = []
    for number, (row, name) in enumerate(zip(asked @ held.T, names[0], strict=True)):
        order = [at for at in np.argsort(-row) if queries is not gallery or at != number]
        hits = [names[1][at] == name for at in order[:cutoff]]
        found = [sum(hits[: at + 1]) / (at + 1) for at, hit in enumerate(hits) if hit]
        values.append(np.mean(found) if found else 0.0)
    return 100 * float(np.mean(values))


def test_rows_have_the_average_precisions_of_every_gallery(
    place: Path, tmp_path: Path, model: FusedByColour
) -> None:
    rows = evaluate(place, tmp_path / "rows", gallery="both")
    assert [(row["step"], row["gallery"], row["task_step"], row["n_gallery"]) for row in rows] == [
        *((0, "own", step, 30) for step in range(3)),
        (0, "merged", 0, 30),
        *((1, "own", step, 30) for step in range(3)),
        (1, "merged", 0, 30),
        (1, "merged", 1, 60),
    ]
    assert {(row["evaluator"], row["protocol"], row["split"]) for row in rows} == {
        ("retrieval", "multi-modal", "test")
    }
    assert all(
        list(row["metrics"]) == KEYS and row["n_queries"] == row["n_gallery"] for row in rows
    )
    assert list(rows[0])[-13:] == [
        *("split", "data", "limit", "options"),
        *("metrics", "n_queries", "n_gallery", "n_ties", "n_alone"),
        *("start", "parent", "config", "checkpoint"),
    ]
    assert all(row["n_ties"] == row["n_alone"] == 0 for row in rows)
    splits = [task.split("test") for task in open_stream(place / "stream")]
    for cutoff in (1, 5, 10):
        own, merged = splits[:1], splits[:2]
        wanted = [by_hand(some, some, cutoff, model.transform) for some in (own, merged)]
        found = [rows[at]["metrics"][f"map_{cutoff}"] for at in (0, -1)]
        assert found == pytest.approx(wanted, abs=1e-9)
    for variant in ("ctp", "min-rn"):
        other = evaluate(place, tmp_path / variant, map_variant=variant)[0]
        assert other["map_variant"] == variant
        assert other["metrics"]["map_1"] == rows[0]["metrics"]["map_1"]
        assert other["metrics"]["map_10"] != rows[0]["metrics"]["map_10"]


def test_a_fusion_model_is_measured_by_both_protocols(place: Path, tmp_path: Path) -> None:
    real = place / "run" / "00"
    for protocol in ("multi-modal", "cross-modal"):
        run(tasks_of(place), [real], protocol=protocol, out=tmp_path / protocol, quiet=True)
    rows = read_rows([str(tmp_path / "multi-modal"), str(tmp_path / "cross-modal")])
    assert [track.title for track in build(rows, ReportRequest(allow_missing=True)).tracks] == [
        "retrieval, cross-modal, test split",
        "retrieval, multi-modal, test split",
    ]
    fused = rows[0]
    encoder = encoders.load(real)
    assert encoder.family == "fusion"
    split = open_stream(place / "stream")[0].split("test")
    images = [
        eval_view(decode_image(split.image(row), "it"), encoder.transform)
        for row in range(len(split))
    ]
    ids = encoder.tokenize([split.captions(row)[0] for row in range(len(split))])
    encoder.module.eval()
    with torch.no_grad():
        raw = encoder.fused(*encoder.inputs(torch.from_numpy(np.stack(images)), ids))
    unit = torch.nn.functional.normalize(raw, dim=-1).double()
    scores = (unit @ unit.T).fill_diagonal_(-1).numpy()
    names = np.array(split.column("label"))
    first = 100 * float(np.mean(names[scores.argmax(axis=1)] == names))
    ties = rows_in(tmp_path / "multi-modal")[0]["n_ties"]
    assert first - 100 * ties / 30 - 1e-9 <= fused.metrics["map_1"] <= first + 1e-9


def test_the_first_caption_of_an_image_is_taken_and_fused_once_per_checkpoint(
    place: Path, tmp_path: Path, model: FusedByColour
) -> None:
    rows = evaluate(place, tmp_path / "rows", *tasks_of(place)[:1], gallery="both", batch_size=12)
    assert model.fused_pairs == [12, 12, 6] * 2
    split = open_stream(place / "stream")[0].split("test")
    assert model.texts == [split.captions(row)[0] for row in range(30)] * 2
    how = {"gallery": "both", "workers": 2, "batch_size": 7}
    assert evaluate(place, tmp_path / "workers", *tasks_of(place)[:1], **how) == rows


def test_queries_and_gallery_come_from_their_splits(
    place: Path, tmp_path: Path, model: FusedByColour
) -> None:
    make = partial(make_pair, labels=4)
    given = [
        make_task(tmp_path / f"two-{step}", splits=TWO, pair=make, first=100 * step, step=step)
        for step in range(2)
    ]
    (row, *_) = evaluate(place, tmp_path / "rows", *given)
    assert (row["split"], row["n_queries"], row["n_gallery"]) == ("query+gallery", 5, 25)
    queries, gallery = (open_task(given[0]).split(name) for name in ("query", "gallery"))
    wanted = by_hand([queries], [gallery], 5, model.transform)
    assert row["metrics"]["map_5"] == pytest.approx(wanted, abs=1e-9)
    (row, *_) = evaluate(place, tmp_path / "one", *given, split="gallery")
    assert (row["split"], row["n_queries"], row["n_gallery"]) == ("gallery", 25, 25)


@pytest.mark.parametrize(("labels", "word"), [((0,), "--label-column"), ((0, 1), "2 of 4")])
def test_classes_are_asked_for(
    place: Path, tmp_path: Path, model: FusedByColour, labels: tuple[int, ...], word: str
) -> None:
    task = make_task(
        tmp_path / "task",
        splits={"test": 4},
        pair=lambda number: make_pair(number, labels=labels[number % len(labels)]),
    )
    with pytest.raises(BadInput, match=word):
        evaluate(place, tmp_path / "rows", task)

"""`eval-retrieval` of a model with a sigmoid loss: its probabilities are measured, others' not."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.checkpoints import save_encoder
from support.commands import eval_retrieval as run
from support.eval_rows import rows_in

from vlcpctl.data.tasks.task import open_stream
from vlcpctl.metrics.calibration import BINS, METRICS
from vlcpctl.models import dual_encoder
from vlcpctl.testing.tiny_stream import make_pair, make_stream

TEST = 12  # images of a task, with two captions each


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of two tasks, two models with a bias, and one of them without it."""
    root = tmp_path_factory.mktemp("calibration")
    make_stream(root / "stream", 2, 4, test=TEST, pair=partial(make_pair, captions=2))
    make_stream(root / "other", 1, 4, test=5, pair=lambda number: make_pair(number + 500))
    for seed in range(2):
        encoder = dual_encoder.build("micro", seed=seed, is_sigmoid=True, batch_size=8)
        with torch.no_grad():
            encoder.weights()["logit_bias"].fill_(2.0)  # about half of the pairs have 0.5
        make_checkpoint(root, f"sigmoid-{seed}", encoder)
    softmax = dual_encoder.build(root / "sigmoid-0", is_sigmoid=False, batch_size=8)
    make_checkpoint(root, "softmax", softmax)
    return root


def make_checkpoint(root: Path, name: str, encoder: Any) -> None:
    tasks = [task.content for task in open_stream(root / "stream")]
    save_encoder(root / name, encoder, f"content {name}", run=name, step=1, tasks=tasks)


def evaluated(place: Path, out: Path, name: str = "sigmoid-0", **options: Any) -> list[Any]:
    tasks = sorted((place / "stream").glob("[0-9]*"))
    run(tasks, [place / name], out=out, quiet=True, device="cpu", workers=0, **options)
    return rows_in(out)


def by_open_clip(place: Path, tasks: int) -> dict[str, float]:
    """The metrics in the gallery of the first tasks, from the logits that open_clip computes."""
    import open_clip  # all of it: seconds that only this test needs

    name = f"local-dir:{place / 'sigmoid-0'}"
    model, _, transform = open_clip.create_model_and_transforms(name)
    tokens, pixels, texts, pairs = open_clip.get_tokenizer(name), [], [], set()
    for task in open_stream(place / "stream")[:tasks]:
        split = task.split("test")
        for number in range(TEST):
            for caption in split.captions(number):
                pairs.add((len(pixels), len(texts)))
                texts.append(caption)
            pixels.append(transform(Image.open(BytesIO(split.image(number))).convert("RGB")))
    with torch.no_grad():
        logits, _ = model.eval().get_logits(torch.stack(pixels), tokens(texts))
    p_IT = logits.double().sigmoid().numpy()
    is_true = np.zeros(p_IT.shape, dtype=bool)
    is_true[tuple(np.array(sorted(pairs)).T)] = True
    accepted = p_IT >= 0.5
    apart = sum(
        abs(p_IT[p_IT * BINS // 1 == one].sum() - is_true[p_IT * BINS // 1 == one].sum())
        for one in range(BINS)
    )
    return {
        "pair_recall": 100 * accepted[is_true].mean(),
        "pair_precision": 100 * is_true[accepted].mean(),
        "pair_calibration": 100 * (1 - apart / (p_IT.sum() + is_true.sum())),
    }


def test_the_metrics_are_those_of_open_clips_logits(place: Path, tmp_path: Path) -> None:
    rows = evaluated(place, tmp_path / "rows", gallery="both", duplicates="separate")
    assert [len(row["tasks"]) for row in rows] == [1, 1, 1, 2]
    for row in (rows[0], rows[3]):
        wanted = by_open_clip(place, len(row["tasks"]))
        assert 0 < wanted["pair_precision"] < 100
        for key in METRICS:
            assert row["metrics"][key] == pytest.approx(wanted[key], abs=1e-3)
    assert rows[0]["metrics"] == rows[2]["metrics"]


def test_the_rest_of_a_row_is_that_of_the_same_model_without_a_bias(
    place: Path, tmp_path: Path
) -> None:
    found, plain = (
        evaluated(place, tmp_path / name, name, gallery="both") for name in ("sigmoid-0", "softmax")
    )
    names = ("run", "checkpoint", "metrics")
    for one, other in zip(found, plain, strict=True):
        assert list(one) == list(other)
        assert list(one["metrics"]) == [*other["metrics"], *METRICS]
        assert one["metrics"].items() >= other["metrics"].items()
        assert {k: v for k, v in one.items() if k not in names} == {
            k: v for k, v in other.items() if k not in names
        }


def test_distractors_are_further_wrong_pairs(place: Path, tmp_path: Path) -> None:
    (other,) = (place / "other").glob("[0-9]*")
    alone = evaluated(place, tmp_path / "a", gallery="both")
    found = evaluated(place, tmp_path / "b", gallery="both", distractors=[other])
    for one, more in zip(alone, found, strict=True):
        assert more["metrics"]["pair_recall"] == one["metrics"]["pair_recall"]
        assert more["metrics"]["pair_precision"] < one["metrics"]["pair_precision"]


def test_an_index_of_another_model_has_no_probabilities(place: Path, tmp_path: Path) -> None:
    for index in ("sigmoid-1", "sigmoid-0"):
        rows = evaluated(place, tmp_path / index, gallery_checkpoint=place / index)
        assert not any(set(METRICS) & row["metrics"].keys() for row in rows)

"""`vlcpctl eval-probe`: rows as scikit-learn on a real model's features has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.checkpoints import save_encoder
from support.commands import eval_probe as run
from support.eval_rows import rows_in

from vlcpctl.core.errors import BadInput, Diverged, TooManySkipped
from vlcpctl.data.images.transforms import decode_image, eval_view
from vlcpctl.data.tasks.task import Split, open_task
from vlcpctl.evaluation.classification import linear_probe
from vlcpctl.evaluation.classification.linear_probe import STRENGTHS
from vlcpctl.files.ids import unit_hash
from vlcpctl.models import encoders
from vlcpctl.models.encoders import NewModelOptions
from vlcpctl.testing.tiny_stream import make_pair, make_stream, make_task


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of two tasks with three classes each, and checkpoints of two steps."""
    root = tmp_path_factory.mktemp("probe")
    make_stream(root / "stream", 2, 40, test=20)
    for step in range(2):
        encoder = encoders.build("micro", NewModelOptions(seed=step))
        save_encoder(root / "run" / f"{step:02d}", encoder, step=step)
    return root


def probed(place: Path, out: Path, *words: Path, **options: Any) -> list[dict[str, Any]]:
    checkpoints = options.pop("checkpoints", [place / "run" / "00"])
    options = {"quiet": True, **options}
    run([str(word) for word in words], checkpoints, out=out, **options)
    return rows_in(out)


def features(checkpoint: Path, split: Split) -> np.ndarray:
    """Unit embeddings, one image at a time."""
    encoder = encoders.load(checkpoint)
    encoder.module.eval()
    found = []
    with torch.no_grad():
        for row in range(len(split)):
            pixels = torch.tensor(eval_view(decode_image(split.image(row)), encoder.transform))
            image, _ = encoder.features(encoder.pixels(pixels[None]), None)
            found.append(image[0].double().numpy())
    return np.stack(found) / np.linalg.norm(found, axis=1, keepdims=True)


def sklearn_score(train: tuple[np.ndarray, Any], test: tuple[np.ndarray, Any], how: float) -> float:
    from sklearn.linear_model import LogisticRegression  # takes seconds

    model = LogisticRegression(C=1 / (how * len(train[0])), tol=1e-8, max_iter=100_000)
    return 100 * model.fit(*train).score(*test)


def first(place: Path) -> Path:
    return place / "stream" / "00-part-0"


def test_a_row_has_the_accuracy_that_scikit_learn_has(place: Path, tmp_path: Path) -> None:
    (row,) = probed(place, tmp_path / "rows", first(place), strength=1e-3, batch_size=7)
    task = open_task(first(place))
    sides = [
        (features(place / "run/00", task.split(name)), task.split(name).column("label"))
        for name in ("train", "test")
    ]
    assert row["metrics"]["acc1"] == pytest.approx(sklearn_score(*sides, 1e-3))
    assert 0 < row["metrics"]["acc1"] < 100
    assert row["options"] == {
        "solver": "lbfgs",
        "train_split": "train",
        "strength": 1e-3,
        **dict.fromkeys(("held_out", "epochs", "lr", "batch")),
        "seed": 0,
    }
    kept = ("protocol", "task_step", "strength", "fixed_strength", "n_classes", "n_train")
    assert [row[name] for name in kept] == ["lbfgs", 0, 1e-3, 1e-3, 3, 40]
    assert [row[name] for name in ("n_images", "n_ties", "n_skipped", "n_unseen")] == [20, 0, 0, 0]


def test_the_sweep_ends_when_two_strengths_in_a_row_are_less_accurate(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = iter([50.0, 60.0, 58.0, 60.0, 59.0, 58.0])  # more would raise StopIteration
    monkeypatch.setattr(linear_probe, "accuracy", lambda fitted, held: next(given))
    (row,) = probed(place, tmp_path / "rows", first(place), held_out=0.4)
    assert row["strength"] == STRENGTHS[1]
    assert not list(given)


@pytest.mark.parametrize("seed", range(2))
def test_the_early_end_chooses_as_the_whole_sweep(
    seed: int, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = probed(place, tmp_path / "rows", first(place), held_out=0.4, seed=seed)
    monkeypatch.setattr(linear_probe, "FALLS", len(STRENGTHS))
    (whole,) = probed(place, tmp_path / "whole", first(place), held_out=0.4, seed=seed)
    assert row == whole


def test_the_strength_is_the_best_on_the_part_that_keys_hold_out(
    place: Path, tmp_path: Path
) -> None:
    (row,) = probed(place, tmp_path / "rows", first(place), held_out=0.4, seed=5)
    split = open_task(first(place)).split("train")
    data, labels = features(place / "run/00", split), np.array(split.column("label"))
    is_held = np.array([unit_hash("probe", 5, key) < 0.4 for key in split.keys])
    scores = [
        sklearn_score((data[~is_held], labels[~is_held]), (data[is_held], labels[is_held]), how)
        for how in STRENGTHS[:5]
    ]
    assert row["strength"] in STRENGTHS[:5]
    assert scores.index(max(scores)) == STRENGTHS.index(row["strength"])
    assert len(set(scores)) > 1
    assert (row["held_out"], row["probe_seed"]) == (0.4, 5)
    assert row["n_train"] == 40  # the probe itself is trained on the whole split


def test_classes_of_no_train_image_are_wrong_and_counted(place: Path, tmp_path: Path) -> None:
    def pair(number: int) -> Any:
        label = f"{number % 2}" if number < 20 or number % 4 else "new"
        return make_pair(number)._replace(label=label)

    task = make_task(tmp_path / "task", splits={"train": 20, "test": 12}, pair=pair)
    (row,) = probed(place, tmp_path / "rows", task, strength=1e-2)
    assert (row["n_classes"], row["n_unseen"]) == (3, 3)
    assert row["metrics"]["acc1"] <= 75
    data = open_task(task)
    known = [at for at, label in enumerate(data.split("test").column("label")) if label != "new"]
    train = (features(place / "run/00", data.split("train")), data.split("train").column("label"))
    labels = np.array(data.split("test").column("label"))[known]
    test = (features(place / "run/00", data.split("test"))[known], labels)
    expected = sklearn_score(train, test, 1e-2) * len(known) / 12
    assert row["metrics"]["acc1"] == pytest.approx(expected)


def test_a_probe_that_diverges_is_an_error_and_no_row(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = linear_probe.fitted

    def lost(*given: Any) -> Any:
        found = real(*given)
        return replace(found, bias_C=found.bias_C * torch.nan)

    monkeypatch.setattr(linear_probe, "fitted", lost)
    for how in ({"strength": 0.1}, {}):
        with pytest.raises(Diverged, match="--strength"):
            probed(place, tmp_path / "rows", first(place), **how)
    assert list(tmp_path.iterdir()) == []


def test_data_that_cannot_be_probed_is_refused(place: Path, tmp_path: Path) -> None:
    def labelled(*labels: str | None) -> Path:
        return make_task(
            tmp_path / "-".join(map(str, labels)),
            splits={"train": 6, "test": 6},
            pair=lambda n: make_pair(n)._replace(label=labels[n % len(labels)]),
        )

    out = tmp_path / "rows"
    some = labelled("a", "b", None)
    for data, how, kind, word in (
        (labelled(None), {}, BadInput, "'vlcpctl split'"),
        (labelled("a"), {}, BadInput, "one class"),
        (some, {"strength": 1e-2}, TooManySkipped, "2 of 6"),
        (labelled("a", "b"), {"held_out": 1e-6}, BadInput, "held out"),
        (first(place), {"split": "val"}, BadInput, "'val'"),
    ):
        with pytest.raises(kind, match=word):
            probed(place, out, data, **how)
    (row,) = probed(place, out, some, strength=1e-2, max_skip="50%")
    assert (row["n_train"], row["n_images"], row["n_skipped"]) == (4, 4, 4)

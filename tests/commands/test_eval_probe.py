"""`vlcpctl eval-probe`: rows as scikit-learn, or a naive loop of Mod-X, has them."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from support.checkpoints import save_run
from support.commands import eval_probe as run
from support.eval_rows import rows_in
from support.one_by_one import projections, unit
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vlcpctl.core.errors import BadInput, Diverged, TooManySkipped
from vlcpctl.core.seeds import generator
from vlcpctl.data.images.transforms import TrainView
from vlcpctl.data.tasks.task import Split, open_task
from vlcpctl.evaluation.classification import linear_probe
from vlcpctl.evaluation.classification.linear_probe import STRENGTHS, Probe, train_view
from vlcpctl.files.ids import unit_hash
from vlcpctl.models import encoders
from vlcpctl.testing.tiny_stream import make_pair, make_stream, make_task


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of two tasks with three classes each, and checkpoints of two steps."""
    root = tmp_path_factory.mktemp("probe")
    make_stream(root / "stream", 2, 40, test=30)
    return save_run(root, "micro")


def probed(place: Path, out: Path, *words: Path, **options: Any) -> list[dict[str, Any]]:
    checkpoints = options.pop("checkpoints", [place / "run" / "00"])
    given = {"quiet": True, "workers": 0, **options}
    run([str(word) for word in words], checkpoints, out=out, **given)
    return rows_in(out)


def features(checkpoint: Path, split: Split) -> np.ndarray:
    return unit(projections(checkpoint, split)[0].astype(float))


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
    assert [row[name] for name in ("n_images", "n_ties", "n_skipped", "n_unseen")] == [30, 0, 0, 0]


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
    with pytest.raises(Diverged, match="--lr"):
        probed(place, tmp_path / "rows", first(place), protocol="modx", epochs=2, lr=1e308)
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
    some, one = labelled("a", "b", None), labelled("a")
    for data, how, kind, word in (
        (labelled(None), {}, BadInput, "'vlcpctl split'"),
        (one, {}, BadInput, "one class"),
        (one, {"protocol": "modx"}, BadInput, "one class"),
        (some, {"strength": 1e-2}, TooManySkipped, "2 of 6"),
        (labelled("a", "b"), {"held_out": 1e-6}, BadInput, "held out"),
        (first(place), {"split": "val"}, BadInput, "'val'"),
    ):
        with pytest.raises(kind, match=word):
            probed(place, out, data, **how)
    (row,) = probed(place, out, some, strength=1e-2, max_skip="50%")
    assert (row["n_train"], row["n_images"], row["n_skipped"]) == (4, 4, 4)


BATCH, EPOCHS = 16, 4
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> list[Probe]:
    """The probes that are measured, in order, with batches so small that epochs have several."""
    found: list[Probe] = []
    usual = linear_probe.judged

    def noted(probe: Probe, *more: Any) -> dict[str, Any]:
        found.append(probe)
        return usual(probe, *more)

    for module in ("probe", "linear_probe"):
        monkeypatch.setattr(f"vlcpctl.evaluation.classification.{module}.MODX_BATCH", BATCH)
    monkeypatch.setattr(linear_probe, "judged", noted)
    return found


modx = partial(probed, protocol="modx", epochs=EPOCHS)


class Naive:
    """The probe of the authors' program, one image at a time and with torch's own layer."""

    def __init__(self, checkpoint: Path, train: Split, test: Split) -> None:
        self.encoder = encoders.load(checkpoint)
        self.encoder.module.eval()
        self.view = train_view(self.encoder.transform)
        self.train, self.test = train, test

    def features(self, views: list[np.ndarray]) -> Tensor:
        """Projections that are not normalised, of pixels with ImageNet's statistics."""
        found = []
        for view in views:
            pixels = (torch.tensor(view) / 255 - torch.tensor(MEAN)) / torch.tensor(STD)
            with torch.no_grad():
                image, _ = self.encoder.features(pixels.permute(2, 0, 1)[None], None)
            assert image is not None
            found.append(image[0].double())
        return torch.stack(found)

    def augmented(self, row: int, epoch: int, seed: int) -> np.ndarray:
        """A random resized crop, with the box that is drawn for it, and a flip."""
        image, draw = opened(self.train.image(row)), None
        draw, box = TrainView(self.view, seed, self.train.keys[row], epoch)._draw(image.size)
        assert box is not None
        size = (self.encoder.transform.image_size,) * 2
        seen = image.resize(size, Image.Resampling.BILINEAR, box)
        return np.asarray(ImageOps.mirror(seen) if draw.random() < 0.5 else seen)

    def test_view(self, row: int) -> np.ndarray:
        """Resized to 256 / 224 of the model's size, and cut to it."""
        own = self.encoder.transform.image_size
        side = round(own * 256 / 224)
        resized = opened(self.test.image(row)).resize((side, side), Image.Resampling.BILINEAR)
        edge = (side - own) // 2
        return np.asarray(resized)[edge : edge + own, edge : edge + own]

    def epochs(self, rate: float, seed: int, batch: int) -> Iterator[tuple[nn.Linear, float]]:
        """The layer after each epoch, and its accuracy on the test split in percent."""
        labels, wanted = numbers(self.train), numbers(self.test)
        tests = self.features([self.test_view(row) for row in range(len(self.test))])
        layer = nn.Linear(tests.shape[1], 3, dtype=torch.float64)
        drawn = generator(seed, "probe", "weights").normal(0.0, 0.01, layer.weight.shape)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(drawn))
            layer.bias.zero_()
        how = {"momentum": 0.9, "weight_decay": 1e-6}
        optimizer = torch.optim.SGD(layer.parameters(), lr=rate, **how)
        for epoch in range(EPOCHS):
            for group in optimizer.param_groups:
                group["lr"] = rate * (1 + math.cos(math.pi * epoch / EPOCHS)) / 2
            order = generator(seed, "probe", epoch).permutation(len(labels)).tolist()
            for start in range(0, len(order) - batch + 1, batch):
                rows = order[start : start + batch]
                views = [self.augmented(row, epoch, seed) for row in rows]
                optimizer.zero_grad()
                cross_entropy(layer(self.features(views)), labels[rows]).backward()
                optimizer.step()
            hits = layer(tests).argmax(1) == wanted
            yield layer, 100 * float(hits.double().mean())


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def numbers(split: Split) -> Tensor:
    return torch.tensor([int(str(label).rsplit("-", 1)[1]) for label in split.column("label")])


def test_it_is_the_probe_of_a_naive_loop(place: Path, tmp_path: Path, fitted: list[Probe]) -> None:
    (row,) = modx(place, tmp_path / "rows", first(place), seed=3, lr=20.0, batch_size=1)
    task = open_task(first(place))
    naive = Naive(place / "run/00", task.split("train"), task.split("test"))
    scores = []
    for probe, (layer, acc1) in zip(fitted, naive.epochs(20.0, 3, BATCH), strict=False):
        weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
        assert probe.weight_CD.numpy() == pytest.approx(weight, rel=1e-6, abs=1e-6)
        assert probe.bias_C.numpy() == pytest.approx(bias, rel=1e-6, abs=1e-6)
        scores.append(acc1)
    assert len(scores) == EPOCHS
    assert len(set(scores)) > 1
    assert row["metrics"]["acc1"] == pytest.approx(max(scores))
    assert row["best_epoch"] == scores.index(max(scores)) + 1
    assert row["last_acc1"] == pytest.approx(scores[-1])
    assert row["options"] == {
        "protocol": "modx",
        "train_split": "train",
        "epochs": EPOCHS,
        "lr": 20.0,
        "batch": BATCH,
        "epoch_chosen_on": "test",
        "seed": 3,
    }
    kept = ("protocol", "task_step", "epochs", "lr", "probe_seed", "n_classes", "n_train")
    assert [row[name] for name in kept] == ["modx", 0, EPOCHS, 20.0, 3, 3, 40]
    assert [row[name] for name in ("n_images", "n_ties", "n_skipped", "n_unseen")] == [30, 0, 0, 0]


def test_the_first_of_the_best_epochs_is_reported(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score_of = {1: 20.0, 2: 50.0, 3: 50.0, 4: 30.0}  # by the steps taken: one in an epoch

    def given(probe: Probe, *_more: Any) -> dict[str, Any]:
        counts = {"n_images": 30, "n_unseen": 0, "n_ties": 0}
        return {"metrics": {"acc1": score_of[probe.steps]}, **counts}

    monkeypatch.setattr(linear_probe, "judged", given)
    (row,) = modx(place, tmp_path / "rows", first(place))
    assert (row["metrics"], row["best_epoch"], row["last_acc1"]) == ({"acc1": 50.0}, 2, 30.0)


def test_rows_depend_on_the_seed_and_not_on_workers_or_the_cache(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fitted: list[Probe]
) -> None:
    wanted = modx(place, tmp_path / "plain", first(place))
    embedded: list[int] = []
    way = linear_probe.TEST

    def counted(encoder: Any, images: torch.Tensor) -> Any:
        embedded.append(len(images))
        return way.embed(encoder, images)

    monkeypatch.setattr(linear_probe, "TEST", way._replace(embed=counted))
    cache = tmp_path / "cache"
    for name, images in (("new", 30 + EPOCHS * 40), ("stored", EPOCHS * 40)):
        embedded.clear()
        assert modx(place, tmp_path / name, first(place), embedding_cache=cache) == wanted
        assert sum(embedded) == images  # the augmented ones are never stored
    assert modx(place, tmp_path / "two", first(place), workers=2) == wanted
    before = fitted[-1].weight_CD
    assert modx(place, tmp_path / "seed", first(place), seed=1) != wanted
    assert not torch.equal(fitted[-1].weight_CD, before)


def test_views_are_those_of_the_authors_program(place: Path) -> None:
    own = encoders.load(place / "run/00").transform
    seen = train_view(replace(own, image_size=224))
    assert (seen.image_size, seen.crop, seen.crop_scale, seen.flip) == (
        *(224, "random"),
        *((0.08, 1.0), True),
    )
    seen = linear_probe.test_view(replace(own, image_size=224))
    assert (seen.image_size, seen.crop, seen.flip) == (256, "center", False)
    assert (seen.mean, seen.std) == (MEAN, STD)

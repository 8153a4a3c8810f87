"""`vlcpctl eval-probe --protocol modx`: the probe of a naive loop, at its best epoch."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from support.checkpoints import save_encoder
from support.commands import eval_probe as run
from support.eval_rows import rows_in
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vlcpctl.core.errors import BadInput, Diverged
from vlcpctl.core.seeds import generator
from vlcpctl.data.images.transforms import TrainView
from vlcpctl.data.tasks.task import Split, open_task
from vlcpctl.evaluation.classification import linear_probe
from vlcpctl.evaluation.classification.linear_probe import Probe, train_view
from vlcpctl.models import encoders
from vlcpctl.models.encoders import NewModelOptions
from vlcpctl.testing.tiny_stream import make_pair, make_stream, make_task

BATCH, EPOCHS = 16, 4
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of two tasks with three classes each, and checkpoints of two steps."""
    root = tmp_path_factory.mktemp("modx")
    make_stream(root / "stream", 2, 40, test=30)
    for step in range(2):
        encoder = encoders.build("micro", NewModelOptions(seed=step))
        save_encoder(root / "run" / f"{step:02d}", encoder, step=step)
    return root


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


def probed(place: Path, out: Path, *words: Path, **options: Any) -> list[dict[str, Any]]:
    given = {"protocol": "modx", "epochs": EPOCHS, "quiet": True, "workers": 0, **options}
    checkpoints = given.pop("checkpoints", [place / "run" / "00"])
    run([str(word) for word in words], checkpoints, out=out, **given)
    return rows_in(out)


def first(place: Path) -> Path:
    return place / "stream" / "00-part-0"


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
    (row,) = probed(place, tmp_path / "rows", first(place), seed=3, lr=20.0, batch_size=1)
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
    (row,) = probed(place, tmp_path / "rows", first(place))
    assert (row["metrics"], row["best_epoch"], row["last_acc1"]) == ({"acc1": 50.0}, 2, 30.0)


def test_rows_depend_on_the_seed_and_not_on_workers_or_the_cache(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fitted: list[Probe]
) -> None:
    wanted = probed(place, tmp_path / "plain", first(place))
    embedded: list[int] = []
    way = linear_probe.TEST

    def counted(encoder: Any, images: torch.Tensor) -> Any:
        embedded.append(len(images))
        return way.embed(encoder, images)

    monkeypatch.setattr(linear_probe, "TEST", way._replace(embed=counted))
    cache = tmp_path / "cache"
    for name, images in (("new", 30 + EPOCHS * 40), ("stored", EPOCHS * 40)):
        embedded.clear()
        assert probed(place, tmp_path / name, first(place), embedding_cache=cache) == wanted
        assert sum(embedded) == images  # the augmented ones are never stored
    assert probed(place, tmp_path / "two", first(place), workers=2) == wanted
    before = fitted[-1].weight_CD
    assert probed(place, tmp_path / "seed", first(place), seed=1) != wanted
    assert not torch.equal(fitted[-1].weight_CD, before)


def test_one_class_of_training_images_is_refused(place: Path, tmp_path: Path) -> None:
    alone = make_task(
        tmp_path / "alone",
        splits={"train": 4, "test": 4},
        pair=lambda number: make_pair(number)._replace(label="a" if number < 4 else "b"),
    )
    with pytest.raises(BadInput, match="all training images have one class"):
        probed(place, tmp_path / "r", alone)


def test_a_probe_that_diverges_is_an_error_and_leaves_no_file(place: Path, tmp_path: Path) -> None:
    with pytest.raises(Diverged, match="infinity in epoch 2; use a smaller --lr"):
        probed(place, tmp_path / "rows", first(place), lr=1e308)
    assert list(tmp_path.iterdir()) == []


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

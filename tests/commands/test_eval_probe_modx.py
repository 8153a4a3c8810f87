"""`vlcpctl eval-probe --protocol modx`: the probe of a naive loop, at its best epoch."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from support.checkpoints import write_checkpoint_manifest
from support.commands import eval_probe as run
from support.commands import forgetting_report
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vlcpctl.core.errors import BadInput, Diverged, UsageError
from vlcpctl.core.seeds import generator
from vlcpctl.data.images.transforms import TrainView
from vlcpctl.data.tasks.task import Split, open_task
from vlcpctl.evaluation.classification import modx_probe
from vlcpctl.evaluation.classification.linear_probe import Probe
from vlcpctl.evaluation.classification.modx_probe import train_view
from vlcpctl.files.manifest import is_artifact
from vlcpctl.files.outputs import new_directory
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
        body = {"run": "modx", "method": "modx", "seed": 0, "buffer": None, "tasks": []}
        with new_directory(root / "run" / f"{step:02d}", is_artifact) as temporary:
            encoders.save(encoder, temporary)
            write_checkpoint_manifest(temporary, f"content {step}", step=step, **body)
    return root


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> list[Probe]:
    """The probes that are measured, in order, with batches so small that epochs have several."""
    found: list[Probe] = []
    usual = modx_probe.judged

    def noted(probe: Probe, *more: Any) -> dict[str, Any]:
        found.append(probe)
        return usual(probe, *more)

    for module in ("probe", "modx_probe"):
        monkeypatch.setattr(f"vlcpctl.evaluation.classification.{module}.MODX_BATCH", BATCH)
    monkeypatch.setattr(modx_probe, "judged", noted)
    return found


def probed(place: Path, out: Path, *words: Path, **options: Any) -> list[dict[str, Any]]:
    given = {"protocol": "modx", "epochs": EPOCHS, "quiet": True, "workers": 0, **options}
    checkpoints = given.pop("checkpoints", [place / "run" / "00"])
    run([str(word) for word in words], checkpoints, out=out, **given)
    return [json.loads(line) for line in out.read_text().splitlines()]


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
    task = open_task(first(place))
    assert {**row, "metrics": None, "config": None, "best_epoch": 0, "last_acc1": 0} == {
        "schema": "vlcpctl.eval/1.1",
        "run": "modx",
        "method": "modx",
        "seed": 0,
        "buffer": None,
        "step": 0,
        "task_step": 0,
        "stream": task.manifest.stream,
        "evaluator": "probe",
        "protocol": "modx",
        "gallery": "own",
        "task": "00-part-0",
        "tasks": ["00-part-0"],
        "split": "test",
        "data": task.content,
        "limit": None,
        "options": {
            "protocol": "modx",
            "train_split": "train",
            "epochs": EPOCHS,
            "lr": 20.0,
            "batch": BATCH,
            "epoch_chosen_on": "test",
            "seed": 3,
        },
        "epochs": EPOCHS,
        "lr": 20.0,
        "probe_seed": 3,
        "n_classes": 3,
        "metrics": None,
        "n_images": 30,
        "n_ties": 0,
        "n_skipped": 0,
        "n_train": 40,
        "n_unseen": 0,
        "best_epoch": 0,
        "last_acc1": 0,
        "start": None,
        "parent": None,
        "config": None,
        "checkpoint": "content 0",
    }


def test_the_first_of_the_best_epochs_is_reported(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    score_of = {1: 20.0, 2: 50.0, 3: 50.0, 4: 30.0}  # by the steps taken: one in an epoch

    def given(probe: Probe, *_more: Any) -> dict[str, Any]:
        return {
            "metrics": {"acc1": score_of[probe.steps]},
            "n_images": 30,
            "n_unseen": 0,
            "n_ties": 0,
        }

    monkeypatch.setattr(modx_probe, "judged", given)
    (row,) = probed(place, tmp_path / "rows", first(place), quiet=False)
    assert (row["metrics"], row["best_epoch"], row["last_acc1"]) == ({"acc1": 50.0}, 2, 30.0)
    said = "50.00 % at epoch 2 of 4, chosen on split test; 30.00 % at the last one"
    assert said in capfd.readouterr().err


def test_rows_depend_on_the_seed_and_not_on_workers_or_the_cache(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fitted: list[Probe]
) -> None:
    wanted = probed(place, tmp_path / "plain", first(place))
    embedded: list[int] = []
    way = modx_probe.TEST

    def counted(encoder: Any, images: torch.Tensor) -> Any:
        embedded.append(len(images))
        return way.embed(encoder, images)

    monkeypatch.setattr(modx_probe, "TEST", way._replace(embed=counted))
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


def test_a_report_keeps_the_protocols_apart(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = {"checkpoints": [place / "run/00", place / "run/01"]}
    tasks = sorted((place / "stream").glob("0*"))
    (one, *_) = probed(place, tmp_path / "modx", *tasks, **both, epochs=2)
    probed(
        place, tmp_path / "usual", *tasks, **both, protocol="logistic", strength=1e-2, epochs=None
    )
    forgetting_report([str(tmp_path / "modx"), str(tmp_path / "usual")])
    shown = capsys.readouterr().out
    assert "probe, modx, test split" in shown
    assert "probe, lbfgs, test split" in shown
    # Rows of another training are no rows of the same table, either.
    other = [{**one, "options": {**one["options"], "epochs": 100}}]
    rest = (tmp_path / "modx").read_text().splitlines()[1:]
    (tmp_path / "mixed").write_text("\n".join([json.dumps(other[0]), *rest]) + "\n")
    with pytest.raises(BadInput, match="cannot share a table: epochs is"):
        forgetting_report([str(tmp_path / "mixed")])


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"protocol": "mod-x"}, "--protocol: unknown value 'mod-x'; did you mean 'modx'?"),
        ({"strength": 1e-6}, "--strength has no effect with --protocol modx"),
        ({"held_out": 0.2}, "--held-out has no effect with --protocol modx"),
        ({"lr": -1.0}, "--lr -1.0 must be above 0"),
        ({"protocol": "logistic", "epochs": 3}, "--epochs has no effect with --protocol logistic"),
    ],
)
def test_options_without_effect_are_refused(
    place: Path, tmp_path: Path, how: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        probed(place, tmp_path / "rows", first(place), **how)
    assert said in str(caught.value)


def test_views_are_those_of_the_authors_program(place: Path) -> None:
    own = encoders.load(place / "run/00").transform
    seen = train_view(replace(own, image_size=224))
    assert (seen.image_size, seen.crop, seen.crop_scale, seen.flip) == (
        *(224, "random"),
        *((0.08, 1.0), True),
    )
    seen = modx_probe.test_view(replace(own, image_size=224))
    assert (seen.image_size, seen.crop, seen.flip) == (256, "center", False)
    assert (seen.mean, seen.std) == (MEAN, STD)


def test_the_plan_says_what_it_costs(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    how = {"protocol": "modx", "out": tmp_path / "rows", "dry_run": True}
    run([str(first(place))], [place / "run" / "00"], **how)
    said = capfd.readouterr().err
    assert "by modx, every training image embedded in each of 100 epochs" in said

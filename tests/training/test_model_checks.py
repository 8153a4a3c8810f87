"""What train-step says of a model, or refuses, by its configuration."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.production import SETTINGS, write_week
from support.program import run_program

from vlcpctl.checkpoints import importing
from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.models import encoders
from vlcpctl.models.configuration import PACKAGED
from vlcpctl.testing.battery import TrainingWorld, make_world, request
from vlcpctl.testing.tiny_stream import make_task
from vlcpctl.training import train_step as train
from vlcpctl.training.config.request import TrainRequest
from vlcpctl.training.plan import make_plan
from vlcpctl.training.train_step import train_step

RESNET = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "head_width": 8}
TIMM = {"timm_model_name": "fastvit_mci0", "image_size": 32}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> TrainingWorld:
    return make_world(tmp_path_factory.mktemp("world"))


def _file(directory: Path, vision: dict[str, Any], **more: object) -> Path:
    config = json.loads((PACKAGED / "micro.json").read_text())
    config["text_cfg"]["hf_tokenizer_name"] = str(PACKAGED / "tiny-tokenizer")
    path = directory / "model.json"
    path.write_text(json.dumps({**config, "vision_cfg": vision or config["vision_cfg"], **more}))
    return path


def _first(world: TrainingWorld, root: Path, model: object, **settings: object) -> TrainRequest:
    step = request(world, "seqf", 0, root, buffered=False)
    changed: dict[str, Any] = {"model": str(model), "image_size": None, **settings}
    return replace(step, settings=replace(step.settings, **changed))


@pytest.mark.parametrize(
    ("vision", "processes", "micro_batch", "note"),
    [
        (
            RESNET,
            1,
            2,
            "batch norms normalise over the images encoded at once (2), not the batch (4)",
        ),
        (RESNET, 2, None, "batch norms normalise over the images encoded at once (2)"),
        (RESNET, 2, 1, "batch norms normalise over the images encoded at once (1)"),
        (
            TIMM,
            1,
            2,
            "batch norms, if fastvit_mci0 has any, normalise over the images encoded at once (2)",
        ),
        (RESNET, 1, None, ""),
        (RESNET, 1, 4, ""),
        ({}, 2, 1, ""),
    ],
)
def test_the_plan_says_over_how_many_images_batch_norms_normalise(
    world: TrainingWorld,
    tmp_path: Path,
    vision: dict[str, Any],
    processes: int,
    micro_batch: int | None,
    note: str,
) -> None:
    step = _first(world, tmp_path, _file(tmp_path, vision), micro_batch=micro_batch)
    lines = [line for line in make_plan(replace(step, nproc=processes)).lines() if "norms" in line]
    assert len(lines) == bool(note)
    assert all(f"note: {note}" in line for line in lines)


SIGMOID = "is made for a sigmoid loss"


@pytest.fixture(scope="module")
def sigmoid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An imported checkpoint of a model with a bias of its similarities."""
    root = tmp_path_factory.mktemp("sigmoid")
    (root / "source").mkdir()
    encoders.save(
        encoders.build(_file(root, {}, init_logit_scale=2.3, init_logit_bias=-10)), root / "source"
    )
    return importing.import_checkpoint(
        importing.ImportRequest(source=root / "source", out=root / "model")
    )


def test_a_model_for_a_sigmoid_loss_is_not_trained(world: TrainingWorld, tmp_path: Path) -> None:
    step = _first(world, tmp_path, _file(tmp_path, {}, init_logit_bias=0))
    with pytest.raises(Incompatible, match=SIGMOID):
        train_step(step)
    assert not step.out.exists()
    with pytest.raises(Incompatible, match=f"^ViT-B-16-SigLIP {SIGMOID}"):
        make_plan(_first(world, tmp_path, "ViT-B-16-SigLIP"))
    make_plan(_first(world, tmp_path, _file(tmp_path, {}, init_logit_bias=None)))


def test_an_imported_one_is_evaluated_and_not_trained(
    world: TrainingWorld, sigmoid: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    step = replace(_first(world, tmp_path, "micro"), previous=sigmoid, origins={})
    with pytest.raises(Incompatible, match=SIGMOID):
        make_plan(step)
    task = make_task(tmp_path / "task", splits={"train": 8, "test": 8})
    words = ("eval-retrieval", task, "--checkpoint", sigmoid, "-o", tmp_path / "rows", "-q")
    assert run_program(capfd, *words).code == 0


def test_update_does_not_train_one(
    sigmoid: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    week = write_week(tmp_path / "week.parquet", 1)
    words = ("update", week, "--state", tmp_path / "prod", "--init", sigmoid, *SETTINGS)
    done = run_program(capfd, *words)
    assert (done.code, done.out) == (5, "")
    assert SIGMOID in done.err
    assert not list((tmp_path / "prod" / "weeks").glob("*"))


def test_one_of_a_hub_is_known_once_it_is_built(
    world: TrainingWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = train._encoder

    def of_a_hub(*given: Any) -> Any:
        encoder = build(*given)
        encoder.config["init_logit_bias"] = -10
        return encoder

    monkeypatch.setattr(train, "_encoder", of_a_hub)
    with pytest.raises(Incompatible, match=SIGMOID):
        train_step(_first(world, tmp_path, _file(tmp_path, {})))


@pytest.mark.parametrize("model", ["hf-hub:some/model", "local-dir:some/model"])
def test_the_name_of_a_hub_without_weights_is_refused(
    world: TrainingWorld,
    tmp_path: Path,
    model: str,
) -> None:
    with pytest.raises(UsageError, match=r"random weights.*'vlcpctl import-checkpoint"):
        train_step(_first(world, tmp_path, model))
    make_plan(_first(world, tmp_path, model, pretrained="weights.safetensors"))

"""What train-step says of a model, or refuses, by its configuration."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vlcpctl.models.configuration import PACKAGED
from vlcpctl.testing.battery import TrainingWorld, make_world, request
from vlcpctl.training.config.request import Request
from vlcpctl.training.plan import make_plan

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


def _first(world: TrainingWorld, root: Path, model: object, **settings: object) -> Request:
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

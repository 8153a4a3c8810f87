"""What tests of training share: settings of a step, small models, journals, processes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.processes import run_together

from vlcpctl.distributed.ranks import process_ranks
from vlcpctl.models.configuration import PACKAGED
from vlcpctl.models.encoders import Encoder
from vlcpctl.training import launch
from vlcpctl.training import train_step as train
from vlcpctl.training.request import TrainRequest


def with_settings(step: TrainRequest, **settings: Any) -> TrainRequest:
    """The step with some settings changed."""
    return replace(step, settings=replace(step.settings, **settings))


def model_file(directory: Path, packaged: str = "micro", /, **changes: Any) -> Path:
    """A packaged configuration in a file, with values by PART__NAME or NAME; ... takes one away."""
    config = json.loads((PACKAGED / f"{packaged}.json").read_text())
    tokenizer = "hf_tokenizer_name" if packaged == "micro" else "tokenizer"
    config["text_cfg"][tokenizer] = str(PACKAGED / "tiny-tokenizer")
    for name, value in changes.items():
        part, _, inner = name.rpartition("__")
        place = config.setdefault(part, {}) if part else config
        place[inner] = value
        if value is ...:
            del place[inner]
    path = directory / "model.json"
    path.write_text(json.dumps(config))
    return path


def resnet(directory: Path) -> dict[str, Any]:
    """Settings of a model with batch norms."""
    vision = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "head_width": 8}
    return {"model": str(model_file(directory, vision_cfg=vision)), "image_size": None}


def journal(checkpoint: Path, phase: str = "") -> list[dict[str, Any]]:
    """The rows of metrics.jsonl, or those of a phase."""
    rows = map(json.loads, (checkpoint / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if phase in {"", row["phase"]}]


def column(checkpoint: Path, name: str) -> list[float]:
    """What the rows of metrics.jsonl that have such a value have."""
    return [row[name] for row in journal(checkpoint) if name in row]


def take_part(step: TrainRequest) -> None:
    """Train in a process that `run_together` started."""
    here = process_ranks()
    assert here is not None
    launch.take_part(replace(step, nproc=here.size), here)


def train_together(step: TrainRequest) -> None:
    """Train in two processes."""
    assert run_together(lambda _: take_part(step)) == [0, 0]


def in_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train models in float64, where a wrong loss is far from a right one."""
    encoder = train._encoder

    def doubled(*given: Any) -> Encoder:
        made = encoder(*given)
        made.module.double()
        return made

    monkeypatch.setattr(train, "_encoder", doubled)

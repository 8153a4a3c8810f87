"""What train-step says of a model, or refuses, by its configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.training import model_file, with_settings

from vlcpctl.core.errors import UsageError
from vlcpctl.models import encoders
from vlcpctl.models.dual_encoder import WEIGHTS_FILE as WEIGHTS
from vlcpctl.testing.battery import TrainingWorld, request
from vlcpctl.training.adaptation import adapted
from vlcpctl.training.plan import lines, make_plan
from vlcpctl.training.request import TrainRequest, opened
from vlcpctl.training.train_step import train_step


def _first(world: TrainingWorld, root: Path, model: object, **settings: object) -> TrainRequest:
    step = request(world, "seqf", 0, root, buffered=False)
    return with_settings(step, **{"model": str(model), "image_size": None, **settings})


def test_the_configuration_decides_the_loss(world: TrainingWorld, tmp_path: Path) -> None:
    def loss_of(model: object, **settings: object) -> str | None:
        step = _first(world, tmp_path, model, **settings)
        return adapted(step, opened(step)).settings.loss

    assert loss_of("ViT-B-16-SigLIP") == loss_of("nllb-clip-base-siglip") == "sigmoid"
    assert (
        loss_of("ViT-B-32") == loss_of("albef-micro") == loss_of("hf-hub:some/model") == "softmax"
    )
    assert loss_of(model_file(tmp_path, init_logit_bias=0)) == "sigmoid"
    assert loss_of(model_file(tmp_path, init_logit_bias=None)) == "softmax"
    assert loss_of("ViT-B-16-SigLIP", loss="softmax") == "softmax"


def test_what_a_preset_says_of_a_softmax_does_not_hold_with_a_sigmoid(
    world: TrainingWorld, tmp_path: Path
) -> None:
    step = _first(world, tmp_path, "micro", loss="sigmoid", base_loss="sum")
    plan = make_plan(step)
    settings = plan.request.settings
    assert (settings.temperature, settings.base_loss) == (None, "mean")
    assert plan.request.origins["base_loss"] == "sigmoid loss"
    assert next(lines(plan)).endswith(", for a sigmoid loss")
    given = replace(step, origins={**step.origins, "temperature": "flag"})
    assert adapted(given, opened(given)).settings.temperature == "fixed:0.07"
    with pytest.raises(UsageError, match=r"^--base-loss has no effect with --loss sigmoid"):
        make_plan(replace(step, origins={**step.origins, "base_loss": "flag"}))


def test_one_of_a_hub_is_known_once_it_is_built(world: TrainingWorld, tmp_path: Path) -> None:
    file, hub = model_file(tmp_path, init_logit_bias=-3.0), tmp_path / "hub"
    hub.mkdir()
    encoder = encoders.build(file)
    encoders.save(encoder, hub)
    (hub / "open_clip_config.json").write_text(f'{{"model_cfg": {file.read_text()}}}')
    how = {"model": f"local-dir:{hub}", "pretrained": str(hub / WEIGHTS)}
    step = _first(world, tmp_path, **how)
    with pytest.raises(UsageError, match=r"is made for a sigmoid loss.*give --loss sigmoid, or"):
        train_step(step)
    for loss, has_bias in (("sigmoid", True), ("softmax", False)):
        step = _first(world, tmp_path / loss, **how, loss=loss, lr=1e-20)
        train_step(step)
        tensors = load_file(step.out / WEIGHTS)
        assert ("logit_bias" in tensors) is has_bias
    torch.testing.assert_close(tensors["visual.proj"], encoder.weights()["visual.proj"].detach())


def test_the_previous_checkpoint_fixes_the_loss(world: TrainingWorld, tmp_path: Path) -> None:
    train_step(_first(world, tmp_path, "micro"))
    step = request(world, "seqf", 1, tmp_path, buffered=False)
    assert adapted(step, opened(step)).settings.loss == "softmax"

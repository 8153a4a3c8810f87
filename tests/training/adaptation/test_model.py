"""What a step with --previous records of the model: as it is, not as a preset would choose it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.program import check_refused, run_program
from support.training import model_file, with_settings

from vlcpctl.checkpoints import importing
from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.step_config import config_id, step_config
from vlcpctl.core.errors import UsageError
from vlcpctl.models import dual_encoder, encoders
from vlcpctl.models.dual_encoder import WEIGHTS_FILE as WEIGHTS
from vlcpctl.testing.battery import TrainingWorld, request
from vlcpctl.training.adaptation import adapted
from vlcpctl.training.plan import lines, make_plan
from vlcpctl.training.request import TrainRequest, opened
from vlcpctl.training.train_step import train_step


@pytest.fixture(scope="module")
def chain(world: TrainingWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of modx; the second one's preset would choose another model."""
    root = tmp_path_factory.mktemp("chain")
    train_step(request(world, "modx", 0, root, buffered=False))
    second = request(world, "modx", 1, root, buffered=False)
    train_step(replace(second, settings=replace(second.settings, model="RN50", text_length=77)))
    return root


def test_settings_that_previous_decides_are_true_and_say_so(chain: Path) -> None:
    made = CheckpointManifest.read(chain / "01")
    assert made.identity["settings"]["model"] == "micro"
    assert made.identity["settings"]["text_length"] == 12
    decided = ("model", "pretrained", "temperature", "text_length", "image_size", "heads")
    assert {made.origins[name] for name in decided} == {"previous"}
    config = step_config(made)
    assert config is not None
    assert config["values"]["settings"]["model"] == "micro"


def test_right_settings_leave_the_identity_as_it_was(
    world: TrainingWorld, chain: Path, tmp_path: Path
) -> None:
    """Settings without a value, or with that of the model, are written as before."""
    step = replace(request(world, "modx", 1, chain, buffered=False), out=tmp_path / "01")
    train_step(step)
    settings = CheckpointManifest.read(step.out).identity["settings"]
    assert (settings["model"], settings["text_length"], settings["image_size"]) == (
        "micro",
        None,
        16,
    )


def test_an_imported_model_is_what_its_weights_and_options_say(
    world: TrainingWorld, tmp_path: Path
) -> None:
    weights = tmp_path / "weights.safetensors"
    save_file(dict(dual_encoder.build("micro", seed=7).module.state_dict()), weights)
    importing.import_checkpoint(
        importing.ImportRequest(source=weights, out=tmp_path / "start", model="micro")
    )
    step = request(world, "modx", 0, tmp_path, buffered=False)
    step = replace(step, previous=tmp_path / "start", origins={})
    train_step(step)
    start, made = (CheckpointManifest.read(path) for path in (tmp_path / "start", step.out))
    assert start.model is not None
    assert (start.model["name"], start.model["temperature"]) == ("micro", "learn")
    assert start.model["pretrained"] == f"sha256:{start.identity['imported']}"
    assert made.model == start.model
    assert made.identity["settings"]["temperature"] == "learn"  # not the preset's fixed one
    train_step(replace(step, seed=1, out=tmp_path / "seed1"))
    assert config_id(made) == config_id(CheckpointManifest.read(tmp_path / "seed1"))


def test_print_config_shows_the_model_as_it_is(
    world: TrainingWorld, chain: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("--method", "modx", "--previous", chain / "00", "-o", tmp_path / "x", "--print-config")
    ended = run_program(capfd, "train-step", world.tasks[1], *words)
    lines = ended.out.splitlines()
    for line in (
        "model = micro  [previous]",
        "text_length = 12  [previous]",
        "image_size = 16  [previous]",
        "temperature = fixed:0.07  [previous]",
        "batch_size = 12  [preset modx, cut from 280]",
        "lr = 0.0005  [preset modx]",
    ):
        assert line in lines
    ended = run_program(capfd, "train-step", "no-such-task", *words[:2], *words[4:])
    assert "model = RN50  [preset modx]" in ended.out.splitlines()


def test_the_preset_update_needs_a_model(
    world: TrainingWorld, chain: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("--method", "modx", "--preset", "update", "-o", tmp_path / "x", "-q")
    ended = run_program(capfd, "train-step", world.tasks[0], *words)
    check_refused(ended, "train-step", 2, "no model", "--model")
    ended = run_program(capfd, "train-step", world.tasks[1], *words, "--previous", chain / "00")
    assert ended.code == 0, ended.err
    made = CheckpointManifest.read(tmp_path / "x")
    assert made.identity["settings"]["batch_size"] == 12
    assert made.origins["lr"] == "preset update, FoMo-in-Flux"
    assert made.origins["epochs"] == "preset update, ours"


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

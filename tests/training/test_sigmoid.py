"""Models for a sigmoid loss (SigLIP) are trained, resumed, exported and updated with their bias."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import open_clip
import open_clip.loss
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.fake_run import FakeRun, fake_batch, features
from support.production import PASSES, SETTINGS, write_week
from support.program import run_program
from support.training import column, model_file, with_settings
from torch.nn.functional import normalize

from vlcpctl.core.errors import Incompatible
from vlcpctl.core.method import Method
from vlcpctl.distributed.world import World
from vlcpctl.methods.co2l import Co2l
from vlcpctl.methods.ctp import Ctp
from vlcpctl.methods.der import Der
from vlcpctl.methods.derpp import Derpp
from vlcpctl.methods.incclip import Incclip
from vlcpctl.models import encoders
from vlcpctl.models.dual_encoder import WEIGHTS_FILE
from vlcpctl.models.embed import as_features
from vlcpctl.testing.battery import (
    BATCH,
    WIDTH,
    TrainingWorld,
    chain,
    make_world,
    request,
    require_exact_resume,
)
from vlcpctl.testing.tiny_stream import repeating_pair
from vlcpctl.training import train_step as training
from vlcpctl.training import validation
from vlcpctl.training.batches import training_batches
from vlcpctl.training.plan import make_plan
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.train_step import train_step

TEXTS = ["grinning face", "a flag", ""]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> TrainingWorld:
    made = make_world(tmp_path_factory.mktemp("world"), pair=repeating_pair)
    return replace(made, flags={**made.flags, "loss": "sigmoid"})


def _first(world: TrainingWorld, root: Path, **settings: Any) -> TrainRequest:
    return with_settings(request(world, "seqf", 0, root, buffered=False), **settings)


def _terms(checkpoint: Path) -> list[float]:
    return column(checkpoint, "contrastive")


def _bias(checkpoint: Path) -> float:
    return load_file(checkpoint / WEIGHTS_FILE)["logit_bias"].item()


def test_the_first_loss_is_that_of_open_clip(world: TrainingWorld, tmp_path: Path) -> None:
    step = _first(world, tmp_path, negatives="all")
    plan = make_plan(step)
    run = training._new_run(plan, None, World())
    batch = next(training_batches(plan, run, 0, 1))
    weights = run.encoder.weights()
    bias, scale = weights["logit_bias"], weights["logit_scale"].exp()
    assert bias.item() == pytest.approx(-math.log(BATCH - 1))
    assert scale.item() == pytest.approx(10)
    sides = run.encoder.features(*run.encoder.inputs(batch.images, batch.texts))
    wanted = open_clip.loss.SigLipLoss()(*map(normalize, sides), scale, bias).item()
    validated = validation._loss(run, as_features(*sides, scale), None)
    assert validated.item() == pytest.approx(wanted, abs=1e-6)
    train_step(step)
    assert _terms(step.out)[0] == pytest.approx(wanted, abs=1e-6)
    assert _bias(step.out) != bias.item()


@pytest.mark.parametrize("method", [Ctp(queue=4), Incclip(), Co2l(), Der(), Derpp()])
def test_the_contrast_of_a_method_has_the_bias(method: Method) -> None:
    drawn = torch.randn(2, BATCH, WIDTH, generator=torch.Generator().manual_seed(0))
    bias, out = torch.zeros((), requires_grad=True), features(*drawn)
    run = FakeRun({"logit_bias": bias}, slow=out, started_first=True).start(method)
    terms, _ = method.loss(run, fake_batch(BATCH), out)  # type: ignore[arg-type]
    (gradient,) = torch.autograd.grad(sum(terms.values()), bias)  # type: ignore[arg-type]
    assert gradient.abs() > 0


def test_micro_batches_change_nothing(world: TrainingWorld, tmp_path: Path) -> None:
    whole, parts = (_first(world, tmp_path / str(size), micro_batch=size) for size in (None, 2))
    for step in (whole, parts):
        train_step(step)
    assert _terms(parts.out) == pytest.approx(_terms(whole.out), rel=1e-4)
    assert _bias(parts.out) == pytest.approx(_bias(whole.out), rel=1e-5)


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bytes(world: TrainingWorld, tmp_path: Path) -> None:
    require_exact_resume(lambda root: chain(world, "ctp+ewc", root), tmp_path)


def test_the_exported_model_has_the_embeddings_and_logits_of_open_clips(
    world: TrainingWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    step = _first(world, tmp_path)
    train_step(step)
    words = ("export", step.out, "--to", "hf-model", "-o", tmp_path / "exported", "-q")
    assert run_program(capfd, *words).code == 0
    ours = encoders.load_for_inference(step.out, "cpu")
    theirs, *_ = open_clip.create_model_and_transforms(f"local-dir:{tmp_path / 'exported'}")
    theirs.eval()
    images = torch.randint(256, (3, 16, 16, 3), dtype=torch.uint8)
    pixels, ids = ours.inputs(images, ours.tokenize(TEXTS))
    with torch.no_grad():
        image, text = ours.features(pixels, ids)
        assert torch.equal(theirs.encode_image(pixels), image)
        assert torch.equal(theirs.encode_text(ids), text)
        logits, _ = theirs.get_logits(pixels, ids)
    weights = ours.weights()
    scaled = weights["logit_scale"].exp() * normalize(image) @ normalize(text).T
    torch.testing.assert_close(logits, scaled + weights["logit_bias"])
    assert theirs.logit_bias.item() == _bias(step.out)


def test_an_imported_model_is_evaluated_and_updated(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = model_file(tmp_path, init_logit_scale=math.log(117), init_logit_bias=-12.9)
    source, imported = tmp_path / "source", tmp_path / "model"
    source.mkdir()
    encoders.save(encoders.build(file), source)
    assert run_program(capfd, "import-checkpoint", source, "-o", imported, "-q").code == 0

    week, state = write_week(tmp_path / "week.parquet", 1), tmp_path / "prod"
    words = ("update", week, "--state", state, "--init", imported, *SETTINGS, *PASSES)
    done = run_program(capfd, *words)
    assert done.code == 0, done.err
    updated = (state / "current").resolve()
    assert _bias(updated) != _bias(imported)
    # Beyond the bound of a softmax's temperature, as are the weights that SigLIP published.
    assert load_file(updated / WEIGHTS_FILE)["logit_scale"].exp().item() > 110
    made = json.loads((updated / "checkpoint.json").read_text())
    assert made["identity"]["settings"]["loss"] == "sigmoid"


def test_a_sigmoid_model_is_trained_with_a_softmax_on_demand(
    world: TrainingWorld, tmp_path: Path
) -> None:
    first = _first(world, tmp_path)
    train_step(first)
    step = _first(
        world, tmp_path / "softmax", model=str(first.out), loss="softmax", image_size=None
    )
    train_step(replace(step, origins={"loss": "flag"}))
    tensors = load_file(step.out / WEIGHTS_FILE)
    assert "logit_bias" not in tensors
    assert tensors.keys() | {"logit_bias"} == load_file(first.out / WEIGHTS_FILE).keys()
    theirs, *_ = open_clip.create_model_and_transforms(f"local-dir:{step.out}")
    assert theirs.logit_bias is None


def test_weights_without_a_bias_are_refused(world: TrainingWorld, tmp_path: Path) -> None:
    clip = encoders.build("micro").module.state_dict()
    save_file(clip, tmp_path / "clip.safetensors")
    step = _first(world, tmp_path, pretrained=str(tmp_path / "clip.safetensors"), image_size=None)
    with pytest.raises(Incompatible, match=r"clip\.safetensors lacks the tensor 'logit_bias'"):
        train_step(step)

"""Low-rank adapters: an autograd version, what a checkpoint has, resume, refusals, peft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.marks import mostly_slow
from support.training import column, with_settings

from vlcpctl.core.errors import OutputExists
from vlcpctl.files.tensors import read_tensors
from vlcpctl.losses.contrastive import image_text
from vlcpctl.models import encoders
from vlcpctl.models.checkpoint_files import count_weights
from vlcpctl.models.dual_encoder import WEIGHTS_FILE as WEIGHTS
from vlcpctl.models.embed import as_features
from vlcpctl.models.encoders import Encoder
from vlcpctl.testing.battery import (
    TrainingWorld,
    chain,
    request,
    require_exact_resume,
)
from vlcpctl.testing.tiny_stream import make_task
from vlcpctl.training.adapters import AdapterOptimizer, Adapters
from vlcpctl.training.lora import LoraSize, adapted_names
from vlcpctl.training.optimizers import new_optimizer
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.settings import Settings
from vlcpctl.training.train_step import train_step

SIZE = LoraSize(2, 3.0)


def _double() -> Encoder:
    encoder = encoders.build("micro")
    encoder.module.double()
    return encoder


def _loss(encoder: Encoder, seed: int, weights: Any = None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randn(6, 3, 16, 16, generator=generator, dtype=torch.float64)
    texts = torch.randint(1, 2000, (6, 12), generator=generator)
    image, text = encoder.features(pixels, texts, weights)
    scale = (weights or encoder.weights())["logit_scale"].exp()
    out = as_features(image, text, scale)
    return sum(image_text(out.image, out.text, out.scale))


@pytest.mark.parametrize("clip_norm", [None, 0.01])
def test_the_gradients_and_updates_are_those_of_autograd(clip_norm: float | None) -> None:
    settings = Settings(lr=7.0, weight_decay=0.1)  # the rate of each step comes later
    encoder, other = _double(), _double()
    adapters = Adapters.of(encoder.weights(), SIZE, seed=3)
    start = {name: one.detach().clone() for name, one in other.weights().items()}
    pairs = {name: one.detach().clone().requires_grad_() for name, one in adapters.tensors.items()}
    optimizer = AdapterOptimizer(new_optimizer(adapters.tensors, settings), adapters)
    naive = torch.optim.AdamW(pairs.values(), lr=0.05, weight_decay=0.1)
    for group in optimizer.param_groups:
        group["lr"] = 0.05

    def effective() -> dict[str, torch.Tensor]:
        found = dict(start)
        for name in adapted_names(start):
            change = pairs[f"{name}.lora_B"] @ pairs[f"{name}.lora_A"]
            found[name] = start[name] + SIZE.alpha / SIZE.rank * change
        return found

    for seed in range(4):
        optimizer.zero_grad()
        _loss(encoder, seed).backward()
        adapters.pull_back()
        naive.zero_grad()
        _loss(other, seed, effective()).backward()
        for name, one in pairs.items():
            torch.testing.assert_close(adapters.tensors[name].grad, one.grad, msg=name)
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(adapters.tensors.values(), clip_norm)
            torch.nn.utils.clip_grad_norm_(pairs.values(), clip_norm)
        optimizer.step()
        naive.step()
        for name, one in effective().items():
            torch.testing.assert_close(encoder.weights()[name].detach(), one.detach(), msg=name)
    moved = [name for name, one in effective().items() if not torch.equal(one, start[name])]
    assert moved == adapted_names(start)


def test_both_towers_of_either_class_of_open_clip_have_adapters() -> None:
    own = ["transformer.resblocks.0.attn.in_proj_weight", "visual.ln_post.weight"]
    custom = ["text.transformer.resblocks.11.mlp.c_proj.weight", "text.text_projection"]
    image = ["visual.transformer.resblocks.3.attn.out_proj.weight", "visual.proj"]
    assert adapted_names([*own, *custom, *image]) == [own[0], custom[0], image[0]]
    assert adapted_names([*own, *custom, *image], "text") == [own[0], custom[0]]
    assert len(adapted_names(_double().weights())) == 8


def _second(
    world: TrainingWorld, first: Path, out: Path, names: str = "seqf", lora: str = "2", **how: Any
) -> TrainRequest:
    step = request(world, names, 1, first, buffered=False)
    return with_settings(replace(step, out=out), lora=lora, **how)


def test_the_adapter_beside_the_weights_is_their_change(
    world: TrainingWorld, first: Path, tmp_path: Path
) -> None:
    train_step(_second(world, first, tmp_path / "01", lora="2,6", lr=0.01))
    old, new = (read_tensors(path / WEIGHTS) for path in (first / "00", tmp_path / "01"))
    pairs = read_tensors(tmp_path / "01" / "adapter.safetensors")
    assert len(pairs) == 2 * len(adapted_names(old))
    assert all(torch.equal(old[name], new[name]) for name in old.keys() - {*adapted_names(old)})
    for name in adapted_names(old):
        change = 3.0 * pairs[f"{name}.lora_B"] @ pairs[f"{name}.lora_A"]
        torch.testing.assert_close(new[name], old[name] + change, rtol=0, atol=1e-7)
    assert count_weights(tmp_path / "01") == sum(one.numel() for one in new.values())


@pytest.mark.parametrize("names", mostly_slow(["ewc", "si+ctp", "ema"], kept=["ewc", "ema"]))
def test_methods_keep_their_state_over_tasks_with_and_without_adapters(
    world: TrainingWorld, names: str, tmp_path: Path
) -> None:
    for number, lora in enumerate((None, "2", None)):
        step = request(world, names, number, tmp_path, buffered=False)
        train_step(with_settings(step, lora=lora))
        written = (step.out / "adapter.safetensors").is_file()
        assert written == (lora is not None and names != "ema")


@pytest.mark.slow
def test_killed_and_resumed_runs_have_the_same_bytes(world: TrainingWorld, tmp_path: Path) -> None:
    def steps(root: Path) -> Sequence[TrainRequest]:
        plain, *later = chain(world, "ctp+ewc", root)
        return [plain, *(with_settings(one, lora="2") for one in later)]

    require_exact_resume(steps, tmp_path)


def test_a_run_with_another_rank_is_another_run(
    world: TrainingWorld, first: Path, tmp_path: Path
) -> None:
    train_step(_second(world, first, tmp_path / "01", lora="2"))
    train_step(_second(world, first, tmp_path / "01", lora="2,4"))  # the same size in other words
    with pytest.raises(OutputExists, match=r"settings\.lora was '?2,4'? and is now '?4,8'?"):
        train_step(_second(world, first, tmp_path / "01", lora="4"))


@pytest.mark.parametrize("name", ["adamw", "sgd", "lamb"])
def test_fp16_skips_an_update_whose_gradients_overflowed(name: str) -> None:
    encoder = encoders.build("micro")
    adapters = Adapters.of(encoder.weights(), SIZE, seed=0)
    settings = Settings(optimizer=name, lr=0.01)
    optimizer = AdapterOptimizer(new_optimizer(adapters.tensors, settings), adapters)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    before = {name: one.detach().clone() for name, one in adapters.tensors.items()}

    def update(*, overflows: bool) -> None:
        optimizer.zero_grad()
        for one in encoder.weights().values():
            one.grad = scaler.scale(torch.ones_like(one))
        if overflows:
            encoder.weights()["visual.transformer.resblocks.0.mlp.c_fc.weight"].grad[0, 0] = (
                torch.inf
            )
        scaler.unscale_(optimizer)
        adapters.pull_back()
        scaler.step(optimizer)
        scaler.update()

    update(overflows=True)
    assert all(torch.equal(adapters.tensors[one], before[one]) for one in before)
    update(overflows=False)
    ones = torch.ones(24, 8)  # the gradient of in_proj, unscaled
    name_a = "transformer.resblocks.0.attn.in_proj_weight.lora_A"
    name_b = name_a.replace("lora_A", "lora_B")
    assert not torch.equal(adapters.tensors[name_b], before[name_b])
    expected = SIZE.scale * ones @ before[name_a].T
    torch.testing.assert_close(adapters.tensors[name_b].grad, expected)


@pytest.mark.parametrize("precision", mostly_slow(["fp32", "fp16"], kept=["fp32"]))
def test_the_best_epoch_is_written_with_its_own_adapter(
    world: TrainingWorld, tmp_path: Path, precision: str
) -> None:
    splits = {"train": 12, "val": 6}
    tasks = [
        make_task(tmp_path / f"task-{step}", splits=splits, first=40 * step, step=step)
        for step in range(2)
    ]
    world = replace(world, tasks=tasks)
    train_step(request(world, "seqf", 0, tmp_path, buffered=False))
    how = {"keep": "best:val_loss", "epochs": 4, "lr": 0.5, "precision": precision}
    step = _second(world, tmp_path, tmp_path / "01", **how)
    train_step(step)
    losses = column(tmp_path / "01", "val_loss")
    assert losses.index(min(losses)) < len(losses) - 1, losses
    old, new = (read_tensors(path / WEIGHTS) for path in (tmp_path / "00", tmp_path / "01"))
    pairs = read_tensors(tmp_path / "01" / "adapter.safetensors")
    for name in adapted_names(old):
        change = 2.0 * pairs[f"{name}.lora_B"] @ pairs[f"{name}.lora_A"]
        torch.testing.assert_close(new[name], old[name] + change, rtol=0, atol=1e-6)


def test_the_norm_that_is_clipped_is_that_of_the_adapters_gradient(
    world: TrainingWorld, first: Path, tmp_path: Path
) -> None:
    how = {"optimizer": "sgd", "momentum": 0.0, "schedule": "constant", "weight_decay": 0.0}
    train_step(_second(world, first, tmp_path / "01", lr=1.0, clip_norm=0.01, steps=1, **how))
    pairs = read_tensors(tmp_path / "01" / "adapter.safetensors")
    changes = [one.flatten() for name, one in pairs.items() if name.endswith("lora_B")]  # from 0
    assert torch.cat(changes).norm().item() == pytest.approx(0.01, rel=1e-4)

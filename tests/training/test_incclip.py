"""IncCLIP inside real train-steps: its negative texts, its memory, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.marks import mostly_slow
from support.training import with_settings
from torch import Tensor

from vlcpctl.core.batch import InversionSettings
from vlcpctl.core.errors import Incompatible
from vlcpctl.precompute import invert_texts as inverting
from vlcpctl.precompute.compute_options import ComputeOptions
from vlcpctl.precompute.invert_plan import Inversion
from vlcpctl.testing.battery import TrainingWorld, request, with_fusion_model
from vlcpctl.training import step as steps
from vlcpctl.training.beside import BesideEncoder
from vlcpctl.training.methods import compose
from vlcpctl.training.plan import lines
from vlcpctl.training.plan import make_plan as plan_training
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.train_step import train_step

FEW = ["incclip.count=6", "incclip.iterations=2"]
# A temperature of 0.01 blows up rounding from step to step, and adam would hide a wrong scale.
GENTLE = {"optimizer": "sgd", "lr": 0.01, "steps": 2}
OFF = ["incclip.count=0", "incclip.lambda_=0", "incclip.clip=false"]


@pytest.fixture(scope="module")
def first(world: TrainingWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the first task's checkpoint, 00, which no test changes."""
    root = tmp_path_factory.mktemp("first")
    train_step(request(world, "incclip", 0, root, buffered=False))
    return root


def second(world: TrainingWorld, first: Path, out: Path, *how: str, **changes: Any) -> TrainRequest:
    """The second task."""
    step = request(world, "incclip", 1, first, buffered=True)
    return replace(step, out=out, methods=compose("incclip", [*FEW, *how]), **changes)


def weights_of(checkpoint: Path) -> dict[str, Tensor]:
    (file,) = checkpoint.glob("*.safetensors")
    return load_file(file)


@pytest.fixture(scope="module")
def whole(
    world: TrainingWorld, first: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Tensor]:
    """The weights after the second task with every part."""
    return weights_of(train_step(second(world, first, tmp_path_factory.mktemp("whole") / "01")))


# What is trained


@pytest.mark.parametrize("family", mostly_slow(["dual", "fusion"], kept=["dual"]))
def test_turned_off_it_is_er_byte_for_byte(
    world: TrainingWorld, tmp_path: Path, family: str
) -> None:
    world = with_fusion_model(world) if family == "fusion" else world
    for name, off in (("er", ()), ("incclip", OFF)):
        for number in range(2):
            step = request(world, name, number, tmp_path / name, buffered=True)
            train_step(replace(step, methods=compose(name, off)))
    one, two = (tmp_path / name / "01" for name in ("er", "incclip"))
    (plain,), (off_,) = (list(path.glob("*.safetensors")) for path in (one, two))
    assert plain.read_bytes() == off_.read_bytes()


@pytest.mark.parametrize(
    "part",
    mostly_slow(
        [
            ["incclip.count=0"],
            ["incclip.lambda_=0"],
            ["incclip.clip=false"],
            ["incclip.kl=reversed"],
            ["incclip.iterations=0"],
            ["incclip.s_min=-0.9", "incclip.s_max=-0.5"],
            ["incclip.gamma=1.0"],
            ["incclip.eta=0.1"],
        ],
        kept=[["incclip.count=0"], ["incclip.lambda_=0"], ["incclip.gamma=1.0"]],
    ),
)
def test_every_part_tells(
    world: TrainingWorld,
    first: Path,
    whole: dict[str, Tensor],
    tmp_path: Path,
    part: list[str],
) -> None:
    without = weights_of(train_step(second(world, first, tmp_path / "without", *part)))
    assert any(not torch.equal(whole[name], without[name]) for name in whole)


@pytest.mark.parametrize("family", mostly_slow(["dual", "fusion"], kept=["dual"]))
def test_micro_batches_change_rounding_alone(
    world: TrainingWorld, tmp_path: Path, family: str
) -> None:
    world = with_fusion_model(world) if family == "fusion" else world
    train_step(request(world, "incclip", 0, tmp_path, buffered=False))
    found = []
    for micro in (None, 2):
        step = second(world, tmp_path, tmp_path / str(micro))
        found.append(weights_of(train_step(with_settings(step, **GENTLE, micro_batch=micro))))
    for name, tensor in found[0].items():
        torch.testing.assert_close(found[1][name], tensor, rtol=1e-5, atol=1e-6)


def test_a_step_has_as_many_texts_as_it_asks_for(
    world: TrainingWorld, first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    make = steps.with_pseudo_texts

    def spied(run: Any, batch: Any, how: InversionSettings) -> Any:
        made = make(run, batch, how)
        seen.append((len(batch.buffer_batch.keys), made.pseudo))
        return made

    monkeypatch.setattr(steps, "with_pseudo_texts", spied)
    train_step(second(world, first, tmp_path / "out", "incclip.memory_batch=3"))
    assert len(seen) == 2 * (18 // 4)
    assert all(pairs == 3 and texts.embeddings.shape == (6, 12, 8) for pairs, texts in seen)
    assert not torch.equal(seen[0][1].embeddings, seen[1][1].embeddings)
    assert not any(texts.embeddings.requires_grad for _, texts in seen)


def test_norms_are_held_to_those_of_the_first_task(world: TrainingWorld, tmp_path: Path) -> None:
    for number in range(2):
        step = request(world, "incclip", number, tmp_path, buffered=True)
        tight = compose("incclip", [*FEW, "incclip.gamma=1.001"])
        train_step(replace(step, methods=tight))
    slot = "method/incclip/norms.safetensors"
    norms = load_file(tmp_path / "00" / slot)
    assert norms.keys() == load_file(tmp_path / "01" / slot).keys()
    assert all(torch.equal(norms[n], v) for n, v in load_file(tmp_path / "01" / slot).items())
    weights = weights_of(tmp_path / "01")
    ratios = [float(weights[name].norm() / norm) for name, norm in norms.items()]
    assert all(weights[name].dim() > 1 for name in norms)
    assert max(ratios) == pytest.approx(1.001, rel=1e-5)


# Texts that are given


def made_texts(
    world: TrainingWorld, first: Path, out: Path, count: int = 8, **changes: Any
) -> Path:
    how = InversionSettings(texts=4, pairs=4, low=0.1, high=0.4, iterations=2, rate=0.5)
    given = {"checkpoint": first / "00", "buffer": world.buffers["reservoir"][0], **changes}
    plan = Inversion(**given, out=out, count=count, asked=how)
    inverting.invert_texts(
        plan, ComputeOptions(batch_size=8, device="cpu", workers=0, threads=1, nproc=1)
    )
    return out


@pytest.fixture
def texts(world: TrainingWorld, first: Path, tmp_path: Path) -> Path:
    return made_texts(world, first, tmp_path / "texts")


def given(world: TrainingWorld, first: Path, out: Path, texts: Path, *how: str) -> TrainRequest:
    step = second(world, first, out, pseudo_texts=texts)
    return replace(step, methods=compose("incclip", ["incclip.count=4", *how]))


def test_given_texts_are_trained_on_in_an_order_of_their_own(
    world: TrainingWorld, first: Path, tmp_path: Path, texts: Path
) -> None:
    step = given(world, first, tmp_path / "out", texts)
    source = plan_training(step).pseudo_texts
    assert source is not None
    assert source.file_texts is not None
    epochs = [[source.file_texts.rows(2 * epoch + part) for part in range(2)] for epoch in range(2)]
    for rows in epochs:
        assert sorted(row for part in rows for row in part.tolist()) == list(range(8))
    assert "4 pseudo texts per step, from 8 precomputed" in "\n".join(lines(plan_training(step)))
    one = train_step(step)
    other = train_step(second(world, first, tmp_path / "made", "incclip.count=4"))
    assert not torch.equal(*(next(iter(weights_of(path).values())) for path in (one, other)))


def test_texts_of_another_model_or_buffer_are_refused(
    world: TrainingWorld, first: Path, tmp_path: Path, texts: Path
) -> None:
    train_step(request(world, "seqf", 0, tmp_path, buffered=False))
    step = given(world, first, tmp_path / "out", texts, "incclip.clip=false")
    with pytest.raises(Incompatible, match="was made with a different checkpoint"):
        train_step(replace(step, previous=tmp_path / "00"))
    with pytest.raises(Incompatible, match="was made with a different buffer"):
        train_step(replace(step, buffer=world.buffers["herding"][0]))


def test_the_gradient_of_pseudo_texts_reaches_the_weights(
    world: TrainingWorld,
    first: Path,
    whole: dict[str, Tensor],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BesideEncoder, "backward", lambda _self, _gradients: None)
    without = weights_of(train_step(second(world, first, tmp_path / "without")))
    assert any(not torch.equal(whole[name], without[name]) for name in whole)

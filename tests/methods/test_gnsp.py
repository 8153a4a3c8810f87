"""GNSP against a version token by token with an SVD, the authors' numbers, and what it promises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.fake_run import FakeRun, fake_batch
from support.training import journal, resnet, with_settings
from torch import Tensor

from vlcpctl.core.batch import Batch, Weights
from vlcpctl.core.errors import UsageError
from vlcpctl.core.method import Run
from vlcpctl.losses import null_space
from vlcpctl.methods.gnsp import Gnsp
from vlcpctl.testing.battery import TrainingWorld, request, with_fusion_model
from vlcpctl.training.method_run import input_moments
from vlcpctl.training.methods import compose
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.run import TrainRun
from vlcpctl.training.train_step import train_step

# Of single functions of the authors' code; see the names in the file.
NUMBERS = Path(__file__).parent / "data" / "reference_losses.npz"
WEIGHTS = "open_clip_model.safetensors"
LAYER = "visual.transformer.resblocks.0.mlp.c_fc.weight"
OTHER = "visual.transformer.resblocks.0.attn.out_proj.weight"


def _naive_projector(moment: Tensor, rho: float) -> Tensor:
    """All singular values are tried as the first of the null space, until the rest is small."""
    _, values, vectors = np.linalg.svd(moment.numpy())
    for first in range(len(values) + 1):
        if values[first:].sum() / values.sum() < rho:
            break
    kept = [np.outer(vectors[row], vectors[row]) for row in range(first, len(values))]
    return torch.from_numpy(sum(kept, np.zeros_like(moment.numpy())))


def _moment(seed: int, tokens: int = 40, width: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.tensor([4.0, 2.0, 1.0, 0.5, 0.1, 0.01], dtype=torch.float64)
    x = torch.randn(tokens, width, generator=generator, dtype=torch.float64) * sizes
    return x.T @ x


def test_numbers_are_the_authors() -> None:
    with np.load(NUMBERS) as found:
        case = {name[7:]: torch.from_numpy(found[name]) for name in found.files if "gnsp/0" in name}
    rho, moment = case["in/rho"].item(), case["in/features"].T @ case["in/features"]
    values = torch.linalg.svdvals(moment)
    assert (~null_space.is_null(values, rho)).sum() == case["out/k"]
    projector = null_space.projector(moment, rho)
    torch.testing.assert_close(projector, case["out/projector"], rtol=1e-9, atol=1e-12)
    projected = null_space.projected(case["in/gradient"], projector)
    torch.testing.assert_close(projected, case["out/projected"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.001, 0.05, 0.15, 0.5, 0.999])
def test_the_projector_is_that_of_a_singular_value_decomposition(rho: float) -> None:
    moment = _moment(0)
    projector = null_space.projector(moment, rho)
    torch.testing.assert_close(projector, _naive_projector(moment, rho), rtol=1e-9, atol=1e-12)


def test_inputs_that_the_null_space_holds_are_answered_as_before() -> None:
    moment = torch.diag(torch.tensor([5.0, 1.0, 0.0, 0.0]))
    before, step = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    after = null_space.moved(before, before + step, null_space.projector(moment, 1e-6))
    seen, unseen = torch.tensor([2.0, -3.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, 1.0, 1.0])
    torch.testing.assert_close(after @ seen, before @ seen)
    torch.testing.assert_close(after @ unseen, (before + step) @ unseen)


def _runs(method: Gnsp, *tasks: list[Tensor]) -> FakeRun:
    """The slots after tasks whose batches have these moments in one layer."""
    run = FakeRun(weights={LAYER: torch.zeros(3, 6, dtype=torch.float64)}, started_first=True)
    run.start(method)
    for moments in tasks:
        carried = run.slots["moments"]
        run = replace(run, phase="inputs", steps=len(moments)).start(method)
        run.slots["moments"] = carried
        for step, moment in enumerate(moments):
            run.step, run.moments = step, {LAYER: moment}
            method.after_step(run, fake_batch(1), {}, stepped=False)
    return run


def test_batches_and_tasks_count_alike_whatever_their_size() -> None:
    one, two, three = map(_moment, range(3))
    run = _runs(Gnsp(towers="image"), [one, 100 * two], [three])
    first = one / one.norm() + two / two.norm()
    wanted = first / first.norm() + three / three.norm()
    torch.testing.assert_close(run.slot("moments")[LAYER], wanted)


def _later(method: Gnsp) -> FakeRun:
    """A run of a task after a first one, whose inputs have been measured."""
    weights = {LAYER: torch.ones(3, 6, dtype=torch.float64), OTHER: torch.ones(2, 2)}
    run = FakeRun(weights=weights)
    run.slots = {"moments": {LAYER: _moment(0)}}
    for slot in method.slots(first=False):
        if slot.name != "moments":
            run.slots[slot.name] = slot.start(run)
    return run


def _grads() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        LAYER: torch.randn(3, 6, generator=generator, dtype=torch.float64),
        OTHER: torch.ones(2, 2),
    }


@pytest.mark.parametrize("others", ["freeze", "train"])
def test_gradients_of_layers_are_projected_and_others_kept_or_taken_out(others: str) -> None:
    method, grads = Gnsp(towers="image", others=others), _grads()
    method.replace_gradients(_later(method), grads)
    wanted = _grads()[LAYER] @ _naive_projector(_moment(0), 0.15)
    torch.testing.assert_close(grads[LAYER], wanted)
    assert set(grads) == ({LAYER} if others == "freeze" else {LAYER, OTHER})
    assert others == "freeze" or torch.equal(grads[OTHER], torch.ones(2, 2))


def test_updates_are_projected_with_what_the_optimizer_made_of_them() -> None:
    """Step by step, where the method projects the whole change of the task."""
    method, projector = Gnsp(towers="image", variant="update"), _naive_projector(_moment(0), 0.15)
    run, wanted = _later(method), torch.ones(3, 6, dtype=torch.float64)
    for size in (1.0, 0.0, 0.5):  # 0: fp16 has skipped the step
        grads = _grads()
        method.replace_gradients(run, grads)
        assert torch.equal(grads[LAYER], _grads()[LAYER])
        update = -size * (0.1 * wanted + grads[LAYER].sign())  # decay, and steps of one size
        run.weights[LAYER] += update
        method.after_step(run, fake_batch(1), {}, stepped=size > 0)
        wanted = wanted + update @ projector
        torch.testing.assert_close(run.weights[LAYER], wanted)


@pytest.mark.parametrize("variant", ["gradient", "update"])
def test_nothing_is_projected_or_frozen_in_a_first_task(variant: str) -> None:
    method, grads = Gnsp(towers="image", variant=variant), _grads()
    run = replace(_later(method), started_first=True).start(method)
    method.replace_gradients(run, grads)
    run.weights[LAYER] -= grads[LAYER]
    after = run.weights[LAYER].clone()
    method.after_step(run, fake_batch(1), {}, stepped=True)
    assert all(torch.equal(grads[name], one) for name, one in _grads().items())
    assert torch.equal(run.weights[LAYER], after)


@pytest.fixture(scope="module")
def first(world: TrainingWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("chain")
    return train_step(request(world, "gnsp", 0, root, buffered=False))


def _second(
    world: TrainingWorld, first: Path, out: Path, *assignments: str, names: str = "gnsp", **how: Any
) -> Path:
    step = request(world, names, 1, first.parent, buffered=False)
    methods = compose(names, [f"gnsp.{one}" for one in assignments])
    return train_step(with_settings(replace(step, out=out, methods=methods), **how))


def _outside(first: Path, second: Path, rho: float = 0.15) -> dict[str, float]:
    """The largest change of each layer outside of the null space of the first task."""
    old, new = load_file(first / WEIGHTS), load_file(second / WEIGHTS)
    moments = load_file(first / "method" / "gnsp" / "moments.safetensors")
    found = {}
    for name, moment in moments.items():
        projector = _naive_projector(moment.double(), rho)
        change = (new[name] - old[name]).double()
        assert change.abs().max() > 1e-5
        found[name] = (change - change @ projector).abs().max().item()
    assert len(found) == 4
    return found


@pytest.mark.parametrize(
    ("assignments", "how", "stays"),
    [
        ((), {"optimizer": "sgd", "lr": 0.5, "weight_decay": 0.0}, True),
        ((), {"optimizer": "adamw"}, False),
        ((), {"optimizer": "sgd", "lr": 0.5, "weight_decay": 0.1}, False),
        (("variant=update",), {"optimizer": "adamw", "weight_decay": 0.1}, True),
        (("variant=update", "others=train"), {"optimizer": "lamb", "weight_decay": 0.1}, True),
    ],
    ids=["gradient-sgd", "gradient-adamw", "gradient-decay", "update-adamw", "update-lamb"],
)
def test_what_stays_in_the_null_space(
    world: TrainingWorld,
    first: Path,
    tmp_path: Path,
    assignments: tuple[str, ...],
    how: dict[str, Any],
    *,
    stays: bool,
) -> None:
    """As the plan and the page say: AdamW and weight decay leave it with variant=gradient."""
    outside = _outside(first, _second(world, first, tmp_path / "01", *assignments, **how))
    assert all((value < 1e-6) is stays for value in outside.values()), outside


def test_only_the_layers_move_and_with_others_train_all(
    world: TrainingWorld, first: Path, tmp_path: Path
) -> None:
    old = load_file(first / WEIGHTS)
    frozen = load_file(_second(world, first, tmp_path / "01") / WEIGHTS)
    moved = {name for name in old if not torch.equal(old[name], frozen[name])}
    assert moved == set(load_file(first / "method" / "gnsp" / "moments.safetensors"))
    free = load_file(_second(world, first, tmp_path / "free", "others=train") / WEIGHTS)
    still = {name for name in old if torch.equal(old[name], free[name])}
    assert still <= {"logit_scale"}


class Caught(Exception):
    """Ends a run whose model a test has seen."""


def _seen(
    step: TrainRequest, monkeypatch: pytest.MonkeyPatch, look: Callable[[TrainRun, Batch], Any]
) -> Any:
    """What `look` returns of the run and the first batch that is measured."""
    found: list[Any] = []

    def measured(self: Gnsp, run: Any, batch: Batch) -> None:
        found.append(look(run.run, batch))
        raise Caught

    monkeypatch.setattr(Gnsp, "_measure", measured)
    with pytest.raises(Caught):
        train_step(step)
    return found[0]


def _token_by_token(run: TrainRun, batch: Batch) -> Weights:
    """Sums of outer products of what the modules before the layers return."""
    found: Weights = {}
    hooks = []
    for prefix in ("visual.", ""):
        block = run.encoder.module.get_submodule(f"{prefix}transformer.resblocks.0")
        for source, layer in ((block.ln_2, "c_fc"), (block.mlp.gelu, "c_proj")):
            name = f"{prefix}transformer.resblocks.0.mlp.{layer}.weight"

            def add(_module: Any, _inputs: Any, output: Tensor, name: str = name) -> None:
                for token in output.double().flatten(0, 1):
                    found[name] = found.get(name, 0) + torch.outer(token, token)

            hooks.append(source.register_forward_hook(add))
    with torch.no_grad():
        run.encode(batch, slice(None))
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.parametrize("how", [{}, {"micro_batch": 1}, {"precision": "bf16"}])
def test_moments_are_sums_over_tokens(
    world: TrainingWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    step = request(world, "gnsp", 0, tmp_path, buffered=False)
    step = replace(step, settings=replace(step.settings, **how))

    def both(run: TrainRun, batch: Batch) -> tuple[Weights, Mapping[str, Tensor]]:
        naive = _token_by_token(run, batch)
        return input_moments(run, batch, [*naive]), naive

    ours, naive = _seen(step, monkeypatch, both)
    assert len(ours) == 4
    for name, moment in ours.items():
        torch.testing.assert_close(moment, naive[name].float())  # also of inputs in halves
        assert moment.dtype == torch.float32


def test_all_layers_of_a_fusion_model_are_measured(world: TrainingWorld, tmp_path: Path) -> None:
    step = request(with_fusion_model(world), "gnsp", 0, tmp_path, buffered=False)
    moments = load_file(train_step(step) / "method" / "gnsp" / "moments.safetensors")
    parts = {name.split(".")[1] for name in moments}
    assert parts == {"blocks", "text_layers", "fusion_layers"}
    assert all(moment.norm() > 0 for moment in moments.values())


NAMES = {
    "visual.transformer.resblocks.3.mlp.c_fc.weight": "image",  # open_clip's own
    "transformer.resblocks.3.mlp.c_proj.weight": "text",
    "text.transformer.resblocks.3.mlp.c_proj.weight": "text",
    "visual.trunk.blocks.0.mlp.fc1.weight": "image",  # timm's ViT
    "visual.trunk.blocks.0.mlp.fc1_g.weight": "image",  # EVA02
    "visual.trunk.stages.2.blocks.0.mlp.fc2.weight": "image",  # ConvNeXt
    "text.transformer.encoder.layer.0.intermediate.dense.weight": "text",  # RoBERTa
    "text.transformer.encoder.layer.0.output.dense.weight": "text",
    "visual.attnpool.c_proj.weight": "",  # read by attention, never called
    "text.transformer.encoder.layer.0.attention.output.dense.weight": "",
    "visual.transformer.resblocks.3.attn.in_proj_weight": "",
    "visual.proj": "",
    "logit_scale": "",
}


@pytest.mark.parametrize("tower", ["image", "text", "both"])
def test_which_layers_count(tower: str) -> None:
    run: Run = FakeRun(weights={name: torch.zeros(2, 2) for name in NAMES})
    wanted = [name for name, side in NAMES.items() if side and tower in {side, "both"}]
    assert sorted(Gnsp(towers=tower)._layers(run)) == sorted(wanted)


def test_a_tower_without_such_layers_is_refused_and_the_advice_is_followed(
    world: TrainingWorld, tmp_path: Path
) -> None:
    step = request(world, "gnsp", 0, tmp_path, buffered=False)
    step = with_settings(step, **resnet(tmp_path))
    with pytest.raises(
        UsageError, match=r"image encoder .* none; give --set gnsp\.towers=text, or"
    ):
        train_step(step)
    step = replace(step, methods=compose("gnsp", ["gnsp.towers=text"]))
    train_step(step)
    later = request(world, "gnsp", 1, tmp_path, buffered=False)
    later = with_settings(replace(later, methods=step.methods), image_size=None)
    old, new = (load_file(train_step(one) / WEIGHTS) for one in (step, later))
    moved = {name for name in old if not torch.equal(old[name], new[name])}
    assert {name for name in moved if "running" not in name and "num_batches" not in name} == {
        f"transformer.resblocks.0.mlp.{layer}.weight" for layer in ("c_fc", "c_proj")
    }


def test_what_other_methods_add_to_gradients_is_projected_too(
    world: TrainingWorld, first: Path, tmp_path: Path
) -> None:
    train_step(request(world, "ewc+gnsp", 0, tmp_path, buffered=False))
    how = {"optimizer": "sgd", "lr": 0.5, "weight_decay": 0.0}
    second = _second(world, tmp_path / "00", tmp_path / "01", names="ewc+gnsp", **how)
    assert journal(second)[1]["ewc/penalty"] > 0
    assert max(_outside(tmp_path / "00", second).values()) < 1e-6

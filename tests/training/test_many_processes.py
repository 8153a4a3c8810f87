"""Every method trains in two processes as in one, with the whole loss in each or a share of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.marks import mostly_slow
from support.training import in_double_precision, journal, train_together

from vlcpctl.methods import TABLE
from vlcpctl.models.dual_encoder import WEIGHTS_FILE as WEIGHTS
from vlcpctl.models.imports import preload
from vlcpctl.testing.battery import TrainingWorld, make_world, request, with_fusion_model
from vlcpctl.testing.tiny_stream import repeating_pair
from vlcpctl.training.methods import compose
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.train_step import train_step

pytestmark = pytest.mark.dist

SET = {
    "incclip": ["incclip.count=6", "incclip.iterations=2"],
    "ctp-process": ["ctp.positives=process"],
    "co2l-cross": ["co2l.relations=cross", "co2l.average=anchors"],
    "lwf-channels": ["lwf.target=channels"],
    "seqf-lora": [],
    "ewc-lora": [],
    "snd-batch": ["snd.select=batch"],
    "zscl-transpose": ["zscl.text=transpose", "zscl.every=1"],
    "modx-mean": ["modx.reduction=mean", "modx.directions=i2t"],
    "gnsp-update": ["gnsp.variant=update", "gnsp.others=train"],
}
TERMS_OF_ONE_PROCESS = {"ctp-process"}  # "process" makes the loss depend on their number
SIGMOID = (
    "ctp",
    "bct",
    "incclip",
    "co2l",
    "derpp",
    "ewc",
    "gift",
    "ctp-process",
)  # a bias, a weight of the loss
FUSION = ("ctp", "lucir", "afec", "incclip", "mas", "lwf")  # the others' terms are as in a dual one


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> TrainingWorld:
    preload()
    # Pairs in groups: preset tiny contrasts distinct pairs only.
    return make_world(tmp_path_factory.mktemp("world"), pair=repeating_pair)


@pytest.fixture(autouse=True)
def _doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    in_double_precision(monkeypatch)  # rounding grows with the steps in float32


def _step(world: TrainingWorld, case: str, number: int, root: Path) -> TrainRequest:
    name = case.split("-", maxsplit=1)[0]
    step = request(world, name, number, root, buffered=name not in ("lwf", "modx", "bct"))
    settings = replace(step.settings, micro_batch=1, optimizer="sgd", lr=0.02, steps=2)
    if case.endswith("-lora") and step.previous:
        settings = replace(settings, lora="2")
    # A learned temperature gets its gradient from the loss directly, not through the encoders.
    if not step.previous:
        settings = replace(settings, temperature="learn:0.1")
    return replace(step, settings=settings, methods=compose(name, SET.get(case, [])))


def _second_step(world: TrainingWorld, case: str, root: Path) -> TrainRequest:
    step = _step(world, case, 0, root)
    if step.methods[0].from_unseen:
        return step
    train_step(step)
    return _step(world, case, 1, root)


def _rows(checkpoint: Path) -> list[dict[str, float]]:
    rows = journal(checkpoint)
    return [{name: value for name, value in row.items() if name != "phase"} for row in rows]


def _expect_equal(step: TrainRequest, names: Sequence[str]) -> None:
    root = step.out.parent
    whole, *others = (_rows(root / name) for name in names)
    for rows in others:
        assert len(rows) == len(whole)
        for found, wanted in zip(rows, whole, strict=True):
            assert found == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    files = sorted(path.relative_to(root / names[0]) for path in root.glob(f"{names[0]}/*.s*"))
    for name in names[1:]:
        for file in files:
            one, two = load_file(root / names[0] / file), load_file(root / name / file)
            for key, tensor in one.items():
                torch.testing.assert_close(two[key], tensor, rtol=1e-7, atol=1e-9)


# A queue, and generated texts with a buffer; importances: see test_launch.
USUAL = (("dual", "ctp"), ("dual", "incclip"), ("sigmoid", "ctp"), ("fusion", "ctp"))


CASES = [
    *(("dual", case) for case in sorted({*TABLE, *SET})),
    *(("sigmoid", case) for case in SIGMOID),
    *(("fusion", case) for case in FUSION),
]


@pytest.mark.parametrize("of", mostly_slow(CASES, kept=USUAL), ids="-".join)
def test_losses_and_weights_do_not_depend_on_the_number_of_processes(
    world: TrainingWorld, tmp_path: Path, of: tuple[str, str]
) -> None:
    kind, case = of
    kinds = {"fusion": with_fusion_model(world), "dual": world}
    kinds["sigmoid"] = replace(world, flags={**world.flags, "loss": "sigmoid"})
    step = _second_step(kinds[kind], case, tmp_path)
    names = ["local"] if kind == "fusion" else ["two", "local"]
    if case not in TERMS_OF_ONE_PROCESS:
        names.insert(0, "one")
        train_step(replace(step, out=tmp_path / "one"))
    for name in {"two", "local"} & {*names}:
        train_together(replace(step, out=tmp_path / name, local_loss=name == "local"))
    _expect_equal(step, names)
    if kind == "sigmoid":
        paths = (step.previous or Path(), tmp_path / "two")
        before, after = (load_file(path / WEIGHTS)["logit_bias"] for path in paths)
        assert before != after

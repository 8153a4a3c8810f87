"""Which methods protect the model that a first task starts from, and what the plan says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import save_file
from support.training import journal, with_settings

from vlcpctl.checkpoints import importing
from vlcpctl.models import dual_encoder
from vlcpctl.testing.battery import TrainingWorld, request
from vlcpctl.training.plan import lines, make_plan
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.train_step import train_step

TEACHERS = ("lwf", "modx", "ctp", "geodl", "bct")
PENALTIES = ("ewc", "si", "mas")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "weights.safetensors"
    save_file(dict(dual_encoder.build("micro", seed=7).module.state_dict()), path)
    return path


@pytest.fixture(scope="module")
def start(weights: Path) -> Path:
    """A model of another program, imported."""
    request = importing.ImportRequest(source=weights, out=weights.parent / "start", model="micro")
    return importing.import_checkpoint(request)


def from_start(world: TrainingWorld, names: str, start: Path, root: Path) -> TrainRequest:
    step = request(world, names, 0, root, buffered=False)
    return replace(step, previous=start, origins={})


def pretrained(world: TrainingWorld, names: str, weights: Path, root: Path) -> TrainRequest:
    step = request(world, names, 0, root, buffered=False)
    return with_settings(step, pretrained=str(weights), image_size=None)


def notes(step: TrainRequest) -> list[str]:
    """The notes of a plan, but for the one about the activation of weights from a file."""
    found = [line for line in lines(make_plan(step)) if line.startswith("  note: ")]
    return [line for line in found if "activation" not in line]


@pytest.fixture(scope="module")
def plain(world: TrainingWorld, start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_step(from_start(world, "seqf", start, tmp_path_factory.mktemp("plain")))


@pytest.mark.parametrize("name", TEACHERS)
def test_an_imported_model_is_the_teacher_of_the_first_task(
    world: TrainingWorld, start: Path, plain: Path, tmp_path: Path, name: str
) -> None:
    step = from_start(world, name, start, tmp_path)
    assert notes(step) == []
    train_step(step)
    own = journal(step.out)
    terms = own[0].keys() - journal(plain)[0].keys() - {"ctp/momentum"}
    assert terms
    assert all(row[term] > 0 for row in own[1:2] for term in terms)
    file = "open_clip_model.safetensors"
    assert (step.out / file).read_bytes() != (plain / file).read_bytes()


@pytest.mark.parametrize("name", TEACHERS)
def test_bare_pretrained_weights_are_protected_by_nothing_and_the_plan_says_so(
    world: TrainingWorld, weights: Path, tmp_path: Path, name: str
) -> None:
    step = pretrained(world, name, weights, tmp_path)
    (note,) = notes(step)
    assert f"protected by {name};" in note
    assert "import-checkpoint" in note
    train_step(step)
    assert journal(step.out)[0].keys() & {f"{name}/distillation", f"{name}/alignment"} == set()
    assert notes(pretrained(world, "seqf", weights, tmp_path)) == []
    assert notes(request(world, name, 0, tmp_path, buffered=False)) == []


@pytest.mark.parametrize("name", PENALTIES)
def test_penalties_have_measured_nothing_of_an_imported_model(
    world: TrainingWorld, start: Path, tmp_path: Path, name: str
) -> None:
    step = from_start(world, name, start, tmp_path)
    (note,) = notes(step)
    assert f"{name} has measured no importance of the weights yet" in note
    train_step(step)
    assert all(row.get(f"{name}/penalty", 0) == 0 for row in journal(step.out))
    later = replace(request(world, name, 1, tmp_path, buffered=False), previous=step.out)
    assert notes(later) == []
    train_step(later)
    assert any(row.get(f"{name}/penalty", 0) > 0 for row in journal(later.out))

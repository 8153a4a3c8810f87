"""--reference: what it needs, what it is checked for, and that the run is another one with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.training import with_settings

from vlcpctl.core.batch import Batch, Features
from vlcpctl.core.errors import UsageError
from vlcpctl.core.method import Run
from vlcpctl.data.loading.groups import pair_groups
from vlcpctl.data.tasks.task import open_task
from vlcpctl.files.manifest import read_manifest
from vlcpctl.methods.gift import Gift
from vlcpctl.testing.battery import TrainingWorld, checkpoint_bytes, request
from vlcpctl.testing.tiny_stream import make_task, repeating_pair
from vlcpctl.training.methods import compose
from vlcpctl.training.plan import make_plan
from vlcpctl.training.request import TrainRequest, opened, semantic
from vlcpctl.training.train_step import train_step


@pytest.fixture(scope="module")
def root(world: TrainingWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the first two tasks' checkpoints, 00 and 01."""
    made = tmp_path_factory.mktemp("chain")
    for number in range(2):
        train_step(request(world, "seqf", number, made, buffered=False))
    return made


def _third(world: TrainingWorld, root: Path, names: str, out: Path) -> TrainRequest:
    return replace(request(world, names, 2, root, buffered=False), out=out)


def test_pairs_that_are_evaluated_are_named(
    world: TrainingWorld, root: Path, tmp_path: Path
) -> None:
    task = make_task(tmp_path / "task", splits={"train": 8, "test": 4}, step=2)
    step = replace(_third(world, root, "zscl", tmp_path / "02"), tasks=(task,))
    apart, tested = (make_task(tmp_path / f"from-{first}", 4, first=first) for first in (100, 8))

    def leaks(reference: Path) -> list[str]:
        plan = make_plan(replace(step, reference=reference))
        return [one for one in plan.warnings if "--reference" in one]

    assert leaks(apart) == []
    (warning,) = leaks(tested)
    assert warning.startswith("4 of the pairs of --reference are also in split 'test' of task")


def _facts(step: TrainRequest) -> dict[str, Any]:
    return semantic(step, opened(step))


def test_only_a_run_that_has_one_records_it(
    world: TrainingWorld, root: Path, tmp_path: Path
) -> None:
    assert "reference" not in _facts(_third(world, root, "seqf", tmp_path / "02"))
    step = _third(world, root, "zscl", tmp_path / "02")
    one, other = (_facts(replace(step, reference=task)) for task in world.tasks[:2])
    assert one["reference"] == read_manifest(world.tasks[0], "task")["content"]
    assert one != other


def test_it_is_as_large_as_the_batch_or_whole(
    world: TrainingWorld, root: Path, tmp_path: Path
) -> None:
    step = _third(world, root, "zscl", tmp_path / "02")
    few = make_task(tmp_path / "few", 3)
    plans = [make_plan(replace(step, reference=path)) for path in (world.tasks[0], few)]
    assert [plan.reference.size for plan in plans if plan.reference] == [4, 3]


def test_its_pairs_are_in_groups_as_those_to_learn_are(
    world: TrainingWorld, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task(tmp_path / "alike", 10, pair=repeating_pair)
    split = open_task(task).split("train")
    (groups_N,), keys = pair_groups([split]), list(split.keys)
    assert len({*groups_N.tolist()}) < len(keys)
    seen: list[Batch] = []
    loss = Gift.loss

    def look(method: Gift, run: Run, batch: Batch, out: Features) -> Any:
        assert batch.reference is not None
        seen.append(batch.reference)
        return loss(method, run, batch, out)

    monkeypatch.setattr(Gift, "loss", look)
    for negatives in ("distinct", "all"):
        step = _third(world, root, "gift", tmp_path / negatives)
        train_step(with_settings(replace(step, reference=task), negatives=negatives, steps=1))
    distinct, plain = seen
    assert distinct.groups is not None
    assert distinct.groups.tolist() == [groups_N[keys.index(key)] for key in distinct.keys]
    assert plain.groups is None


@pytest.mark.parametrize("names", ["ctp+zscl", "er+snd+zscl", "lwf+snd", "gift+lwf+snd"])
def test_every_term_is_there_and_moves_the_weights(
    world: TrainingWorld, root: Path, tmp_path: Path, names: str
) -> None:
    step = _third(world, root, names, tmp_path / "02")
    buffer = world.buffers["reservoir"][1] if "er" in names.split("+") else None
    step = replace(step, buffer=buffer)
    train_step(step)
    journal = (step.out / "metrics.jsonl").read_text()
    named = {
        "zscl": "zscl/image",
        "snd": "snd/previous",
        "gift": "gift/consolidation",
        "ctp": "ctp/momentum",
    }
    assert all(named[one] in journal for one in names.split("+") if one in named)


def test_the_teacher_is_the_model_of_the_reference(
    world: TrainingWorld, root: Path, tmp_path: Path
) -> None:
    made = []
    for name, teacher in (("own", None), ("start", root / "00")):
        step = _third(world, root, "zscl", tmp_path / name / "02")
        train_step(replace(step, teacher=teacher, methods=compose("zscl", ["zscl.every=1"])))
        made.append(checkpoint_bytes(tmp_path / name))
    assert made[0] != made[1]


def test_two_averages_are_refused_unless_one_is_off() -> None:
    with pytest.raises(UsageError, match="ema and zscl both store other weights"):
        compose("ema+zscl")
    assert len(compose("ema+zscl", ["zscl.every=0"])) == 2

"""Runs with --negatives: the groups reach every contrastive loss, the queue and the identity."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.marks import mostly_slow
from support.naive_negatives import both_directions, one_direction, united
from support.training import column, in_double_precision, with_settings
from torch import Tensor

from vlcpctl.core.batch import Batch, Features, Terms
from vlcpctl.core.method import Run
from vlcpctl.data.tasks.task import open_task
from vlcpctl.methods.ctp import Ctp
from vlcpctl.testing.battery import TrainingWorld, make_world, request
from vlcpctl.testing.tiny_stream import make_task, repeating_pair
from vlcpctl.training.history import match_warnings, true_matches
from vlcpctl.training.methods import compose
from vlcpctl.training.plan import make_plan
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.step import OptimizerStep
from vlcpctl.training.train_step import train_step

QUEUE = 10


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> TrainingWorld:
    """Pairs of which several share captions, in each task and with the buffers."""
    return make_world(tmp_path_factory.mktemp("world"), pair=repeating_pair)


@pytest.fixture
def _doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    in_double_precision(monkeypatch)


def _with(step: TrainRequest, names: str, *values: str, **changes: Any) -> TrainRequest:
    return replace(with_settings(step, **changes), methods=compose(names, list(values)))


def _groups_of(step: TrainRequest) -> dict[str, int]:
    """The groups by key, found one by one."""
    paths = [*step.tasks, *([step.buffer] if step.buffer else [])]
    splits = [open_task(path).split("train") for path in paths]
    rows = [(split, row) for split in splits for row in range(len(split))]
    digests = {split.path: split.column("sha256") for split in splits}
    sharing: list[set[Any]] = [
        {digests[split.path][row], *split.captions(row)} for split, row in rows
    ]
    keys = [split.keys[row] for split, row in rows]
    return dict(zip(keys, united(sharing), strict=True))


@pytest.mark.usefixtures("_doubled")
def test_batch_queue_and_replay_leave_out_matches(
    world: TrainingWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every term of every step equals a double loop; the queue starts empty in each task."""
    groups: dict[str, int] = {}
    queue: deque[tuple[Tensor, Tensor, str]] = deque(maxlen=QUEUE)
    checked: list[str] = []
    usual_loss, usual = OptimizerStep._loss, Ctp.loss

    def base(self: OptimizerStep, batch: Batch, sides: list[Tensor], reference: Any) -> Any:
        found = usual_loss(self, batch, sides, reference)
        unit = [torch.nn.functional.normalize(side.detach(), dim=1) for side in sides]
        known = [groups[key] for key in batch.keys]
        scale = self.run.scale(self.run.weights)
        wanted = torch.stack(both_directions(*unit, scale, known)).mean()
        assert found[1]["contrastive"].item() == pytest.approx(wanted.item(), rel=1e-9)
        checked.append("replay" if bool(batch.replayed.any()) else "new")
        return found

    def momentum(self: Ctp, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        terms, aux = usual(self, run, batch, out)
        slow, known = aux["slow"], [groups[key] for key in batch.keys]
        stored = [list(side) for side in zip(*queue, strict=True)] or [[], [], []]
        known_all = [*known, *(groups.get(key) for key in stored[2])]
        sides = []
        for queries, batch_side, queued in (
            (out.image, slow.text, stored[1]),
            (out.text, slow.image, stored[0]),
        ):
            candidates = torch.cat([batch_side, *(one[None] for one in queued)])
            sides.append(torch.stack(one_direction(queries, candidates, out.scale, known_all)))
        wanted = torch.stack(sides).mean()
        assert terms["momentum"].item() == pytest.approx(wanted.item(), rel=1e-9)
        queue.extend(zip(slow.image, slow.text, batch.keys, strict=True))
        return terms, aux

    monkeypatch.setattr(OptimizerStep, "_loss", base)
    monkeypatch.setattr(Ctp, "loss", momentum)
    for number in (0, 1):
        step = request(world, "ctp", number, tmp_path, buffered=True)
        groups |= {key: group + 100 * number for key, group in _groups_of(step).items()}
        train_step(_with(step, "ctp", f"ctp.queue={QUEUE}", steps=4))
        queue.clear()
    assert checked.count("new") >= 4
    assert "replay" in checked
    assert len(set(groups.values())) < len(groups) - 4


@pytest.mark.usefixtures("_doubled")
@pytest.mark.parametrize("names", mostly_slow(["ctp", "derpp", "co2l"], kept=["ctp", "derpp"]))
def test_micro_batches_change_nothing(world: TrainingWorld, tmp_path: Path, names: str) -> None:
    first = request(world, names, 0, tmp_path, buffered=True)
    train_step(_with(first, names, steps=2))
    second = _with(request(world, names, 1, tmp_path, buffered=True), names, steps=3, batch_size=16)
    values = {}
    for negatives, micro in (("distinct", None), ("distinct", 4), ("all", None)):
        out = tmp_path / f"{negatives}{micro}"
        train_step(replace(_with(second, names, negatives=negatives, micro_batch=micro), out=out))
        values[negatives, micro] = np.array(column(out, "loss"))
    np.testing.assert_allclose(values["distinct", 4], values["distinct", None], rtol=1e-9)
    assert values["distinct", None][0] < values["all", None][0] - 1e-3


def test_validation_uses_the_negatives_of_training(world: TrainingWorld, tmp_path: Path) -> None:
    task = make_task(tmp_path / "task", splits={"train": 8, "val": 8}, pair=repeating_pair)
    found = {}
    for negatives in ("all", "distinct"):
        step = request(world, "seqf", 0, tmp_path / negatives, buffered=False)
        step = _with(step, "seqf", negatives=negatives, lr=1e-30, steps=2, batch_size=8)
        train_step(replace(step, tasks=(task,)))
        found[negatives] = column(step.out, "val_loss")
    assert found["distinct"][0] < found["all"][0] - 0.01


def test_the_plan_warns_of_matches_among_the_negatives(
    world: TrainingWorld, tmp_path: Path
) -> None:
    step = request(world, "ctp", 0, tmp_path, buffered=False)
    plans = (
        make_plan(_with(step, "ctp", "ctp.queue=1024", negatives=negatives, steps=400))
        for negatives in ("all", "distinct")
    )
    (warning,), none = (plan.all_warnings() for plan in plans)
    assert "1027 negatives" in warning
    assert "about 156.7 are true matches" in warning
    assert none == ()


@pytest.mark.parametrize(
    ("batch", "sizes", "warns"),
    [
        (243, np.ones(243, np.int64), False),  # distinct pairs
        (300, np.ones(243, np.int64), False),
        (243, np.r_[np.ones(239, np.int64), 4], False),  # 0.04 matches
        (243, np.r_[np.ones(233, np.int64), [5, 5]], True),  # 0.2
    ],
)
def test_true_matches_that_are_printed_as_none_are_no_warning(
    batch: int, sizes: np.ndarray[Any, Any], *, warns: bool
) -> None:
    assert bool([*match_warnings(batch, 0, sizes)]) == warns


def test_the_number_of_matches_is_what_a_queue_holds_on_average() -> None:
    sizes = np.array([1, 2, 3])
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1, 2], sizes)
    counts = []
    for _ in range(4000):
        batch = rng.permutation(6)[:4]
        queue = np.concatenate([rng.permutation(6)[:4] for _ in range(2)])
        same = (group[batch[0]] == group[batch[1:]]).sum() + (group[batch[0]] == group[queue]).sum()
        counts.append(same)
    assert true_matches(4, 8, sizes) == pytest.approx(np.mean(counts), rel=0.03)

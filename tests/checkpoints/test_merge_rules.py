"""Rules that merge weights, against plain loops over single numbers, and their laws."""

from __future__ import annotations

import math
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from vlcpctl.checkpoints.checkpoint import ParentCheckpoint
from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.merge_rules import Average, Ema, MergeRule, ModelStock, Ties
from vlcpctl.checkpoints.merging import MergeInputs, manifest_of
from vlcpctl.core.batch import Weights

SHAPES: dict[str, tuple[int, ...]] = {"a": (7, 5), "b": (11,), "still": (3,), "logit_scale": ()}
EVERY_RULE: tuple[MergeRule, ...] = (Average(), Ema(decay=0.3), Ties(keep=1.0), ModelStock())


def start() -> Weights:
    return _drawn(0)


def models(count: int, apart: float = 0.3) -> list[Weights]:
    """Models that have changed in a common direction and in one of their own, but for `still`."""
    base, common = start(), _drawn(1)
    found = []
    for number in range(count):
        own = _drawn(2 + number)
        found.append({n: base[n] + 0.2 * common[n] + apart * own[n] for n in SHAPES})
        found[-1]["still"] = base["still"].clone()
    return found


def _drawn(seed: int) -> Weights:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def numbers(weights: Weights) -> dict[str, list[float]]:
    return {name: tensor.flatten().double().tolist() for name, tensor in weights.items()}


def check_equals(found: Weights, expected: dict[str, list[float]]) -> None:
    for name, tensor in found.items():
        assert (tensor.dtype, tuple(tensor.shape)) == (torch.float32, SHAPES[name])
        np.testing.assert_allclose(tensor.flatten(), expected[name], rtol=1e-6, atol=1e-7)


def check_same_bytes(found: Weights, expected: Weights) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name


def naive_ties(
    models: list[dict[str, list[float]]], base: dict[str, list[float]], keep: float, scale: float
) -> dict[str, list[float]]:
    """Section 3 of the paper, entry by entry over one flat list."""
    places = [(name, i) for name in base if name != "logit_scale" for i in range(len(base[name]))]
    rows = []
    for model in models:
        row = [model[name][i] - base[name][i] for name, i in places]
        kept = math.floor(len(row) * keep)
        # The authors' code keeps one more than that share.
        least = sorted(map(abs, row), reverse=True)[min(kept, len(row) - 1)]
        rows.append([change if abs(change) >= least else 0.0 for change in row])
    merged = {name: list(values) for name, values in base.items()}
    for place, (name, i) in enumerate(places):
        column = [row[place] for row in rows]
        elected = 1 if sum(column) > 0 else -1
        agreeing = [change for change in column if change * elected > 0]
        if agreeing:
            merged[name][i] += scale * sum(agreeing) / len(agreeing)
    changes = [model["logit_scale"][0] - base["logit_scale"][0] for model in models]
    merged["logit_scale"][0] += scale * sum(changes) / len(changes)
    return merged


def naive_stock(
    models: list[dict[str, list[float]]], base: dict[str, list[float]]
) -> dict[str, list[float]]:
    """The mean of the angles' cosines over pairs, and the ratio of equation 5, in numpy."""
    merged = {}
    for name, values in base.items():
        origin = np.array(values)
        changes = [np.array(model[name]) - origin for model in models]
        cosines = [
            float(np.dot(one, other) / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-300))
            for place, one in enumerate(changes)
            for other in changes[:place]
        ]
        cosine = max(0.0, float(np.mean(cosines)))
        ratio = len(models) * cosine / (1 + (len(models) - 1) * cosine)
        if name == "logit_scale":
            ratio = 1.0
        mean = np.mean([model[name] for model in models], axis=0)
        merged[name] = list(ratio * mean + (1 - ratio) * origin)
    return merged


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("keep", [0.2, 0.55, 0.99, 1.0])
@pytest.mark.parametrize("scale", [1.0, 0.4])
def test_ties_is_trim_elect_and_mean(count: int, keep: float, scale: float) -> None:
    given = models(count)
    found = Ties(keep=keep, scale=scale).merged(given, start())
    check_equals(found, naive_ties([*map(numbers, given)], numbers(start()), keep, scale))


@pytest.mark.parametrize("apart", [0.05, 0.3, 3.0])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_model_stock_goes_as_far_as_the_cosine_says(count: int, apart: float) -> None:
    given = models(count, apart)
    check_equals(
        ModelStock().merged(given, start()), naive_stock([*map(numbers, given)], numbers(start()))
    )


def test_averages_are_weighted_sums() -> None:
    given, expected = models(3), {}
    for name in SHAPES:
        first, second, third = (numbers(model)[name] for model in given)
        triples = list(zip(first, second, third, strict=True))
        expected[name] = [(2 * a + b + 5 * c) / 8 for a, b, c in triples]
    check_equals(Average(weights=(2.0, 1.0, 5.0)).merged(given, {}), expected)
    for name in SHAPES:
        first, second, third = (numbers(model)[name] for model in given)
        triples = list(zip(first, second, third, strict=True))
        expected[name] = [0.7 * (0.7 * a + 0.3 * b) + 0.3 * c for a, b, c in triples]
    check_equals(Ema(decay=0.7).merged(given, {}), expected)


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: rule.name)
@pytest.mark.parametrize("count", [2, 3, 7])
def test_equal_models_merge_to_the_same_bytes(rule: MergeRule, count: int) -> None:
    (one,) = models(1)
    check_same_bytes(rule.merged([one] * count, start()), one)


def test_equal_weights_and_the_ends_of_a_moving_average_are_what_they_should_be() -> None:
    given = models(4)
    check_same_bytes(Average(weights=(3.0,) * 4).merged(given, {}), Average().merged(given, {}))
    check_same_bytes(Average(weights=(0.0, 0.0, 2.0, 0.0)).merged(given, {}), given[2])
    check_same_bytes(Ema(decay=1.0).merged(given, {}), given[0])
    check_same_bytes(Ema(decay=0.0).merged(given, {}), given[-1])


@pytest.mark.parametrize("rule", [Average(), Ties(), Ties(keep=1.0), ModelStock()], ids=repr)
def test_the_order_of_models_does_not_matter(rule: MergeRule) -> None:
    given = models(4)
    expected = rule.merged(given, start())
    for order in permutations(given):
        check_same_bytes(rule.merged(list(order), start()), expected)


def test_the_order_of_a_moving_average_matters() -> None:
    given = models(2)
    found, other = (Ema(decay=0.3).merged(each, {}) for each in (given, given[::-1]))
    assert not torch.equal(found["a"], other["a"])


@pytest.mark.parametrize("scale", [0.0, 0.5, 1.0])
def test_ties_of_one_whole_model_is_the_base_and_its_scaled_change(scale: float) -> None:
    (one,), base = models(1), start()
    found = Ties(keep=1.0, scale=scale).merged([one], base)
    expected = {n: (base[n].double() * (1 - scale) + one[n].double() * scale) for n in SHAPES}
    check_same_bytes(found, {n: tensor.float() for n, tensor in expected.items()})


@pytest.mark.parametrize("rule", [Ties(scale=0.0), ModelStock()], ids=repr)
def test_models_that_have_not_changed_leave_the_base(rule: MergeRule) -> None:
    check_same_bytes(rule.merged([start(), start()], start()), start())


def test_changes_that_cancel_have_the_sign_of_most_of_the_others() -> None:
    """As in the authors' code: where a sum is zero, the sign is that of the sum of all signs."""
    base = {"w": torch.zeros(4)}
    up, down = torch.tensor([1.0, 2.0, 2.0, -3.0]), torch.tensor([-1.0, 1.0, 1.0, -1.0])
    (found,) = Ties(keep=1.0).merged([{"w": up}, {"w": down}], base).values()
    assert found.tolist() == [1.0, 1.5, 1.5, -2.0]
    (found,) = Ties(keep=1.0).merged([{"w": -up}, {"w": -down}], base).values()
    assert found.tolist() == [-1.0, -1.5, -1.5, 2.0]
    (found,) = (
        Ties(keep=1.0).merged([{"w": up[:1]}, {"w": down[:1]}], {"w": base["w"][:1]}).values()
    )
    assert found.tolist() == [0.0]  # no sign at all


def test_ties_trims_over_all_tensors_and_not_the_temperature() -> None:
    base = {"small": torch.zeros(4), "large": torch.zeros(4), "logit_scale": torch.tensor(2.0)}
    model = {
        "small": torch.tensor([0.01, 0.02, 0.03, 0.04]),
        "large": torch.tensor([1.0, 2.0, 3.0, 4.0]),
        "logit_scale": torch.tensor(2.001),
    }
    found = Ties(keep=0.25).merged([model], base)
    assert found["small"].tolist() == [0.0] * 4
    assert found["large"].tolist() == [0.0, 2.0, 3.0, 4.0]
    assert torch.equal(found["logit_scale"], model["logit_scale"])


def test_model_stock_leaves_the_base_where_changes_point_apart_and_averages_the_temperature() -> (
    None
):
    base = {"w": torch.ones(2), "logit_scale": torch.tensor(1.0)}

    def model(change: Tensor, scale: float) -> Weights:
        return {"w": base["w"] + change, "logit_scale": torch.tensor(scale)}

    given = [model(torch.tensor([1.0, 0.5]), 2.0), model(torch.tensor([-1.0, 0.5]), 0.5)]
    found = ModelStock().merged(given, base)
    assert torch.equal(found["w"], base["w"])
    assert float(found["logit_scale"]) == 1.25


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: rule.name)
def test_a_rule_changes_none_of_the_models(rule: MergeRule) -> None:
    given, base = models(3), start()
    rule.merged(given, base)
    for model, expected in zip([*given, base], [*models(3), start()], strict=True):
        check_same_bytes(model, expected)


def _parent(task: str) -> ParentCheckpoint:
    made = CheckpointManifest(
        run="r",
        method="seqf",
        identity={},
        content=f"model of {task}",
        tasks=[task],
        task_names=["week"],
        task_steps=[0],
        step=0,
    )
    return ParentCheckpoint(Path(task), made)


def test_tasks_learned_side_by_side_count_one_after_the_other() -> None:
    """Each is the first of a stream of its own; one that several have learned counts once."""
    models = tuple(_parent(task) for task in ("one", "other", "one", "third"))
    found = manifest_of(MergeInputs(models), Average(), "r")
    assert list(found.tasks) == ["one", "other", "third"]
    assert (list(found.task_steps), found.step) == ([0, 1, 2], 2)

"""recipes/weekly_decisions.py: its samples, what its rules find, and the page of its tables."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.doc_pages import ROOT
from support.recipe_lines import script

from vlcpctl.metrics.chance import WEEKS_A_YEAR, critical_value

simulation = script("weekly_decisions")

PAGE = ROOT / "docs" / "results" / "decisions.md"
ONCE, BOTH, MEAN = simulation.RULES
RUN = simulation.Simulation(years=60, seed=1)


def false(number: int, size: int, rule: Any, noise: float = 0.3) -> float:
    """False rejections a year."""
    years = RUN.of(simulation.harmless("ctp", noise), number, size, rule)
    return float(years.rejected.mean())


def found(world: Any, number: int, size: int, rule: Any) -> float:
    """The share of years in which the harmful week itself is rejected."""
    return float(np.mean(RUN.of(world, number, size, rule).found == 0))


POPULATIONS = {**simulation.GUARDS, "week": simulation.WEEK}


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("points", [-5.0, 0.0, 3.0, 20.0])
def test_a_population_loses_the_points_that_a_week_loses(points: float, name: str) -> None:
    world = simulation.World(POPULATIONS[name], 0.0)
    tests = simulation.Tests(world, (1, 1, 100_000), np.random.default_rng(0))
    new = tests.train(np.array([points]), 1)
    drops = tests.drops(new, np.ones((1, 1), dtype=bool))
    assert drops.points_YBG[0, :, 0] == pytest.approx(points, abs=0.3)
    sample = (tests.base_YGN - new.score_YGN).ravel().astype(float)
    assert drops.error_YBG[0, 0, 0] == pytest.approx(sample.std() / 100_000**0.5, rel=1e-3)


def test_what_weeks_did_to_samples_is_read_from_ranks(tmp_path: Path) -> None:
    """Two samples: the first has ranks 1, 3, 1 in one direction, the second never moves."""
    moved = {None: 1, 0: 3, 1: 1}
    rows = [
        {"run": "start" if step is None else "er", "seed": 0, "step": step, "task": "00-pairs"}
        | {"gallery": "own", "query": query, "direction": side}
        | {"rank": rank if (query, side) == ("a", "i2t") else 1}
        for step, rank in moved.items()
        for query in "ab"
        for side in ("i2t", "t2i")
    ]
    rows.append(rows[0] | {"task": "another", "rank": 99})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "ranks.parquet")
    line = simulation.measured(tmp_path / "ranks.parquet", "00-pairs")[-1]
    # A week costs the first sample 100/6 points, or gives them back: the sd of the two is 100/12.
    assert line == "| `er` | 100.0 | 8.3 | 0.0 | 50 | -1.00 |"


def test_a_loss_above_the_bound_rejects_if_it_is_above_chance() -> None:
    """At K = 2 and se 1, chance reaches 2.34."""
    z = critical_value(2, 1 / WEEKS_A_YEAR)
    points = np.array([1.9, 2.2, 2.4, 5.0])[:, None, None]
    rejected, clear = simulation.judge([simulation.Losses(points, np.ones_like(points), 2.0, z)])
    assert rejected.tolist() == [False, False, True, True]
    assert clear.tolist() == [False, False, False, True]


def test_the_mean_of_two_trainings_is_judged_by_the_mean_of_each_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first model loses 4 points with certainty enough to fail, the second none or all."""
    size = 1000
    world = simulation.harmless("ctp", 0.0)
    for second, fails in ((-4.0, False), (1.0, True)):
        tests = simulation.Tests(world, (1, 1, size), np.random.default_rng(0))
        losses = iter((4.0, second))
        train = tests.train
        monkeypatch.setattr(
            tests,
            "train",
            lambda _, count, losses=losses, train=train: train([next(losses)], count),
        )
        monkeypatch.setattr(simulation, "margin_of", lambda error: 100.0 * error)  # never clear
        _, rejected, again = simulation._train(tests, np.zeros(1), np.ones((1, 1), bool), MEAN)
        assert (bool(again[0]), bool(rejected[0])) == (True, fails)


def test_the_mean_is_between_one_training_and_both() -> None:
    """In false rejections of harmless weeks, and in losses of 2 points that are found at once."""
    week = simulation.bad_week("ctp", 2.0)
    for number in (1, 5):
        once, mean, both = (false(number, 200, rule, 0.6) for rule in (ONCE, MEAN, BOTH))
        assert both < mean < once
        once, mean, both = (found(week, number, 200, rule) for rule in (ONCE, MEAN, BOTH))
        assert both < mean < once


def test_the_mean_rejects_about_one_harmless_week_a_year_or_fewer() -> None:
    assert 0.05 < false(1, 50, MEAN) < 1.0
    assert max(false(number, 200, MEAN, 0.6) for number in (1, 5)) < 1.3


def test_a_bad_week_is_found_sooner_by_a_larger_guard() -> None:
    week = simulation.bad_week("er", 3.0)
    shares = [found(week, 1, size, MEAN) for size in (50, 200, 1000)]
    assert shares[0] < 0.5 < shares[1] < shares[2]
    lost = [RUN.of(week, 1, size, MEAN).deployed.mean() for size in (50, 1000)]
    assert lost[0] > 1.5
    assert abs(lost[1]) < 0.3


def test_a_drift_is_stopped_near_the_bound() -> None:
    years = RUN.of(simulation.drift("ctp", 0.3), 1, 1000, MEAN)
    assert np.mean(years.lost) == pytest.approx(2.1, abs=0.3)
    assert years.lost == pytest.approx(0.3 * years.found)


def test_the_collapse_of_one_week_of_25_is_found() -> None:
    shares = [found(simulation.collapse(25.0), 0, size, MEAN) for size in (16, 100)]
    assert shares[0] < 0.3
    assert shares[1] > 0.95


def test_earlier_weeks_keep_to_about_one_false_rejection_a_year_and_family() -> None:
    world = simulation.World(simulation.WEEK, 0.3, learns=True)
    assert replace(RUN, years=20).of(world, 0, 100, MEAN).rejected.mean() < 1.0


@pytest.mark.parametrize("name", simulation.LOST)
def test_an_interval_of_few_samples_has_the_loss_where_percentiles_do_not(name: str) -> None:
    draw = np.random.default_rng(0)
    losses, truth = simulation.sample_losses(simulation.LOST[name], 20, 300, draw)
    ends = np.array([simulation.intervals_of(one, draw) for one in losses])
    covered = ((ends[..., 0] <= truth) & (truth <= ends[..., 1])).mean(0)
    assert covered[1] > 0.95
    assert covered[0] < covered[1]


def test_the_same_seed_makes_the_same_table() -> None:
    few = simulation.Simulation(years=2, seed=3)
    once = simulation.coverage(few)
    assert simulation.coverage(few) == once
    assert simulation.coverage(replace(few, seed=4)) != once


def on_the_page() -> dict[str, list[str]]:
    text = PAGE.read_text(encoding="utf-8")
    marked = re.findall(r"<!-- ([a-z0-9. ]+) -->\n(.*?)\n<!-- end -->", text, flags=re.DOTALL)
    return {name: table.splitlines() for name, table in marked}


def frame(table: list[str]) -> list[str]:
    """The heading of a table, and the first cell of its rows."""
    return [table[0], *(line.split(" | ")[0] for line in table[1:])]


def test_the_page_has_the_tables_of_the_script() -> None:
    assert list(on_the_page()) == list(simulation.TABLES)


@pytest.mark.slow
def test_tables_of_the_page_have_the_rows_of_the_script() -> None:
    page = on_the_page()
    run = simulation.Simulation(years=1, seed=0)
    for name, make in simulation.TABLES.items():
        assert frame(page[name]) == frame(make(run)), name

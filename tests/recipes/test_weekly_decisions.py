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
BEFORE, RULE, RETRY, CAREFUL = simulation.GUARD_RULES
RUN = simulation.Simulation(years=60, seed=1)


def false(number: int, size: int, rule: Any, noise: float = 0.3) -> float:
    """False rejections a year."""
    return float(RUN.guards(simulation.harmless(noise), number, size, rule).rejected.mean())


def found(world: Any, number: int, size: int, rule: Any) -> float:
    """The share of years in which the harmful week itself is rejected."""
    return float(np.mean(RUN.guards(world, number, size, rule).found == 0))


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("points", [-5.0, 0.0, 3.0, 20.0])
def test_a_population_loses_the_points_that_a_week_loses(points: float, learns: bool) -> None:
    world = simulation.World("one week", 0.0, learns=learns)
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
    losses = [simulation.Losses(points, np.ones_like(points), 2.0, z)]
    rejected, clear = simulation.judge(losses, RULE)
    assert rejected.tolist() == [False, False, True, True]
    assert clear.tolist() == [False, False, False, True]
    careful, _ = simulation.judge(losses, CAREFUL)
    assert careful.all()


def test_the_rule_rejects_about_one_harmless_week_a_year_or_fewer() -> None:
    rates = [false(number, 50, RULE) for number in (1, 5)]
    assert min(rates) > 0.05
    assert max(rates) < 1.2


def test_five_guards_of_50_rejected_many_harmless_weeks_before() -> None:
    assert false(5, 50, BEFORE) > 10
    assert false(5, 50, RULE) < 1


def test_training_noise_is_what_a_second_training_is_for() -> None:
    """A guard of 321 shows losses that the seed alone has made; they are real."""
    once, twice = (false(1, 321, rule, noise=1.0) for rule in (RULE, RETRY))
    assert once > 2
    assert twice < once / 3


def test_to_reject_what_is_not_resolved_costs_most_weeks_of_a_small_guard() -> None:
    assert false(1, 50, CAREFUL) > 26


def test_a_fall_after_a_rise_is_found_by_the_step() -> None:
    shares = [found(simulation.rise_then_fall(), 1, 321, rule) for rule in (BEFORE, RULE)]
    assert shares[0] < 0.95
    assert shares[1] > 0.98


def test_a_bad_week_is_found_sooner_by_a_larger_guard() -> None:
    shares = [found(simulation.bad_week(3.0), 1, size, RULE) for size in (50, 200, 321)]
    assert shares[0] < 0.6 < shares[1] < shares[2]


def test_a_drift_is_stopped_near_the_bound() -> None:
    years = RUN.guards(simulation.drift(0.3), 1, 321, RULE)
    assert np.mean(years.lost) == pytest.approx(1.8, abs=0.3)
    assert years.lost == pytest.approx(0.3 * years.found)


def test_the_collapse_of_one_week_of_25_is_found_where_its_mean_does_not_show_it() -> None:
    world = simulation.collapse(25.0)
    shares = [np.mean(RUN.weeks(world, 100, rule).found == 0) for rule in (BEFORE, RULE)]
    assert shares[0] < 0.2
    assert shares[1] > 0.95


def test_earlier_weeks_keep_to_about_one_false_rejection_a_year_and_family() -> None:
    world = replace(simulation.harmless(0.3), learns=True)
    few = replace(RUN, years=20)
    assert few.weeks(world, 100, RULE).rejected.mean() < 2.5
    assert few.weeks(world, 16, RULE).rejected.mean() < few.weeks(world, 16, BEFORE).rejected.mean()


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
    page = on_the_page()
    assert list(page) == list(simulation.TABLES)
    run = simulation.Simulation(years=1, seed=0)
    for name, make in simulation.TABLES.items():
        assert frame(page[name]) == frame(make(run)), name

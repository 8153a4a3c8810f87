"""Which ranks are compared: those just after a task and those of the last model of the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.forgotten_world import ForgottenWorld, add_zeroshot, make_world, usual_ranks

from vlcpctl.evaluation.rank_files import SavedRanks, write_without
from vlcpctl.files.rows import read_rows
from vlcpctl.report.forgotten import changes as limits
from vlcpctl.report.forgotten import finding
from vlcpctl.report.forgotten.changes import Forgotten
from vlcpctl.report.forgotten.finding import find_forgotten


def found_in(*worlds: ForgottenWorld, most: int = 12) -> Forgotten:
    rows = read_rows([str(one.rows) for one in worlds])
    return find_forgotten(rows, [SavedRanks.open(one.ranks) for one in worlds], most)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> ForgottenWorld:
    return make_world(tmp_path_factory.mktemp("world"))


def test_every_task_but_the_last_is_compared_on_its_own_gallery(world: ForgottenWorld) -> None:
    found = found_in(world)
    assert [(one.task, one.learned, one.last, one.gallery) for one in found.tasks] == [
        ("00-part-0", 0, 2, "own"),
        ("01-part-1", 1, 2, "own"),
    ]
    assert {one.last_task for one in found.tasks} == {"02-part-2"}
    for number, one in enumerate(found.tasks):
        assert set(one.ways) == {"i2t", "t2i"}
        for changed in one.ways.values():
            assert (changed.n_forgotten, changed.n_gained, changed.queries) == (2, 1, 4)
            shown = [(example.key, example.rank_now) for example in changed.forgotten]
            assert shown == [(world.key(number, 0), 4), (world.key(number, 1), 2)]
            assert changed.forgotten[0].wrong == world.key(number, 1)
            assert changed.gained[0].key == world.key(number, 3)
    assert found.used == {world.ranks}


def test_a_merged_gallery_shows_only_the_queries_of_the_task(tmp_path: Path) -> None:
    world = make_world(tmp_path, gallery="merged")
    found = found_in(world)
    assert [(one.task, one.gallery) for one in found.tasks] == [
        ("00-part-0", "merged"),
        ("01-part-1", "merged"),
    ]
    changed = found.tasks[1].ways["i2t"]
    assert changed.queries == 4
    assert {one.key for one in changed.forgotten} == {world.key(1, 0), world.key(1, 1)}
    # The best wrong answer may be of an earlier task.
    assert changed.n_forgotten == 2


def test_the_first_seed_with_ranks_is_shown(world: ForgottenWorld, tmp_path: Path) -> None:
    first = make_world(tmp_path, seed=1, stream=world.stream)
    second = make_world(tmp_path, seed=2, stream=world.stream)
    rows = read_rows([str(one.rows) for one in (world, first, second)])
    found = find_forgotten(rows, [SavedRanks.open(second.ranks), SavedRanks.open(first.ranks)], 3)
    assert {(one.seed, one.seeds) for one in found.tasks} == {(1, (0, 1, 2))}


def test_ranks_that_do_not_give_the_scores_are_not_shown(
    world: ForgottenWorld, tmp_path: Path
) -> None:
    other = make_world(tmp_path, stream=world.stream, rank_of=lambda _step, _task: (1, 2, 3, 4))
    rows = read_rows([str(other.rows)])
    found = find_forgotten(rows, [SavedRanks.open(world.ranks)], 3)
    assert found.tasks == ()
    assert "do not give the scores in the rows" in found.notes[0]


def test_queries_that_were_removed_are_not_shown(world: ForgottenWorld, tmp_path: Path) -> None:
    gone = world.key(0, 0)
    write_without(world.ranks, tmp_path / "ranks.parquet", [gone])
    rows = read_rows([str(world.rows)])
    found = find_forgotten(rows, [SavedRanks.open(tmp_path / "ranks.parquet")], 3)
    changed = found.tasks[0].ways["i2t"]
    assert [one.key for one in changed.forgotten] == [world.key(0, 1)]
    assert gone not in set(found.tasks[0].named())
    # The query before it in the gallery has lost its wrong answer.
    assert changed.gained[0].wrong is None


def test_zero_shot_confusions_are_those_of_both_models(
    world: ForgottenWorld, tmp_path: Path
) -> None:
    found = found_in(add_zeroshot(world, tmp_path))
    (one,) = found.tasks
    assert one.ways["i2c"].n_forgotten == 2
    assert [(c.label, c.wrong, c.then, c.now) for c in one.confused_now] == [("a", "b", 0, 2)]
    assert [(c.label, c.wrong, c.then, c.now) for c in one.confused_then] == [("b", "a", 1, 0)]
    assert one.confused_now[0].keys == (world.key(0, 0), world.key(0, 1))


def test_large_files_are_read_task_by_task_with_the_same_result(
    world: ForgottenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = found_in(world)
    monkeypatch.setattr(finding, "_MOST_AT_ONCE", 1)
    assert found_in(world) == whole


def test_many_runs_share_the_examples_of_a_page(
    world: ForgottenWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_OF_A_PAGE", 10)
    runs = [make_world(tmp_path, run=f"r{n}", stream=world.stream) for n in range(4)]
    found = found_in(*runs)
    shown = {
        one.run: sum(len(w.forgotten) + len(w.gained) for w in one.ways.values())
        for one in found.tasks
        if one.task == "00-part-0"
    }
    assert shown == {"r0": 4, "r1": 4, "r2": 0, "r3": 0}
    assert all(one.ways["i2t"].n_forgotten == 2 for one in found.tasks), "all are counted"


def test_a_run_that_has_learned_one_task_has_forgotten_nothing(tmp_path: Path) -> None:
    assert found_in(make_world(tmp_path, tasks=1, rank_of=usual_ranks)).tasks == ()

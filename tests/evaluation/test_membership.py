"""Which data are tasks of a run's stream: decided by the last checkpoint of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.evaluation.membership import TaskPlace, run_checkpoints

HOME = [TaskPlace(f"0{step}-t", step, "home", f"task {step}") for step in range(6)]
COCO = TaskPlace("00-coco", 0, "aside", "coco")
FLICKR = TaskPlace("01-flickr", 1, "aside", "flickr")


def made(content: str, learned: dict[str, int | None] | None = None, **facts: Any) -> Any:
    """A manifest that learned these tasks, by default in the home stream."""
    learned = learned or {}
    known = [step for step in learned.values() if step is not None]
    usual = {
        "run": "seqf",
        "method": "seqf",
        "content": content,
        "tasks": list(learned),
        "task_steps": list(learned.values()),
        "step": max(known, default=None),
        "stream": "home" if known else None,
        "stream_step": max(known, default=None),
    }
    return CheckpointManifest(identity={}, **{**usual, **facts})


def first(count: int) -> dict[str, int | None]:
    return {f"task {step}": step for step in range(count)}


def steps(
    manifests: Sequence[CheckpointManifest], places: Sequence[TaskPlace]
) -> list[list[int | None]]:
    return [one.steps(places) for one in run_checkpoints(manifests)]


def test_week_threes_model_knows_future_tasks_of_its_own_stream() -> None:
    assert steps([made("c3", first(4))], [*HOME, COCO]) == [[0, 1, 2, 3, 4, 5, None]]


def test_the_last_checkpoint_decides_for_earlier_ones() -> None:
    """Week 2 came from another stream: only the later checkpoint knows that it was learned."""
    week = TaskPlace("00-week", 0, "another", "week 2")
    early = made("c1", first(2))
    assert steps([early], [HOME[0], week]) == [[0, None]]
    late = made("c2", {**first(2), "week 2": 2}, stream="another", stream_step=0)
    assert steps([early, late], [HOME[0], week]) == [[0, 2], [0, 2]]
    assert steps([late, early], [HOME[0], week]) == [[0, 2], [0, 2]]


def test_a_run_that_counts_ahead_of_its_stream_counts_its_later_tasks_alike() -> None:
    weeks = [TaskPlace(f"0{step}-w", step, "weeks", f"week {step}") for step in range(3)]
    chain = made("c", {**first(3), "week 0": 3}, stream="weeks", stream_step=0)
    assert steps([chain], [*HOME[:3], *weeks]) == [[0, 1, 2, 3, 4, 5]]


def test_a_run_that_started_later_has_no_steps_before_its_first() -> None:
    """Trained from scratch on week 3: the weeks before it are outside of the run."""
    weeks = [TaskPlace(f"0{step}-w", step, "weeks", f"week {step}") for step in range(5)]
    chain = made("c", {"week 3": 0}, stream="weeks", stream_step=3)
    assert steps([chain], weeks) == [[None, None, None, 0, 1]]


def test_other_runs_and_seeds_decide_nothing() -> None:
    """Each run has its own order."""
    turned = {"task 1": 0, "task 0": 1}
    for other in ({"run": "ctp"}, {"seed": 1}, {"alpha": 0.5}):
        found = steps([made("a", first(2)), made("b", turned, **other)], HOME[:2])
        assert found == [[0, 1], [1, 0]]


def test_a_branch_of_the_same_name_keeps_its_own_order() -> None:
    """--run may give two chains one name."""
    found = steps([made("a", first(2)), made("b", {"task 1": 0, "task 0": 1, "x": 2})], HOME[:2])
    assert found == [[0, 1], [1, 0]]


def test_merged_weights_do_not_tell_how_far_a_run_counts_ahead_of_its_stream() -> None:
    """The last step may be of one checkpoint, and the stream of another."""
    learned = {"task 0": 0, "task 1": 1, "week 3": 3}
    merged = made("m", learned, stream_step=1, parents=["c1", "c3"])
    assert steps([merged], HOME[:3]) == [[0, 1, 2]]


def test_a_split_made_anew_that_repeats_the_earlier_tasks_continues_the_run() -> None:
    grown = [replace(place, stream="grown") for place in HOME[:4]]
    chain = made("c", first(3))
    assert steps([chain], grown) == [[0, 1, 2, 3]]
    assert steps([chain], grown[3:]) == [[None]]  # alone, nothing ties it to the run
    other = replace(grown[2], id="changed meanwhile")
    assert steps([chain], [*grown[:2], other]) == [[0, 1, None]]  # task 2 is another one


def test_a_reordered_stream_gives_no_steps_of_its_own() -> None:
    contents = ("task 2", "task 1", "task 0", "task 3")
    turned = [TaskPlace(f"0{at}-t", at, "turned", name) for at, name in enumerate(contents)]
    chain = made("c", first(2))
    assert steps([chain], turned) == [[None, 1, 0, None]]
    assert steps([chain], [turned[0], turned[1]]) == [[None, 1]]  # place 0 is taken


def test_a_task_left_out_has_its_place() -> None:
    assert steps([made("c", {"task 0": 0, "task 2": 2})], HOME[:4]) == [[0, 1, 2, 3]]


def test_two_streams_cannot_both_have_the_next_task() -> None:
    grown = [replace(HOME[0], stream="grown"), TaskPlace("01-other", 1, "grown", "other")]
    chain = made("c", first(1))
    assert steps([chain], [*grown, *HOME[:2]]) == [[0, None, 0, 1]]


def test_data_that_the_model_learned_before_the_run_is_outside() -> None:
    chain = made("c1", {"coco": None, "task 0": 0, "task 1": 1})
    assert steps([chain], [COCO, FLICKR, *HOME[:3]]) == [[None, None, 0, 1, 2]]


def test_a_start_with_its_run_has_the_runs_steps() -> None:
    start = made("openai", run="openai", origin={"name": "x.pt"})
    run = [made("c0", first(1), start="openai"), made("c1", first(2), start="openai")]
    joint = made("j", first(2), run="joint", start="openai")
    everything = steps([start, *run, joint], [*HOME[:2], COCO])
    assert everything == [[0, 1, None]] * 4


def test_a_start_alone_has_no_steps() -> None:
    start = made("openai", run="openai", origin={"name": "x.pt"})
    assert steps([start], [*HOME[:2], COCO]) == [[None, None, None]]
    unrelated = made("c1", first(2), start="another")
    assert steps([start, unrelated], HOME[:2])[0] == [None, None]


def test_runs_that_disagree_leave_their_start_without_steps() -> None:
    start = made("openai", run="openai", origin={"name": "x.pt"})
    turned = made("b", {"task 1": 0, "task 0": 1}, run="turned", start="openai")
    assert steps([start, made("a", first(2), start="openai"), turned], HOME[:2])[0] == [None] * 2


def test_a_start_that_was_trained_keeps_its_own_stream() -> None:
    coco = made("c", {"coco": 0}, run="coco", stream="aside", stream_step=0)
    chain = made("c1", {"coco": None, "task 0": 0}, start="c")
    assert steps([coco, chain], [COCO, FLICKR, HOME[0]]) == [[0, 1, None], [None, None, 0]]


def test_a_model_imported_at_a_step_has_the_steps_of_the_given_stream() -> None:
    imported = made("ctp-3", run="ctp", origin={"name": "x.pt"}, step=3)
    assert steps([imported], HOME[:4]) == [[0, 1, 2, 3]]
    assert steps([imported], [*HOME[:4], COCO]) == [[None] * 5]  # which one is meant?


def test_data_that_was_rewritten_is_the_same_task() -> None:
    less = replace(HOME[1], content="task 1 with less")
    assert steps([made("c", first(3))], [HOME[0], less]) == [[0, 1]]


def test_names_follow_steps_and_data_outside_keeps_its_own() -> None:
    weeks = [TaskPlace("00-week", 0, f"week {week}", f"task {week}") for week in range(2)]
    assert [weeks[1].name_at(step) for step in (None, 0, 1)] == ["00-week", "00-week", "01-week"]


def test_rewritten_data_has_the_step_at_which_it_was_learned() -> None:
    """By its id, or by the content id with which version 0.3 recorded it after a deletion."""
    place = TaskPlace("01-t", 1, "home", "a0", "a2")
    for learned in ("a0", "a2"):
        assert steps([made("c1", {"task 0": 0, learned: 1})], [place]) == [[1]], learned


def test_names_have_as_many_digits_as_the_steps_of_the_run() -> None:
    weeks = [TaskPlace("00-week", 0, f"stream {week}", f"week {week}") for week in range(150)]

    def names(learned: int) -> list[str]:
        manifest = made("c", {f"week {week}": week for week in range(learned)}, stream="stream 0")
        (run,) = run_checkpoints([manifest])
        found = zip(weeks[:learned], run.steps(weeks[:learned]), strict=True)
        return [place.name_at(step, run.digits) for place, step in found]

    for learned, seventh in ((100, "07-week"), (101, "007-week"), (150, "007-week")):
        assert names(learned) == sorted(names(learned))
        assert names(learned)[7] == seventh
    wide = TaskPlace("007-week", 7, "wide", "week 7")
    assert [wide.name_at(step) for step in (None, 7, 8)] == ["007-week", "007-week", "008-week"]
    named = TaskPlace("food-101", None, None, "food")  # a data set
    assert named.name_at(None, 3) == "food-101"

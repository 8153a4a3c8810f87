"""Hold-outs: an image is in one split only, whatever its task or data set."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.data.splitting.holdout import (
    CountedHoldout,
    Holdout,
    parse_holdout,
    parse_most,
    position,
)

HASHES = [f"{number:064x}" for number in range(2000)]


def test_a_share_holds_out_about_that_share() -> None:
    holdout = parse_holdout("test=0.1,val=0.05")
    sides = [holdout.split_of(sha) for sha in HASHES]
    assert 150 < sides.count("test") < 250
    assert 70 < sides.count("val") < 130


def test_a_further_part_does_not_move_the_first() -> None:
    alone, both = parse_holdout("test=0.1"), parse_holdout("test=0.1,val=0.2")
    assert all((alone.split_of(sha) == "test") == (both.split_of(sha) == "test") for sha in HASHES)


@pytest.mark.parametrize("text", ["test=1.0", "test=0.75,val=0.25", "val=1."])
def test_shares_that_sum_to_one_hold_out_every_image(text: str) -> None:
    holdout = parse_holdout(text)
    assert not holdout.counted
    assert {holdout.split_of(sha) for sha in HASHES} == set(holdout.parts)


def test_a_percentage_is_a_share() -> None:
    assert parse_holdout("test=10%,val=0.05") == parse_holdout("test=0.1,val=0.05")
    assert not parse_holdout("test=1%").counted


def test_positions_never_change() -> None:
    assert position("ab" * 32) == pytest.approx(0.8487, abs=1e-4)


WRONG = [
    *("test", "train=0.1", "test=0", "test=1.5", "test=0.6,val=0.5", "test=5,val=0.1"),
    *("test=1,val=0.1", "test=5.0", "test=-1", "test=\u00b2", "test=" + "9" * 400, ""),
]


@pytest.mark.parametrize("text", WRONG)
def test_a_holdout_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_holdout(text)


@given(st.lists(st.integers(0, 50), min_size=12))
def test_a_number_holds_out_exactly_so_many_images(numbers: list[int]) -> None:
    counted = CountedHoldout(parse_holdout("test=2,val=1"))
    hashes = [HASHES[number] for number in numbers]
    for sha in hashes:
        counted.count("a", sha)
    if len(set(numbers)) < 3:
        with pytest.raises(BadInput, match="fewer than the 3 of --holdout; --holdout-most 10%"):
            counted.decide()
        return
    counted.decide()
    sides = [counted.split_of("a", sha) for sha in sorted(set(hashes), key=position)]
    assert sides == ["test", "test", "val", *["train"] * (len(sides) - 3)]


def test_a_task_that_appears_between_the_two_passes_is_refused() -> None:
    counted = CountedHoldout(Holdout({"test": 1}, counted=True))
    counted.count("a", HASHES[0])
    counted.count("a", HASHES[1])
    counted.decide()
    with pytest.raises(BadInput, match="a source changed while it was being read: task 'b' is new"):
        counted.split_of("b", HASHES[0])


@given(st.sets(st.integers(0, 1999), min_size=1), st.sampled_from(["1%", "10%", "33.3%", "90%"]))
def test_a_small_task_holds_out_a_share_instead(numbers: set[int], most: str) -> None:
    counted = CountedHoldout(parse_most(most, parse_holdout("test=20,val=10")))
    for number in [*numbers, *numbers]:  # repeated images count once
        counted.count("a", HASHES[number])
    warnings = counted.decide()
    sides = Counter(counted.split_of("a", HASHES[number]) for number in numbers)
    share = Fraction(most.rstrip("%")) / 100
    if share * len(numbers) >= 30:
        assert (sides["test"], sides["val"], warnings) == (20, 10, [])
    else:
        held = sides["test"] + sides["val"]
        assert held == max(int(share * len(numbers)), min(1, len(numbers) - 1))
        assert abs(2 * sides["val"] - sides["test"]) <= 2
        assert sides["train"] >= 1
        assert len(warnings) == 1
    # Those with the lowest positions, as without the option.
    ranked = sorted(numbers, key=lambda number: position(HASHES[number]))
    outside = [counted.split_of("a", HASHES[number]) == "train" for number in ranked]
    assert outside == sorted(outside)


@pytest.mark.parametrize("text", ["10", "0%", "100%", "-1%", "x%", "%", "1e1%", "nan%"])
def test_a_limit_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--holdout-most"):
        parse_most(text, parse_holdout("test=5"))
    for holdout in ("test=0.1", "none"):
        with pytest.raises(UsageError, match="--holdout-most"):
            parse_most("10%", parse_holdout(holdout))

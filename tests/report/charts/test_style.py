"""Runs can be told apart by colour, marker and dash, and in grey by marker and dash."""

from __future__ import annotations

from vlcpctl.report.charts.style import styles


def test_no_two_of_210_runs_look_alike() -> None:
    found = styles(f"run {place}" for place in range(210)).values()
    assert len({(one.colour, one.marker, one.dash) for one in found}) == 210


def test_a_colour_comes_again_only_with_another_marker_or_dash() -> None:
    found = list(styles(f"run {place}" for place in range(60)).values())
    for colour in {one.colour for one in found}:
        signs = [(one.marker, one.dash) for one in found if one.colour == colour]
        assert len(set(signs)) == len(signs) == 10


def test_35_runs_can_be_told_apart_in_grey() -> None:
    found = styles(f"run {place}" for place in range(35)).values()
    assert len({(one.marker, one.dash) for one in found}) == 35


def test_an_upper_bound_is_grey_and_takes_no_place_in_the_cycle() -> None:
    found = styles(["a", "joint", "b"], ["joint"])
    assert (found["joint"].colour, found["joint"].marker) == ("var(--muted)", None)
    assert (found["a"].place, found["b"].place) == (0, 1)
    assert [one.number for one in found.values()] == [0, 1, 2]

"""Options as fields: what a value becomes, what is refused, and what goes with what."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from vlcpctl.core.errors import UsageError
from vlcpctl.core.options import (
    DATA,
    METHOD,
    Amount,
    Command,
    GoesWith,
    MaybePath,
    Names,
    OnePath,
    Options,
    Paths,
    Texts,
    like,
    option,
    options_of,
    printing,
    refuse_idle,
    required,
    several,
    switch,
    text_of,
)


class Paint(Options):
    """What a painting needs."""

    coats: int = option("Coats", "N", METHOD, default=1, otherwise="from the tin", within="[1, 9]")
    gloss: float = option("Gloss", "X", METHOD, default=0.5, within="[0, 1)")
    brush: str = option("Brush", "NAME", DATA, default="flat", choices=("flat", "fan"))
    hairs: str = option("Hairs", "NAME", default="soft", goes_with=("brush", ("fan",)))
    size: tuple[int, int] | None = option("Size", "W,H", DATA, within="[1, 99]")


class Work(Paint, Command):
    """Paint."""

    out: OnePath = required("Path", "PATH")
    photos: Paths = several("Photos", "FILE")
    words: Texts = several("Words", "WORD")
    names: Names = option("Names", "NAMES")
    price: Amount = option("Price", "N|P%", default="0.1%")
    frame: MaybePath = option("Frame", "FILE")
    weeks: int | None = option("Weeks", "N", resets=True)
    varnish: bool = switch("Varnish it", opposite="--matt")
    json: bool = printing("As JSON")


@pytest.mark.parametrize(
    ("name", "given", "seen"),
    [
        ("coats", "3", 3),
        ("coats", 3, 3),
        ("gloss", "1e-3", 0.001),
        ("size", "2,3", (2, 3)),
        ("size", [2, 3], (2, 3)),
        ("frame", "a/b", Path("a/b")),
        ("photos", "a", [Path("a")]),
        ("photos", ["a", Path("b c")], [Path("a"), Path("b c")]),
        ("words", "a", ["a"]),
        ("words", (1, 3), ["1,3"]),
        ("words", [(1, 3), "1,1"], ["1,3", "1,1"]),
        ("names", ["customer", "date"], "customer,date"),
        ("price", 3, "3"),
        ("weeks", "none", "none"),
        ("varnish", "yes", True),
        ("varnish", "0", False),
    ],
)
def test_a_value_is_read_as_its_type(name: str, given: Any, seen: Any) -> None:
    made = Work.made_of({"out": "x", "brush": "fan", name: given})
    assert getattr(made, name) == seen
    assert (made.out, made.json) == (Path("x"), False)


@pytest.mark.parametrize(
    ("name", "given", "word"),
    [
        ("coats", "0", "at least 1 and at most 9"),
        ("coats", "1.5", "whole number"),
        ("coats", "\u0663", "whole number"),
        ("gloss", 1.0, "below 1"),
        ("gloss", math.nan, "below 1"),
        ("gloss", "nan", "finite"),
        ("gloss", "1_0", "finite"),
        ("brush", "fann", "did you mean 'fan'"),
        ("size", "2", "two numbers"),
        ("size", "2,100", "at most 99"),
        ("weeks", "never", "whole number"),
        ("varnish", "maybe", "neither true nor false"),
        ("hairs", "stiff", "only to --brush fan"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_by_name(name: str, given: Any, word: str) -> None:
    with pytest.raises(UsageError, match=f"^--{name}.*{word}"):
        Work.made_of({"out": "x", name: given})


def test_a_table_of_pandas_is_no_list_of_paths() -> None:
    kind = type("DataFrame", (), {"__iter__": lambda _: iter(["column"])})
    with pytest.raises(TypeError, match="DataFrame"):
        Work(out="x", photos=kind())


def test_a_command_does_not_know_what_comes_from_elsewhere() -> None:
    """Of inherited options; its own order comes first."""
    assert (Work(out="x").coats, Work(out="x").gloss, Paint().coats) == (None, 0.5, 1)
    assert next(iter(options_of(Work))) == "out"
    row, kind = options_of(Work)["coats"]
    assert (row.help, kind) == ("Coats (default: from the tin).", int)


def test_an_option_of_another_class_may_differ() -> None:
    class Layers(Options):
        coats: int | None = like(Paint, "coats", default=None, text="Layers", otherwise="")
        hairs: str | None = like(Paint, "hairs", default=None)

    assert options_of(Layers)["coats"][0].help == "Layers."
    assert Layers(hairs="stiff").hairs == "stiff"  # what it goes with is checked elsewhere
    assert Layers().coats is None


def test_an_object_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Paint().coats = 3


@pytest.mark.parametrize(
    ("value", "text"), [(1e-5, "1e-05"), ((0.9, 0.99), "0.9,0.99"), (Path("a b"), "a b")]
)
def test_a_value_is_written_as_a_word(value: Any, text: str) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize(
    ("row", "value", "said"),
    [
        (GoesWith("tasks", "by", None, "why"), None, "without --by: why"),
        (GoesWith("tasks", "by", ()), "x", "with --by"),
        (GoesWith("tasks", "by", ("a", "b")), "x", "with --by x: it applies only to --by a, b"),
        (GoesWith("tasks", "by", ("a",), "why"), None, "without --by: why"),
        (GoesWith("tasks", "by"), "x", ""),
        (GoesWith("tasks", "by", ()), None, ""),
        (GoesWith("tasks", "by", ("a", "b")), "b", ""),
        (GoesWith("tasks", "by", ("a", "b")), "b:c", ""),
    ],
)
def test_an_option_goes_with_another(row: GoesWith, value: str | None, said: str) -> None:
    refuse_idle([row], {"tasks": None, "by": value})
    refuse_idle([row], {"tasks": 3, "by": value}, given=["by"])
    if not said:
        refuse_idle([row], {"tasks": 3, "by": value})
        return
    with pytest.raises(UsageError, match=f"^--tasks has no effect {said}$"):
        refuse_idle([row], {"tasks": 3, "by": value})

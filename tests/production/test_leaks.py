"""Images of guards and tests among the training pairs of `vlcpctl update`, before it trains."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from support.pair_files import write_parquet
from support.production import PASSES, actions, first_words, week_words
from support.program import ProgramResult

from vlcpctl.data.tasks.task import Split, open_task
from vlcpctl.production.state import State

Run = Callable[..., ProgramResult]
BY_COLUMN = ("--split-column", "part", "--caption-column", "caption", *PASSES)


def held_out_of(task: Path) -> Split:
    return open_task(task).split("test")


def row(image: bytes, caption: str, part: str = "train") -> dict[str, Any]:
    return {"image": image, "caption": [caption], "part": part}


def write_leaking(place: Path, state: Path, path: Path) -> list[bytes]:
    """Week 2 with test images of the guard (3), of week 1 and of its own (1 each); the images.

    One other pair has a caption of the guard.
    """
    own = pq.read_table(place / "week-2.parquet").to_pylist()
    rows = [
        row(one["image"], one["caption"][0], "test" if number < 8 else "train")
        for number, one in enumerate(own)
    ]
    guard = held_out_of(place / "golden" / "00-golden")
    found = State.read(state)
    earlier = held_out_of(found.task(found.head()[1]))
    leaks = [*(guard.image(at) for at in range(3)), earlier.image(0), own[0]["image"]]
    rows[-1]["caption"] = [guard.captions(0)[0]]
    write_parquet(path, rows + [row(one, f"leak {at}") for at, one in enumerate(leaks)])
    return leaks


def test_test_images_end_an_update_before_the_training_and_are_dropped_on_request(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    leaks = write_leaking(place, state, tmp_path / "week-2.parquet")
    words = ["update", tmp_path / "week-2.parquet", "--state", state, *BY_COLUMN]
    before = actions(state)
    for _ in range(2):  # the same command again finds its split, and looks again
        refused = run(*words)
        said = refused.err.splitlines()[-1]
        assert refused.code == 3
        assert "5 of 21 training pairs of week 2 have a test image" in said
        assert "(3 of guard 00-golden, 1 of week 1, 1 of its own test split)" in said
        assert "--drop-leaks" in said
        assert actions(state) == [*before, "started"]
        assert not (state / "attempts/0003/draw-0").exists()
    # Its advice: what it names shows them, and the option goes on.
    (check,) = re.findall("'vlcpctl (check [^']*)'", said)
    checked = run(*shlex.split(check))
    assert (checked.code, checked.out.count("that are also training images")) == (0, 3)
    dropped = run(*words, "--drop-leaks", "--json")
    assert dropped.code == 0, dropped.err
    expected = {"leaked": {"golden": 3, "week-0001": 1, "self": 1}}
    assert json.loads(dropped.out)["left_out"] == expected
    found = State.read(state)
    train = open_task(found.task(found.head()[2])).split("train")
    images = {train.image(at) for at in range(len(train))}
    assert (len(images), images & set(leaks)) == (16, set())
    assert "5 leaks left out" in " ".join(run("inspect", state).out.split())
    # The option is kept, until another takes its place.
    third = [*week_words(place, state, 3), "--holdout", "test=0.3", "--dry-run"]
    assert "--not-test-images" in run(*third).out
    assert "--not-test-images" not in run(*third, "--refuse-leaks").out


def test_earlier_data_are_compared(run: Run, place: Path, tmp_path: Path) -> None:
    guard = held_out_of(place / "golden" / "00-golden")
    leaking = [row(guard.image(at), f"x{at}") for at in range(len(guard))]
    write_parquet(tmp_path / "earlier.parquet", leaking)
    words = [*first_words(place, tmp_path / "new"), *PASSES]
    words[words.index("--buffer-from") + 1] = tmp_path / "earlier.parquet"
    words[words.index("--holdout") + 1] = "test=0.01"
    refused = run(*words)
    assert refused.code == 3
    assert "--drop-leaks" in refused.err.splitlines()[-1]

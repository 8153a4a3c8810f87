"""Images of guards and tests among the training pairs of `vlcpctl update`, before it trains."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.pair_files import write_parquet
from support.production import PASSES, first_words, tree, week_words
from support.program import ProgramResult, check_refused

from vlcpctl.data.tasks.task import Split, open_task
from vlcpctl.production.settings import Guard, Settings

Run = Callable[..., ProgramResult]
BY_COLUMN = ("--split-column", "part", "--caption-column", "caption", *PASSES, "-q")


def held_out_of(task: Path) -> Split:
    """The test split of a task."""
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
    earlier = held_out_of(state / "weeks/0001/stream/00-week-0001")
    leaks = [*(guard.image(at) for at in range(3)), earlier.image(0), own[0]["image"]]
    rows[-1]["caption"] = [guard.captions(0)[0]]
    write_parquet(path, rows + [row(one, f"leak {at}") for at, one in enumerate(leaks)])
    return leaks


def images_for_training(task: Path) -> set[bytes]:
    train = open_task(task).split("train")
    return {train.image(at) for at in range(len(train))}


def test_test_images_end_an_update_before_the_training_and_are_dropped_on_request(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    leaks = write_leaking(place, state, tmp_path / "week-2.parquet")
    words = ["update", tmp_path / "week-2.parquet", "--state", state, *BY_COLUMN]
    before = {name: one for name, one in tree(state).items() if not name.startswith("pending")}
    del before["history.ndjson"]
    for _ in range(2):  # the same command again finds its split, and looks again
        refused = run(*words)
        said = refused.err.splitlines()[-1]
        assert refused.code == 3
        assert "5 of 21 training pairs of week 2 have a test image" in said
        assert "(3 of guard 00-golden, 1 of week 1, 1 of its own test split)" in said
        assert "--drop-leaks leaves such pairs out" in said
        after = {name: one for name, one in tree(state).items() if not name.startswith("pending")}
        (begun,) = after.pop("history.ndjson")[2:]
        assert (begun["action"], begun["week"]) == ("started", 2)
        assert after == before
        assert sorted(one.name for one in (state / "pending").iterdir()) == [
            *("seconds.json", "stream", "week.json")
        ]
    train = open_task(state / "pending/stream/00-week-0002").split("train")
    leaked = {train.keys[at] for at in range(len(train)) if train.image(at) in leaks}
    shown = re.findall("[0-9a-f]{32}", said)
    assert len(shown) == 3
    assert leaked.issuperset(shown)
    assert "... 5 in all" in said
    # Its advice: what it names shows them, and the option goes on.
    (check,) = re.findall("'vlcpctl (check [^']*)'", said)
    checked = run(*shlex.split(check))
    assert checked.code == 0
    assert checked.out.count("that are also training images") == 3
    dropped = run(*words, "--drop-leaks", "--json")
    assert dropped.code == 0, dropped.err
    expected = {"leaked": {"golden": 3, "week-0001": 1, "self": 1}}
    assert json.loads(dropped.out)["left_out"] == expected
    stream = state / "weeks/0002/stream"
    assert json.loads((stream / "stream.json").read_text())["left_out"] == expected
    assert not images_for_training(stream / "00-week-0002") & set(leaks)
    assert len(images_for_training(stream / "00-week-0002")) == 16
    # The option is kept, until another takes its place.
    assert "5 of week 2" in run("inspect", state).out
    third = [*week_words(place, state, 3), "--holdout", "test=0.3", "--dry-run"]
    assert "--not-test-images" in run(*third).out
    unset = run(*third, "--refuse-leaks")
    assert unset.code == 0
    assert "--not-test-images" not in unset.out


def test_a_dry_run_counts_leaks(run: Run, place: Path, state: Path, tmp_path: Path) -> None:
    write_leaking(place, state, tmp_path / "week-2.parquet")
    words = ["update", tmp_path / "week-2.parquet", "--state", state, *BY_COLUMN, "--dry-run"]
    tests = "(3 of guard 00-golden, 1 of week 1, 1 of its own test split)"
    said = f"\n# leaks: 5 of 21 training pairs have a test image {tests}; "
    refused = run(*words).out
    assert f"{said}it ends with 3\n" in refused
    assert "\n# pairs: 21 to train on, 8 held out; no image was decoded\n" in refused
    assert f"{said}they are left out of training\n" in run(*words, "--drop-leaks").out
    assert not (state / "pending").exists()


def saved_again(image: bytes) -> bytes:
    """The image a quarter larger, and as a JPEG."""
    with Image.open(io.BytesIO(image)) as opened:
        size = opened.width * 5 // 4, opened.height * 5 // 4
        larger = opened.convert("RGB").resize(size, Image.Resampling.BICUBIC)
    file = io.BytesIO()
    larger.save(file, "JPEG", quality=80)
    return file.getvalue()


@pytest.mark.slow
def test_leaks_shared_captions_and_near_duplicates_are_said(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    write_leaking(place, state, tmp_path / "week-2.parquet")
    guard = held_out_of(place / "golden" / "00-golden")
    like = [row(saved_again(guard.image(at)), f"like {at}") for at in range(2)]
    rows = pq.read_table(tmp_path / "week-2.parquet").to_pylist()
    write_parquet(tmp_path / "week-2.parquet", [*rows, *like])
    words = ["update", tmp_path / "week-2.parquet", "--state", state, *BY_COLUMN[:-1]]
    done = run(*words, "--drop-leaks")
    assert done.code == 0
    assert "1 of 18 training pairs have a caption that guard 00-golden has" in done.err
    assert "2 of 18 training images are like a test image of guard 00-golden" in done.err
    assert (
        "of 31 pairs, 5 have test images (golden, week-0001, their own test split) and are left "
        "out of training"
    ) in done.err


def test_earlier_data_with_images_of_a_guard_do_not_fill_a_buffer(
    run: Run, place: Path, tmp_path: Path
) -> None:
    # The guard holds out more of the same data than the hold-out of the update.
    source = [place / "earlier.parquet", "--holdout", "test=0.6", "-q", "--by", "all:wide"]
    assert run("split", *source, "-o", tmp_path / "wide").code == 0
    guard = tmp_path / "wide" / "00-wide"
    words = first_words(place, tmp_path / "prod")
    words[words.index("--guard") + 1] = guard
    refused = run(*words, *PASSES)
    assert refused.code == 3
    assert "training pairs of --buffer-from have a test image" in refused.err.splitlines()[-1]
    assert not (tmp_path / "prod/start/buffer").exists()
    dropped = run(*(one for one in words if one != "-q"), *PASSES, "--drop-leaks")
    assert dropped.code == 0
    assert "--buffer-from: of 24 pairs, " in dropped.err
    assert "have test images (wide) and are left out of training" in dropped.err
    tested = held_out_of(guard)
    images = {tested.image(at) for at in range(len(tested))}
    assert not images & images_for_training(tmp_path / "prod/start/stream/00-earlier")


@pytest.mark.slow
def test_a_late_guard_of_images_that_were_trained_on_is_warned_of(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    for number in (1, 2):
        source = [place / f"week-{number}.parquet", "--holdout", "test=1.0", "-q"]
        out = ["-o", tmp_path / str(number), "--by", f"all:week{number}"]
        assert run("split", *source, *out).code == 0
    trained = images_for_training(state / "weeks/0001/stream/00-week-0001")
    own = run(
        *week_words(place, state, 2),
        "--guard",
        tmp_path / "2/00-week2",
        "--small-guard",
        *PASSES,
        "-q",
    )
    assert own.code == 3
    assert "of guard 00-week2" in own.err.splitlines()[-1]
    late = ["--guard", tmp_path / "1/00-week1", "--small-guard"]
    done = run(*week_words(place, state, 2), *late, *PASSES, "-q")
    assert done.code == 0, done.err
    said = f"{len(trained)} of 24 test images of guard 00-week1 are in data that"
    assert said in done.err
    assert "trained on already (week 1)" in done.err
    # Warned of once.
    again = run(*week_words(place, state, 3), *PASSES, "-q")
    assert (again.code, said in again.err) == (0, False)


@pytest.mark.parametrize("option", ["--drop-leaks", "--refuse-leaks"])
def test_an_option_of_leaks_without_effect_is_refused(
    run: Run, place: Path, state: Path, option: str
) -> None:
    rolled = run("update", "--state", state, "--rollback", "0", option)
    check_refused(rolled, "update", 2, f"{option} has no effect with --rollback")
    accepted = run(*week_words(place, state, 1), "--drop-leaks")
    check_refused(accepted, "update", 4, "--drop-leaks would not be applied")


def test_with_dropped_leaks_other_guards_make_another_training() -> None:
    def settings(*guards: str, drops: bool) -> Settings:
        found: Sequence[Guard] = [Guard(name, name * 32, name) for name in guards]
        return Settings(run="r", guards=tuple(found), drop_leaks=drops)

    assert not settings("a", drops=False).different_training(settings("b", drops=False))
    assert not settings("a", drops=True).different_training(settings("a", drops=True))
    assert set(settings("a", drops=True).different_training(settings("b", drops=True))) == {
        "guards"
    }
    assert set(settings("a", drops=False).different_training(settings("a", drops=True))) == {
        "drop_leaks"
    }

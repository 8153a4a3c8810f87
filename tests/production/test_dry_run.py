"""What `update` refuses before it changes anything, a dry run refuses with the same words."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.production import tree, week_words
from support.program import ProgramResult, check_refused

Run = Callable[..., ProgramResult]
WEIGHTS = "checkpoint/open_clip_model.safetensors"


def flip(path: Path) -> None:
    found = bytearray(path.read_bytes())
    found[len(found) // 2] ^= 1
    path.write_bytes(found)


def another(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    shutil.copytree(checkpoint.parents[2] / "start/checkpoint", checkpoint)


def a_file(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.write_text("mine")


def unfinished(pending: Path) -> None:
    shutil.copytree(pending.parent / "weeks/0001", pending)
    (pending / "verdict.json").unlink()


@pytest.mark.parametrize(
    ("name", "damage", "words", "code", "said"),
    [
        ("weeks/0002", Path.mkdir, [], 3, "weeks/0002.*mv "),
        ("weeks/0005", Path.mkdir, [], 3, "weeks/0005.*mv "),
        ("weeks/0005", Path.mkdir, ["--rollback", "0"], 3, "weeks/0005.*mv "),
        ("weeks/0005", Path.mkdir, ["--redo", "1"], 3, "weeks/0005.*mv "),
        (f"start/{WEIGHTS}", flip, [], 3, f"start/{WEIGHTS}.*restore it"),
        (f"start/{WEIGHTS}", flip, ["--rollback", "0"], 3, f"start/{WEIGHTS}.*restore it"),
        (f"start/{WEIGHTS}", flip, ["--redo", "1"], 3, f"start/{WEIGHTS}.*restore it"),
        (f"weeks/0001/{WEIGHTS}", flip, [], 3, f"weeks/0001/{WEIGHTS}.*restore it"),
        ("weeks/0001/checkpoint", another, [], 3, "weeks/0001/checkpoint.*state.json"),
        ("weeks/0001/buffer", shutil.rmtree, [], 3, "weeks/0001/buffer"),
        ("embeddings", a_file, [], 3, "embeddings.*move it away"),
        ("pending", unfinished, [], 4, "--force"),
        ("", lambda _: None, ["--junit", "{place}"], 4, "another --junit"),
        ("", lambda _: None, ["--accept-inexact"], 2, "--accept-inexact"),
        ("", lambda _: None, ["{known}", "--lr", "1"], 4, "--lr"),
    ],
)
def test_both_refuse_it_and_nothing_changes(
    run: Run,
    place: Path,
    state: Path,
    name: str,
    damage: Callable[[Path], object],
    words: list[str],
    code: int,
    said: str,
) -> None:
    damage(state / name)
    before = tree(state)
    places = {"place": place, "known": place / "week-1.parquet"}
    more = [one.format(**places) for one in words]
    is_of_state = {"--rollback", "--redo"} & set(words) or "{known}" in words
    how = ["update", "--state", state, *more] if is_of_state else week_words(place, state, 2) + more
    for dry in (["--dry-run"], []):
        refused = run(*how, *dry)
        check_refused(refused, "update", code, *said.split(".*"))
        assert refused.out == ""
    assert tree(state) == before


def test_a_week_that_is_put_back_is_taken_in_only_whole(run: Run, place: Path, state: Path) -> None:
    assert run("update", "--state", state, "--rollback", "0").code == 0
    (state / "rolled-back/0001").rename(state / "weeks/0001")
    flip(state / "weeks/0001" / WEIGHTS)
    for dry in (["--dry-run"], []):
        refused = run(*week_words(place, state, 2), *dry)
        check_refused(refused, "update", 3, f"weeks/0001/{WEIGHTS}", "restore it")
    assert (state / "current").readlink() == Path("start/checkpoint")


def test_a_damaged_checkpoint_of_init_is_refused(run: Run, place: Path, tmp_path: Path) -> None:
    model, state = tmp_path / "model", tmp_path / "prod"
    shutil.copytree(place / "model", model)
    flip(model / "open_clip_model.safetensors")
    words = [*week_words(place, state, 1), "--init", model]
    for dry in (["--dry-run"], []):
        check_refused(run(*words, *dry), "update", 3, "open_clip_model.safetensors", "restore it")
    assert not (state / "start").exists()

"""What a week reads beside its data, and what it is after lines that failed or a disk was full."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.method_files import MINE, write_method
from support.object_store import put_in_memory, remove_from_memory
from support.production import PASSES, actions, week, week_words
from support.program import ProgramResult, check_refused

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.data.tasks.task import open_task
from vlcpctl.production.check import check_state
from vlcpctl.production.settings import read_settings
from vlcpctl.production.state import State

Run = Callable[..., ProgramResult]
URL = "memory://shop"


def test_a_week_from_an_object_store_is_that_from_local_copies(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    local = state.with_name("local")
    shutil.copytree(state, local, symlinks=True)
    more = ["--distractors", place / "silver/00-silver", *PASSES, "-q"]
    done = run(*week_words(place, local, 2), *more)
    assert done.code == 0, done.err
    for name in ("week-2.parquet", "golden", "silver"):
        put_in_memory(place / name, f"shop/{name}")
    given = ["--guard", f"{URL}/golden/00-golden", "--distractors", f"{URL}/silver/00-silver"]
    words = ["update", f"{URL}/week-2.parquet", "--state", state, "--cache", tmp_path / "cache"]
    done = run(*words, *given, *PASSES, "-q")
    assert done.code == 0, done.err
    one, other = (State.read(root).head()[-1] for root in (local, state))
    assert one.checkpoint == other.checkpoint
    assert one.verdicts == other.verdicts
    assert read_settings(state)["update"]["guard"] == [f"{URL}/golden/00-golden"]
    planned = run(*week_words(place, state, 3), "--dry-run")
    read = [line for line in planned.out.splitlines() if URL in line]
    assert read
    assert all(f"--cache {tmp_path}/cache" in line for line in read)
    looked = run("forget", state, "--sha256", "0" * 64, "--missing-ok", "--dry-run", "-q")
    assert f"{tmp_path}/cache" in looked.out
    remove_from_memory("shop/golden")
    check_refused(run(*week_words(place, state, 3)), "update", 3, "--guard")
    check_refused(run("update", f"{URL}/week-9.parquet", "--state", state), "update", 3)
    shutil.rmtree(local)


def test_a_reference_reaches_the_training_without_test_images(
    real: Run, place: Path, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = pa.concat_tables([pq.read_table(place / f"week-{n}.parquet") for n in (2, 3)])
    pairs = pairs.append_column("split", pa.array(["train"] * len(pairs)))
    pq.write_table(pairs, tmp_path / "ref.parquet")
    words = ["ref.parquet", "-o", "ref", "--by", "all:ref", "--split-column", "split", "-q"]
    monkeypatch.chdir(tmp_path)
    assert real("split", *words).code == 0
    method = [*PASSES, "-q", "--method", "gift"]
    refused = real(*week_words(place, state, 2), *method, "--reference", "ref/00-ref")
    check_refused(refused, "update", 3, "--reference")
    assert not (state / "attempts/0003/draw-0/checkpoint").exists()
    (advised,) = re.findall("'vlcpctl (split [^']*)'", refused.err)
    assert real(*shlex.split(advised), "-q").code == 0
    done = real(*week_words(place, state, 2), *method, "--reference", "NEW/00-ref")
    assert done.code == 0, done.err
    made = CheckpointManifest.read(week(state, 2) / "checkpoint")
    assert made.identity["reference"] == open_task(tmp_path / "NEW/00-ref").id
    (tmp_path / "NEW").rename(tmp_path / "moved")
    check_refused(real(*week_words(place, state, 3)), "update", 3, "--reference")


def test_a_method_file_is_given_with_each_call_and_its_bytes_decide(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    file, trap = write_method(tmp_path / "mine.py"), tmp_path / "ran"
    mine = ["--method", "mine", "--method-file", file, "--set", "train-step.fresh-state=true"]
    assert run(*week_words(place, state, 2), *mine, "-q").code == 0
    text = (state / "update.toml").read_text()
    assert 'method = "mine"' in text
    assert "mine.py" not in text
    write_method(file, f"{MINE}\nopen({str(trap)!r}, 'w').close()\n")
    check_refused(run(*week_words(place, state, 3)), "update", 2, "mine")
    assert not trap.exists()
    words = ["update", "--state", state, "--redo", "2", "-q"]
    assert run(*words, "--method-file", file).code == 0
    assert trap.exists()
    assert State.read(state).counting[-1] == 4


def test_sets_of_classes_are_guards(real: Run, place: Path, state: Path) -> None:
    guard = ["--guard-classes", place / "silver/00-silver", "--guard", "none"]
    done = real(*week_words(place, state, 2), *guard, "--fail-if", "acc1@data=00-silver:lt:0", "-q")
    assert done.code == 0, done.err
    (verdict,) = State.read(state).head()[-1].verdicts
    assert (verdict["data"], verdict["metric"]) == ("00-silver", "acc1")
    gate = ["--fail-if", "acc1@data=00-silver:ge:0", "-q"]
    assert real(*week_words(place, state, 3), *gate).code == 7


@pytest.mark.parametrize(
    ("more", "code", "word"),
    [
        (("--batch-size", "99"), 2, "train-step"),
        (("--fail-if", "bwt_gem.t2i_r1@run=x:lt:0"), 3, "undefined"),
    ],
)
def test_after_a_line_that_failed_the_corrected_one_goes_on(
    real: Run, place: Path, state: Path, more: tuple[str, ...], code: int, word: str
) -> None:
    before = actions(state)
    failed = real(*week_words(place, state, 2), *more, "-q")
    assert (failed.code, word in failed.err) == (code, True), failed.err
    assert actions(state) == [*before, "started"]
    assert real(*week_words(place, state, 2), *PASSES, "-q").code == 0
    assert list(check_state(state, deep=False)) == []


def test_a_full_disk_leaves_a_state_that_the_same_call_completes(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    (disk := tmp_path / "disk").mkdir()
    used = sum(x.stat().st_blocks * 512 for x in state.rglob("*") if not x.is_symlink())
    size = f"size={used + 200_000}"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", disk], check=False).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        small = Path(shutil.copytree(state, disk / "prod", symlinks=True))
        guard = ["--guard", place / "golden/00-golden"]
        failed = run(*week_words(place, small, 2), *guard, "-q")
        assert failed.code not in (0, 7)
        assert State.read(small).last == 1
        assert (small / "current").resolve() == week(small, 1) / "checkpoint"
        subprocess.run(["mount", "-o", "remount,size=1g", disk], check=True)
        assert run(*week_words(place, small, 2), *guard, "-q").code == 0
        assert list(check_state(small, deep=True)) == []
    finally:
        subprocess.run(["umount", disk], check=True)

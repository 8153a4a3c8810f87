"""`update --reference`: it reaches the training, stays where the state goes, and holds no test."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.production import PASSES, week_words
from support.program import ProgramResult, check_refused

from vlcpctl.data.tasks.task import open_task
from vlcpctl.production.guards import find_reference, require_unchanged
from vlcpctl.production.layout import Layout
from vlcpctl.production.settings import Guard, Settings
from vlcpctl.production.state import read_state
from vlcpctl.testing.tiny_stream import make_task

Run = Callable[..., ProgramResult]


def _reference(place: Path, out: Path, *files: str) -> Path:
    """A task with all pairs of some files for training."""
    from support.commands import split

    tables = [pq.read_table(place / file) for file in files]
    part = pa.array(["train"] * sum(map(len, tables)))
    out.mkdir()
    pairs = pa.concat_tables(tables).append_column("part", part)
    pq.write_table(pairs, out / "pairs.parquet")
    split([str(out / "pairs.parquet")], out / "stream", "all:ref", split_column="part", quiet=True)
    return out / "stream" / "00-ref"


def _training(out: str) -> list[str]:
    return next(
        shlex.split(line) for line in out.splitlines() if line.startswith("vlcpctl train-step")
    )


def test_a_dry_run_names_it_and_its_leaks(run: Run, place: Path, state: Path) -> None:
    words = [*week_words(place, state, 2), "--dry-run", "--method", "gift"]
    silver = place / "silver" / "00-silver"
    plain = run(*words, "--reference", silver)
    line = _training(plain.out)
    assert line[line.index("--reference") + 1] == str(silver)
    count = len(open_task(silver).split("train"))
    test = open_task(place / "golden" / "00-golden").split("test")
    tested = {test.image(at) for at in range(len(test))}
    train = open_task(silver).split("train")
    leaked = sum(train.image(at) in tested for at in range(count))
    assert leaked
    said = f"# reference: {leaked} of {count} training pairs have a test image "
    assert f"{said}({leaked} of guard 00-golden); it ends with 3\n" in plain.out


def test_leaks_end_the_week_and_the_advice_leaves_them_out(
    run: Run, place: Path, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = _reference(place, tmp_path / "ref", "week-3.parquet", "week-2.parquet")
    words = [*week_words(place, state, 2), *PASSES, "-q", "--method", "gift"]
    before = read_state(Layout(state))
    # Not left out: the task is that of the user.
    refused = run(*words, "--reference", reference, "--drop-leaks")
    assert refused.code == 3
    said = refused.err.splitlines()[-1]
    found = re.search(
        r"(\d+) of 48 training pairs of --reference have a test image \((\d+) of week 2\), and "
        r"week 2 is not trained",
        said,
    )
    assert found is not None
    assert found[1] == found[2]
    assert not (state / "pending/checkpoint").exists()
    assert read_state(Layout(state)) == before
    # What it names leaves them out.
    (advised,) = re.findall("'vlcpctl (split [^']*)'", said)
    monkeypatch.chdir(tmp_path)
    assert run(*shlex.split(advised), "-q").code == 0
    (clean,) = (tmp_path / "NEW").glob("00-*")
    assert len(open_task(clean).split("train")) == 48 - int(found[1])
    done = run(*words, "--reference", clean, "--drop-leaks")
    assert done.code == 0, done.err
    made = json.loads((state / "weeks/0002/checkpoint/checkpoint.json").read_text())
    assert made["identity"]["reference"] == open_task(clean).content
    assert "gift/consolidation" in (state / "weeks/0002/checkpoint/metrics.jsonl").read_text()
    # It is kept, and a task that is not there any more is named.
    third = [*week_words(place, state, 3), "--dry-run"]
    line = _training(run(*third).out)
    assert Path(line[line.index("--reference") + 1]).resolve() == clean
    assert "  reference: 00-ref\n" in run("inspect", state).out
    assert "other reference" in run("inspect", state).out
    moved = clean.rename(tmp_path / "00-ref")
    gone = run(*third)
    check_refused(gone, "update", 3, "00-ref does not exist; --reference gives its new place")
    assert run(*third, "--reference", moved).code == 0


def test_it_is_recorded_from_the_state_directory(tmp_path: Path) -> None:
    task = make_task(tmp_path / "here" / "ref", 4)
    root = tmp_path / "here" / "prod"
    root.mkdir()
    settings = Settings(run="shop", method="snd", reference=find_reference(root, str(task)))
    assert settings.reference is not None
    assert settings.reference.path == "../ref"
    there = (tmp_path / "here").rename(tmp_path / "there")
    require_unchanged(there / "prod", settings)
    shutil.rmtree(there / "ref")
    make_task(there / "ref", 5)
    with pytest.raises(Exception, match=r"has changed.* or give it again with --reference"):
        require_unchanged(there / "prod", settings)


def test_another_one_makes_another_training_and_another_place_does_not() -> None:
    one = Settings(run="shop", method="snd", reference=Guard("../ref", "a" * 32, "ref"))
    moved = replace(one, reference=Guard("../../ref", "a" * 32, "ref"))
    other = replace(one, reference=Guard("../ref", "b" * 32, "ref"))
    assert one.different_training(moved) == {}
    words = ("ref (aaaaaaaaaaaa)", "ref (bbbbbbbbbbbb)")
    assert one.different_training(other) == {"reference": words}


def test_a_task_without_pairs_for_training_is_refused(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    task = make_task(tmp_path / "tests", splits={"test": 4})
    words = [*week_words(place, state, 2), "--dry-run", "--method", "gift"]
    assert run(*words, "--reference", task).code == 3

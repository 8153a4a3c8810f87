"""State directories: settings, copies, links, damage, deletions, and those of version 0.3."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.production import PASSES, actions, events, first_words, week, week_words
from support.program import ProgramResult, check_refused

from vlcpctl.commands.update import Update
from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.data.tasks.task import open_task
from vlcpctl.production.check import check_state
from vlcpctl.production.settings import (
    NEW,
    Settings,
    check_deployment,
    given_by,
    merge_words,
    read_settings,
    with_given,
)
from vlcpctl.production.state import State
from vlcpctl.production.toml_text import write_settings

Run = Callable[..., ProgramResult]


@pytest.mark.parametrize("how", ["cp -a", "cp -rL", "tar", "link"])
def test_a_copy_is_a_state(
    run: Run, place: Path, after_one: Path, how: str, request: pytest.FixtureRequest
) -> None:
    copy = after_one.with_name("copied")
    request.addfinalizer(lambda: copy.unlink() if copy.is_symlink() else shutil.rmtree(copy))
    if how == "tar":
        copy.mkdir()
        pipe = f"tar -C {after_one} -cf - . | tar -C {copy} -xf -"
        subprocess.run(["sh", "-c", pipe], check=True)
    elif how == "link":
        real = after_one.with_name("real")
        shutil.rmtree(real, ignore_errors=True)
        shutil.copytree(after_one, real, symlinks=True)
        copy.symlink_to(real)
    else:
        subprocess.run([*how.split(), str(after_one), str(copy)], check=True)
    done = run(*week_words(place, copy, 2), "-q")
    assert done.code == 0, done.err
    assert (copy / "current").readlink() == Path("attempts/0003/draw-0/checkpoint")
    assert (copy / "current.old").is_dir() == (how == "cp -rL")
    assert list(check_state(copy, deep=False)) == []


def test_what_stands_in_the_way_of_current_is_renamed(run: Run, place: Path, state: Path) -> None:
    (state / "current").unlink()
    (state / "current").mkdir()
    (state / "current" / "mine").touch()
    assert run("inspect", state).code == 3
    assert run(*week_words(place, state, 1)).code == 0
    assert (state / "current.old" / "mine").exists()
    assert run("inspect", state).code == 0


@pytest.mark.parametrize("name", ["state.json", "attempts/0002/draw-0/checkpoint/checkpoint.json"])
def test_damage_is_found_and_nothing_is_made(run: Run, place: Path, state: Path, name: str) -> None:
    path = state / name
    path.write_text(path.read_text().replace("week-1", "week-2").replace("content", "kontent"))
    check_refused(run(*week_words(place, state, 2)), "update", 3)
    assert run("check", state).code == 3
    assert not (state / "attempts/0003").exists()


def test_changed_weights_are_not_deployed(run: Run, place: Path, state: Path) -> None:
    weights = week(state, 1) / "checkpoint/open_clip_model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    check_refused(run(*week_words(place, state, 2)), "update", 3)
    check_refused(run(*week_words(place, state, 1)), "update", 3)
    assert any("restore" in one for one in check_state(state, deep=False))
    assert run("update", "--state", state, "--rollback", "0").code == 0


def test_events_that_are_not_of_one_time_are_refused(run: Run, place: Path, state: Path) -> None:
    path = state / "events.ndjson"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]) + lines[-1][:9])  # a kill
    assert list(check_state(state, deep=False)) == []
    assert run(*week_words(place, state, 1)).code == 0
    assert path.read_text() == "".join(lines)
    path.write_text("".join(lines) + lines[-1].replace('"number": 4', '"number": 9'))
    check_refused(run(*week_words(place, state, 1)), "update", 3)
    path.write_text("".join(lines[1:]))
    assert any("events" in one for one in check_state(state, deep=False))


def test_a_state_of_0_3_is_refused_with_the_line_that_continues_it(
    real: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    """What a version 0.3 wrote, with the model and buffer of here."""
    old = tmp_path / "old"
    last = old / "weeks/0001"
    shutil.copytree(week(state, 1) / "checkpoint", last / "checkpoint")
    shutil.copytree(week(state, 1) / "buffer", last / "buffer")
    guard = os.path.relpath(place / "golden/00-golden", old)
    recorded = {
        "schema": "vlcpctl.state/1",
        "start": {"given": "model", "ready": True},
        "settings": {"run": "old", "guards": [{"path": guard, "content": "x", "name": "g"}]},
        "weeks": [{"number": 1}],
    }
    (old / "state.json").write_text(json.dumps(recorded))
    refused = real(*week_words(place, old, 2))
    check_refused(refused, "update", 3, "--init")
    assert real("inspect", old).code == real("check", old).code == 3
    line = re.findall("vlcpctl (update NEW_DATA.*)", refused.err)[0]
    words = line.replace("NEW_DATA", str(place / "week-2.parquet")).split()
    assert {"--init", "--buffer-from", "--guard"} <= {*words}
    settings = ["--preset", "tiny", "--batch-size", "4", "--steps", "3", *PASSES, "-q"]
    done = real(*words, *settings, "--set", "buffer.size=8", "--holdout", "test=0.3")
    assert done.code == 0, done.err
    found = State.read(tmp_path / "old-2")
    before = open_task(week(state, 1) / "buffer")
    assert open_task(found.task(found.head()[0])).counts == before.counts


def test_deleted_pairs_stay_away_and_the_deletion_is_an_event(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    assert run(*week_words(place, state, 2), "--keep-columns", "customer", "-q").code == 0
    toml = state / "update.toml"
    toml.write_text(toml.read_text().replace('index-week = "none"', 'index-week = "2"'))
    words = ["--where", "customer=customer 1 & co", state, "--ticket", "case 7"]
    done = run("forget", *words)
    assert done.code == 0, done.err
    (redo,) = re.findall("'vlcpctl (update [^']*)'", done.err)
    assert [one["reason"] for one in events(state) if one["action"] == "forgotten"] == ["case 7"]
    assert list(check_state(state, deep=True)) == []
    redone = run(*shlex.split(redo), "--json", "-q")
    assert redone.code == 0, redone.err
    task = open_task(State.read(state).task(State.read(state).head()[2]))
    assert sum(task.counts.values()) == 20
    assert run("update", "--state", state, "--rollback", "1").code == 0
    again = run(*week_words(place, state, 2), "--reason", "x", "--json", "-q")
    assert again.code == 0, again.err
    assert sum(json.loads(again.out)["left_out"]["deleted"].values()) == 4
    assert actions(state)[-1] == "accepted"


SET = {  # --set: what it says in update.toml, or the exit code
    "train-step.lr=1e-4": "lr = 0.0001",
    "train-step.precision=bf16": 'precision = "bf16"',
    "train-step.nproc=2": "nproc = 2",
    "update.index-week=none": 'index-week = "none"',
    "update.threads=auto": 'threads = "auto"',
    "update.keep=3": 'keep = "3"',
    "forgetting-report.undefined=pass": 'undefined = "pass"',
    "ctp.m=0.8": 'set = ["ctp.m=0.8"]',
    "split.max-skip=5": 'max-skip = "5"',
    "train-step.lrr=1": 2,
    "train-step.lr=fast": 2,
    "train-step.model=x": 2,
    "train-step.method-file=x.py": 2,
    "update.on-accept=true": 2,
    "update.retries=2": 2,
    "update.start-from=first": 2,
    "buffer.policy=best": 2,
    "nothing.x=1": 2,
    "train-step": 2,
}


@pytest.mark.parametrize("text", SET)
def test_settings_are_set_by_section(
    run: Run, place: Path, state: Path, text: str, tmp_path: Path
) -> None:
    request = Update("data", state=tmp_path, set=[text])
    wanted = SET[text]
    if isinstance(wanted, int):
        with pytest.raises(UsageError):
            Settings(with_given(NEW, given_by(request))).check()
        return
    write_settings(tmp_path / "update.toml", with_given(NEW, given_by(request)))
    assert f"{wanted}\n" in (tmp_path / "update.toml").read_text()
    Settings(read_settings(tmp_path)).check()


def test_what_people_wrote_into_update_toml_stays(tmp_path: Path) -> None:
    path = tmp_path / "update.toml"
    path.write_text('# mine\n[split]\nholdout = "test=9"  # nine\n\n[train-step]\nlr = 1e-5\n')
    write_settings(path, {"train-step": {"lr": 0.1, "steps": 7}, "buffer": {"size": "5"}})
    text = path.read_text()
    assert text.startswith('# mine\n[split]\nholdout = "test=9"  # nine\n')
    write_settings(path, {"split": {"split-column": "part"}})
    assert '# nine\nsplit-column = "part"\n\n[train-step]\n' in path.read_text()
    write_settings(path, {"split": {"split-column": None}})
    write_settings(path, {"train-step": {"lr": None}})
    found = read_settings(tmp_path)
    assert found["train-step"] == {"method": "ctp", "preset": "update", "steps": 7}
    assert (found["split"], found["buffer"]) == ({"holdout": "test=9"}, {"size": "5"})
    path.write_text('[update]\nguard = [\n  "a",\n  "b",\n]\n')
    write_settings(path, {"update": {"guard": ['c \\ "d"\n']}})
    assert read_settings(tmp_path)["update"] == {"guard": ['c \\ "d"\n']}
    path.write_text("[update")
    with pytest.raises(BadInput):
        read_settings(tmp_path)


def test_one_of_two_takes_the_place_of_the_other() -> None:
    sections = with_given(NEW, {"train-step": {"epochs": 3}})
    sections = with_given(sections, {"train-step": {"steps": 7}})
    assert "epochs" not in sections["train-step"]
    sections = with_given(sections, {"split": {"split-column": "part"}})
    assert "holdout" not in sections["split"]
    sections = with_given(sections, {"split": {"split-column": None}})
    assert sections["split"] == {"holdout": "test=0.1"}
    with pytest.raises(UsageError):
        with_given(sections, {"split": {"split-column": "part", "holdout": "test=1"}})


def test_none_takes_a_column_of_the_split_back(tmp_path: Path) -> None:
    columns = ("split_column", "keep_columns", "image_column", "caption_column")
    for name in columns:
        given, reset = (
            given_by(Update("data", state=tmp_path, **{name: one})) for one in ("part", "none")
        )
        word = name.replace("_", "-")
        how = with_given(NEW, given)
        assert how["split"][word] == "part"
        assert with_given(how, reset)["split"] == {"holdout": "test=0.1"}


@pytest.mark.parametrize(
    ("how", "decided"),
    [
        ({"method": "ctp"}, False),
        ({"method": "der"}, True),
        ({"method": "der", "replay": "all"}, False),
    ],
)
def test_a_method_decides_what_is_replayed_unless_it_is_set(
    how: dict[str, str], decided: bool
) -> None:
    assert Settings(with_given(NEW, {"train-step": how})).methods_decide_replay == decided


@pytest.mark.parametrize(
    ("start_from", "deploy", "words"),
    [
        ("latest", "ema", ["--rule", "ema"]),
        ("merged", "ema:0.9", ["--rule", "ema", "--set", "decay=0.9"]),
        ("base", "merged", ["--rule", "average", "--weights", "3,1"]),
        ("base", "latest", None),
        ("merged", "latest", None),
        ("latest", "mean", None),
        ("latest", "ema:2", None),
    ],
)
def test_deployments(start_from: str, deploy: str, words: list[str] | None) -> None:
    if words is None:
        with pytest.raises(UsageError):
            check_deployment(start_from, deploy)
    else:
        check_deployment(start_from, deploy)
        assert merge_words(deploy, 2) == words


def test_a_merged_week_is_deployed_and_the_trained_one_is_beside_it(
    run: Run, place: Path, state: Path
) -> None:
    how = ("--set", "update.deploy=ema", "--set", "update.start-from=merged")
    assert run(*week_words(place, state, 2), *how, "-q").code == 0
    found = State.read(state)
    last = found.head()[-1]
    deployed = json.loads((found.made(last, "checkpoint") / "checkpoint.json").read_text())
    trained = json.loads((found.made(last, "trained") / "checkpoint.json").read_text())
    assert deployed["content"] == last.checkpoint != trained["content"]
    assert trained["parent"] == found.head()[1].checkpoint
    assert list(check_state(state, deep=True)) == []


@pytest.mark.parametrize(
    "words",
    [
        ("--rollback", "9"),
        ("--rollback", "0", "--lr", "1"),
        ("--redo", "1", "--init", "x"),
        ("week.parquet", "--set", "update.run=other"),
        ("week.parquet", "--guard", "GUARD", "--guard", "GUARD-2"),
        ("week.parquet", "--set", "update.index-week=5"),
        ("week.parquet", "--set", "buffer.size=5%"),
        ("week.parquet", "--init", "GUARD"),
        (),
    ],
)
def test_mistakes_are_usage_errors_before_anything_is_made(
    run: Run, place: Path, state: Path, words: tuple[str, ...]
) -> None:
    known = {"week.parquet": place / "week-2.parquet", "GUARD": place / "golden/00-golden"}
    if "GUARD-2" in words:
        shutil.copytree(place / "golden", place / "golden-2", dirs_exist_ok=True)
        known["GUARD-2"] = place / "golden-2/00-golden"
    before = actions(state)
    done = run("update", *(known.get(one, one) for one in words), "--state", state)
    check_refused(done, "update", 2)
    assert actions(state) == before


def test_a_dry_run_prints_the_lines_and_writes_nothing(
    run: Run, place: Path, tmp_path: Path
) -> None:
    words = [*first_words(place, tmp_path / "prod"), "--dry-run"]
    done = run(*words)
    every = [line.split() for line in done.out.splitlines() if not line.startswith("#")]
    assert {line.count("-q") for line in every} == {1}  # SETTINGS have it
    loud = run(*(one for one in words if one != "-q")).out.splitlines()
    assert [one.split().count("-q") for one in loud if "forgetting-report" in one] == [1]
    lines = [line[1] for line in every]
    assert lines[:3] == ["split", "buffer", "eval-retrieval"]
    assert lines[3:6] == ["split", "eval-retrieval", "train-step"]
    assert lines[-1] == "forgetting-report"
    assert "--false-alarms 0.0192308" in done.out
    assert "# not checked" in done.out
    assert not (tmp_path / "prod").exists()

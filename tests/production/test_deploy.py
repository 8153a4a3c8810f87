"""`update --start-from` and `--deploy`: what a week is trained from, and what is deployed."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.production import FAILS, PASSES, bodies, first_words, killed_at, tree, week_words
from support.program import ProgramResult, check_refused, run_program
from torch import Tensor

from vlcpctl.checkpoints.model_facts import has_batch_norms
from vlcpctl.core.errors import UsageError
from vlcpctl.deletion.places import Artifact
from vlcpctl.models.configuration import PACKAGED
from vlcpctl.production.attempt import Attempt
from vlcpctl.production.checking import check_state
from vlcpctl.production.deploying import check_deployment, merge_words
from vlcpctl.production.layout import Layout
from vlcpctl.production.lines import Call, Lines
from vlcpctl.production.state import read_state

Run = Callable[..., ProgramResult]
WEIGHTS = "open_clip_model.safetensors"
MERGED = ("--start-from", "merged", "--deploy", "ema:0.75")


def weights(checkpoint: Path) -> dict[str, Tensor]:
    return load_file(checkpoint / WEIGHTS)


def manifest(checkpoint: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((checkpoint / "checkpoint.json").read_text())
    return found


def require_mean(found: Path, models: Sequence[Path], shares: Sequence[float]) -> None:
    """Whether weights are the mean of others with these shares; counters are those of the last."""
    given = [weights(one) for one in models]
    for name, tensor in weights(found).items():
        if tensor.is_floating_point():
            wanted = sum(
                share * one[name].double() for share, one in zip(shares, given, strict=True)
            )
            torch.testing.assert_close(tensor.double(), wanted, rtol=1e-6, atol=1e-7)


@pytest.fixture(scope="module")
def deployed(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory after a week whose merged weights are deployed; tests copy it."""
    state = tmp_path_factory.mktemp("deployed") / "prod"
    with pytest.MonkeyPatch.context() as patched:
        from vlcpctl import cli

        words = [*first_words(place, state), *PASSES, *MERGED]
        patched.setattr("sys.argv", ["vlcpctl", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
    assert not stop.value.code
    return state


@pytest.fixture
def merged(deployed: Path) -> Path:
    """A copy of it, beside the original, so that relative paths stay right."""
    copy = deployed.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(deployed, copy, symlinks=True)
    return copy


def planned(run: Run, place: Path, state: Path, *more: object) -> dict[str, str]:
    """The lines of the second week by their command, from a dry run."""
    done = run(*week_words(place, state, 2), *more, "--dry-run")
    assert done.code == 0, done.err
    lines = [line.removeprefix("vlcpctl ") for line in done.out.splitlines() if line[0] != "#"]
    return {line.split()[0]: line for line in reversed(lines)}


def option(line: str, name: str) -> str:
    return re.findall(rf"{name} (\S+)", line)[0]


def test_what_is_deployed_is_the_average_and_what_was_trained_is_beside_it(
    run: Run, merged: Path
) -> None:
    week, start = merged / "weeks/0001", merged / "start/checkpoint"
    require_mean(week / "checkpoint", [start, week / "trained"], [0.75, 0.25])
    assert (merged / "current").readlink() == Path("weeks/0001/checkpoint")
    content = manifest(week / "checkpoint")["content"]
    assert read_state(Layout(merged)).checkpoint == content
    assert bodies(merged)[-1]["checkpoint"] == content
    rows = [json.loads(line) for line in (week / "rows/guards.ndjson").read_text().splitlines()]
    assert {row["checkpoint"] for row in rows} == {content}  # the gates judge it
    assert manifest(week / "trained")["parent"] == manifest(start)["content"]
    assert list(check_state(merged, deep=True)) == []
    shown = run("inspect", merged).out
    assert "deployed: ema:0.75, trained from: merged" in shown
    assert "last training: micro, ctp, lr 0.001, 3 steps, batches of 4" in shown
    page = (week / "report/week.html").read_text()
    assert f"micro, ctp, merge-ema, checkpoint {content[:12]}" in page
    assert "Contrastive loss" in page or "contrastive" in page
    assert "ema:0.75" in page


@pytest.mark.parametrize(
    ("start_from", "previous"),
    [
        ("latest", "weeks/0001/trained"),
        ("merged", "weeks/0001/checkpoint"),
        ("base", "start/checkpoint"),
    ],
)
def test_a_week_is_trained_from_what_start_from_names(
    run: Run, place: Path, merged: Path, start_from: str, previous: str
) -> None:
    lines = planned(run, place, merged, "--start-from", start_from)
    assert option(lines["train-step"], "--previous") == str(merged / previous)
    assert option(lines["train-step"], "-o") == str(merged / "pending/trained")
    models = f"merge {merged}/weeks/0001/checkpoint {merged}/pending/trained -o"
    assert lines["merge"].startswith(f"{models} {merged}/pending/checkpoint --rule ema --set ")
    assert option(lines["forgetting-report"], "--run") == option(lines["merge"], "--run")


def test_a_mean_begins_with_what_was_deployed_and_counts_its_weeks(
    run: Run, place: Path, merged: Path
) -> None:
    lines = planned(run, place, merged, "--deploy", "merged")
    assert option(lines["merge"], "--weights") == "1,1"
    path = merged / "weeks/0001"
    attempt = Attempt.read(path)
    settings = attempt.settings.with_given({"deploy": "merged"})
    Attempt(**{**vars(attempt), "settings": settings}).write(path)
    lines = planned(run, place, merged, "--deploy", "merged")
    assert option(lines["merge"], "--weights") == "2,1"


def test_without_the_options_nothing_is_written_or_run_otherwise(
    run: Run, place: Path, state: Path
) -> None:
    lines = planned(run, place, state)
    assert "merge" not in lines
    assert option(lines["train-step"], "--previous") == str(state / "weeks/0001/checkpoint")
    assert option(lines["train-step"], "-o") == str(state / "pending/checkpoint")
    for file in ("state.json", "weeks/0001/week.json"):
        assert not re.search('"(deploy|start_from)"', (state / file).read_text())
    assert not (state / "weeks/0001/trained").exists()
    # The trained weights of a week that merged nothing are the deployed ones.
    lines = planned(run, place, state, "--deploy", "ema")
    assert option(lines["train-step"], "--previous") == str(state / "weeks/0001/checkpoint")
    assert lines["merge"].endswith("--rule ema --run prod")


def test_both_can_be_taken_back(run: Run, place: Path, merged: Path) -> None:
    words = ("--start-from", "none", "--deploy", "none")
    lines = planned(run, place, merged, *words)
    assert "merge" not in lines
    assert option(lines["train-step"], "--previous") == str(merged / "weeks/0001/trained")


@pytest.mark.parametrize(
    ("start_from", "deploy", "said"),
    [
        ("last", "latest", "--start-from takes latest, merged, base, not 'last'"),
        ("latest", "ties", "--deploy takes latest, ema, merged or ema:DECAY, such as ema:0.9, not"),
        ("latest", "merged:0.5", "--deploy takes"),
        ("latest", "latest:", "--deploy takes"),
        ("latest", "ema:2", "--deploy ema:2: the value must be within [0, 1]"),
        ("latest", "ema:", "--deploy ema:"),
        ("merged", "latest", "--start-from merged has no effect with --deploy latest"),
        ("base", "latest", "would deploy a model that has learned only the last week"),
    ],
)
def test_what_makes_no_sense_is_refused(start_from: str, deploy: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        check_deployment(start_from, deploy)


def test_the_advice_of_a_refusal_is_right(run: Run, place: Path, state: Path) -> None:
    words = week_words(place, state, 2)
    refused = run(*words, "--start-from", "merged")
    check_refused(refused, "update", 2, "add --deploy ema, or --start-from latest")
    planned(run, place, state, "--start-from", "merged", "--deploy", "ema")
    refused = run(*words, "--start-from", "base")
    check_refused(refused, "update", 2, "add --deploy merged, or --start-from latest")
    planned(run, place, state, "--start-from", "base", "--deploy", "merged")


def test_the_words_of_the_merge() -> None:
    assert merge_words("ema", 3) == ["--rule", "ema"]
    assert merge_words("ema:0.9", 3) == ["--rule", "ema", "--set", "decay=0.9"]
    assert merge_words("merged", 3) == ["--rule", "average", "--weights", "4,1"]


def test_what_another_training_makes_again_ends_with_the_trained_weights(merged: Path) -> None:
    """So that a kill in between leaves a training that is merged and judged again."""
    place = Layout(merged)
    state = read_state(place)
    lines = Lines(place, state, state.settings, Call(data=()))
    assert [one.name for one in lines.of_training(place.pending)][-2:] == ["checkpoint", "trained"]


def test_missing_and_other_trained_weights_are_found(merged: Path) -> None:
    trained = merged / "weeks/0001/trained"
    shutil.rmtree(trained)
    assert [str(one) for one in check_state(merged, deep=False)] == [
        f"{trained} is missing; restore it from a backup"
    ]
    shutil.copytree(merged / "start/checkpoint", trained)
    (said,) = check_state(merged, deep=False)
    assert said.startswith(f"{trained} is not what the checkpoint beside it was merged from; ")


def test_a_week_does_not_go_on_from_other_weights_if_the_trained_ones_are_missing(
    run: Run, place: Path, merged: Path
) -> None:
    shutil.rmtree(merged / "weeks/0001/trained")
    refused = run(*week_words(place, merged, 2), "--start-from", "latest", "--dry-run")
    check_refused(refused, "update", 3, f"{merged}/weeks/0001/trained does not exist")


def test_no_week_goes_on_from_trained_weights_that_have_changed(
    run: Run, place: Path, merged: Path
) -> None:
    path = merged / "weeks/0001/trained" / WEIGHTS
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    for more in (["--dry-run"], [], ["--start-from", "latest", "--dry-run"]):
        refused = run(*week_words(place, merged, 2), *more)
        check_refused(refused, "update", 3, path, "restore it")


def test_forget_finds_what_was_trained_and_what_was_merged_from_it(merged: Path) -> None:
    week = merged / "weeks/0001"
    task = json.loads((week / "stream/00-week-0001/task.json").read_text())["content"]
    for name in ("trained", "checkpoint"):
        assert task in Artifact(week / name, "checkpoint", week / name).data


@pytest.mark.slow
def test_a_mean_over_weeks_is_that_of_the_start_and_what_each_has_trained(
    run: Run, place: Path, tmp_path: Path
) -> None:
    """Trained side by side from the base, they are tasks one after the other in rows."""
    state = tmp_path / "prod"
    how = ("--start-from", "base", "--deploy", "merged")
    assert run(*first_words(place, state), *PASSES, *how).code == 0
    for week in (2, 3):
        assert run(*week_words(place, state, week), "-q").code == 0
    weeks = [state / "weeks" / f"{week:04d}" for week in (1, 2, 3)]
    start = state / "start/checkpoint"
    trained = [week / "trained" for week in weeks]
    require_mean(weeks[2] / "checkpoint", [start, *trained], [0.25] * 4)
    for week in trained:
        assert manifest(week)["parent"] == manifest(start)["content"]
    made = [manifest(week / "checkpoint") for week in weeks]
    assert [one["step"] for one in made] == [0, 1, 2]
    assert (made[2]["task_steps"], len(set(made[2]["tasks"]))) == ([0, 1, 2], 3)
    rows = [json.loads(one) for one in (weeks[2] / "rows/weeks.ndjson").read_text().splitlines()]
    assert [(row["step"], row["task_step"]) for row in rows] == [(2, 0), (2, 1), (2, 2)]
    assert list(check_state(state, deep=True)) == []


@pytest.mark.slow
def test_a_merged_week_killed_at_each_kind_of_point_ends_as_an_undisturbed_one(
    place: Path, deployed: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("VLCPCTL_TRAIN_STEP_SAVE_EVERY", "1")
    roots = [deployed.with_name(name) for name in ("calm", "killed")]
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(deployed, root, symlinks=True)
    calm, killed = roots
    assert run_program(capfd, *week_words(place, calm, 2), "-q").code == 0
    words = [*week_words(place, killed, 2), "-q"]
    # Lines 2, 3 and 4 are the training, the merge and the buffer.
    for at in ("step=2", "renamed", "line 3", "after line 3", "judged", "pointed"):
        assert killed_at(at, words, tmp_path / "log") == -signal.SIGKILL, at
    done = run_program(capfd, *words)
    assert (done.code, done.out) == (0, f"{killed}/weeks/0002/checkpoint\n"), done.err
    assert tree(killed) == tree(calm)
    assert (calm / "weeks/0002/trained").is_dir()


@pytest.mark.slow
def test_a_rejected_an_old_and_a_rolled_back_week(run: Run, place: Path, merged: Path) -> None:
    """They lose the trained weights with the deployed ones, or keep both."""
    assert run(*week_words(place, merged, 2), *FAILS, "-q").code == 7
    assert (merged / "pending/trained").is_dir()
    assert run(*week_words(place, merged, 3), *PASSES, "--keep", "1", "-q").code == 0
    for week in (merged / "rejected/0002-1", merged / "weeks/0001"):
        assert not (week / "trained").exists()
        assert not (week / "checkpoint").exists()
    assert (merged / "weeks/0002/trained").is_dir()
    assert list(check_state(merged, deep=False)) == []
    assert run("update", "--state", merged, "--rollback", "0", "-q").code == 0
    assert (merged / "rolled-back/0002/trained").is_dir()
    assert (merged / "current").readlink() == Path("start/checkpoint")


@pytest.mark.slow
def test_a_redo_deploys_by_today_s_options(run: Run, merged: Path) -> None:
    words = ("update", "--state", merged, "--redo", "1", "--deploy", "merged", "-q")
    done = run(*words)
    assert done.code == 0, done.err
    week, start = merged / "weeks/0001", merged / "start/checkpoint"
    require_mean(week / "checkpoint", [start, week / "trained"], [0.5, 0.5])
    was = merged / "rolled-back/0001"
    assert (week / "trained" / WEIGHTS).read_bytes() == (was / "trained" / WEIGHTS).read_bytes()
    assert (merged / "current").readlink() == Path("weeks/0001/checkpoint")
    changed: Mapping[str, Any] = bodies(merged)[-1]["settings"]
    assert changed["deploy"] == {"was": "ema:0.75", "is": "merged"}
    assert list(check_state(merged, deep=True)) == []


@pytest.mark.slow
def test_merged_batch_norms_get_the_statistics_of_the_week(
    run: Run, place: Path, tmp_path: Path
) -> None:
    config = json.loads((PACKAGED / "micro.json").read_text())
    config["vision_cfg"] = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "head_width": 8}
    config["text_cfg"]["hf_tokenizer_name"] = str(PACKAGED / "tiny-tokenizer")
    (tmp_path / "resnet.json").write_text(json.dumps(config))
    model = ("--model", tmp_path / "resnet.json", "--method", "seqf", "--preset", "tiny")
    words = ("train-step", place / "golden/00-golden", *model, "--steps", 1, "--batch-size", 4)
    assert run(*words, "-o", tmp_path / "trained", "-q").code == 0
    words = ("import-checkpoint", tmp_path / "trained", "-o", tmp_path / "model", "-q")
    assert run(*words).code == 0
    assert (has_batch_norms(tmp_path / "model"), has_batch_norms(place / "model")) == (True, False)
    state = tmp_path / "prod"
    words = (*first_words(place, state), *PASSES, "--init", tmp_path / "model", "--deploy", "ema")
    done = run(*words)
    assert done.code == 0, done.err
    made = manifest(state / "weeks/0001/checkpoint")
    task = json.loads((state / "weeks/0001/stream/00-week-0001/task.json").read_text())
    assert made["identity"]["batch_norm_from"] == task["content"]

"""train_step as a whole: what it writes, what it refuses, and how it stops."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.training import column, journal, resnet, with_settings

from vlcpctl.core.errors import Incompatible, Interrupted, OutputExists
from vlcpctl.data.loading.loader import ImageCache
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.files.manifest import read_manifest
from vlcpctl.files.outputs import Output
from vlcpctl.models.dual_encoder import WEIGHTS_FILE as WEIGHTS
from vlcpctl.testing.battery import TrainingWorld, in_child, kill_at, request
from vlcpctl.testing.tiny_stream import make_pair, make_task
from vlcpctl.training.methods import compose
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.train_step import train_step


def _first(world: TrainingWorld, root: Path, names: str = "seqf", **how: object) -> TrainRequest:
    return request(world, names, 0, root, buffered=False, **how)


def test_the_journal_has_one_row_per_step_with_every_term(
    world: TrainingWorld, tmp_path: Path
) -> None:
    train_step(_first(world, tmp_path, "ctp"))
    train_step(request(world, "ctp", 1, tmp_path, buffered=False))
    rows = journal(tmp_path / "01")
    assert [row["step"] for row in rows] == list(range(6))
    terms = {"contrastive", "ctp/momentum", "ctp/cross_modal", "ctp/same_modal"}
    assert terms | {"phase", "step", "loss", "lr"} == rows[0].keys()
    assert rows[0]["loss"] == pytest.approx(sum(rows[0][term] for term in terms))  # type: ignore[misc]


@pytest.mark.parametrize("epochs", [1, 2])
def test_images_are_kept_only_for_another_epoch(
    world: TrainingWorld, tmp_path: Path, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    monkeypatch.setattr(ImageCache, "_keep", lambda _cache, key, _image: kept.append(key))
    train_step(with_settings(_first(world, tmp_path), epochs=epochs, steps=None))
    assert bool(kept) == (epochs > 1)


def test_the_manifest_says_what_was_trained(world: TrainingWorld, tmp_path: Path) -> None:
    train_step(_first(world, tmp_path))
    train_step(request(world, "er", 1, tmp_path, buffered=True))
    manifest = read_manifest(tmp_path / "01", "checkpoint")
    assert (manifest["step"], manifest["method"], manifest["pairs"]) == (1, "er", 32)
    assert manifest["buffer"] == {"policy": "reservoir", "size": 6}
    assert manifest["parent"] == read_manifest(tmp_path / "00", "checkpoint")["content"]
    assert len(manifest["tasks"]) == 2
    assert manifest["peak_memory"]["process"] > 1_000_000


def test_captions_beyond_the_text_length_are_counted(
    world: TrainingWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def pair(number: int) -> Pair:
        text = "a cat" if number % 4 else "a cat and a dog and a cat and a dog"
        return make_pair(number)._replace(captions=[text])

    task = make_task(tmp_path / "task", 12, pair=pair)
    for length in (40, 6):
        step = replace(_first(world, tmp_path / f"{length}"), tasks=(task,))
        train_step(with_settings(step, text_length=length))
    assert capsys.readouterr().err.count("about 25 % of the captions") == 1


def test_a_finished_command_does_nothing_again(world: TrainingWorld, tmp_path: Path) -> None:
    step = _first(world, tmp_path)
    train_step(step)
    before = (tmp_path / "00" / "checkpoint.json").stat().st_mtime_ns
    partial = Output(step.out).partial
    with Output(step.out).locked():
        partial.mkdir()  # as a kill after the rename leaves it
    assert train_step(step) == tmp_path / "00"
    assert (tmp_path / "00" / "checkpoint.json").stat().st_mtime_ns == before
    assert not partial.exists()


def test_another_command_at_the_same_place_is_refused_and_force_moves_aside(
    world: TrainingWorld, tmp_path: Path
) -> None:
    step = _first(world, tmp_path)
    train_step(step)
    with pytest.raises(OutputExists, match="seed was 0 and is now 1"):
        train_step(replace(step, seed=1))
    train_step(replace(step, seed=1, force=True))
    assert read_manifest(tmp_path / "00", "checkpoint")["seed"] == 1
    assert read_manifest(tmp_path / ".00.vlcpctl" / "replaced" / "00", "checkpoint")["seed"] == 0


def test_an_unfinished_run_of_another_command_is_refused(
    world: TrainingWorld, tmp_path: Path
) -> None:
    step = _first(world, tmp_path, save_every="2")
    assert in_child(step, kill_at("step=3")) == -signal.SIGKILL
    with pytest.raises(OutputExists, match="unfinished run of a different command: seed was 0"):
        train_step(replace(step, seed=1))
    with pytest.raises(Incompatible, match=r"threads was 1 and is now 2.*--accept-inexact"):
        train_step(replace(step, threads=2))
    train_step(replace(step, threads=2, accept_inexact=True))
    torch.set_num_threads(1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_at_the_step_boundary(
    world: TrainingWorld, tmp_path: Path, number: int
) -> None:
    step = _first(world, tmp_path)

    def observe(point: str) -> None:
        if point == "step=2":
            os.kill(os.getpid(), number)

    with pytest.raises(Interrupted, match="stopped after step 4"):
        train_step(step, observe)
    train_step(step)
    train_step(_first(world, tmp_path / "whole"))
    assert (tmp_path / "00" / WEIGHTS).read_bytes() == (
        tmp_path / "whole" / "00" / WEIGHTS
    ).read_bytes()


def test_two_signals_end_the_process_at_once(world: TrainingWorld, tmp_path: Path) -> None:
    def observe(point: str) -> None:
        if point == "step=2":
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)

    assert in_child(_first(world, tmp_path), observe) == 128 + signal.SIGTERM


def test_workers_change_nothing(world: TrainingWorld, tmp_path: Path) -> None:
    train_step(_first(world, tmp_path / "none"))
    train_step(_first(world, tmp_path / "two", workers=2))
    for name in (WEIGHTS, "metrics.jsonl"):
        assert (tmp_path / "none" / "00" / name).read_bytes() == (
            tmp_path / "two" / "00" / name
        ).read_bytes()


def test_memory_of_a_method_is_missing_rather_than_zero(
    world: TrainingWorld, tmp_path: Path
) -> None:
    train_step(_first(world, tmp_path))
    kept = replace(
        with_settings(request(world, "ctp", 1, tmp_path, buffered=False), negatives="all"),
        methods=compose("ctp", ["ctp.keep_queue=true"]),
    )
    with pytest.raises(Incompatible, match=r"has no state 'queue' of method ctp .*--fresh-state"):
        train_step(kept)
    train_step(replace(kept, fresh_state=True))
    assert read_manifest(tmp_path / "01", "checkpoint")["fresh_state"] is True


def test_memory_of_methods_that_do_not_run_is_carried_through(
    world: TrainingWorld, tmp_path: Path
) -> None:
    step = with_settings(_first(world, tmp_path), negatives="all")
    step = replace(step, methods=compose("ctp", ["ctp.keep_queue=true"]))
    train_step(step)
    train_step(request(world, "seqf", 1, tmp_path, buffered=False))
    files = [tmp_path / number / "method" / "ctp" / "queue.safetensors" for number in ("00", "01")]
    assert files[0].samefile(files[1])


def test_the_weights_of_the_best_epoch_are_kept(world: TrainingWorld, tmp_path: Path) -> None:
    task = make_task(tmp_path / "task", splits={"train": 12, "val": 8})
    step = replace(_first(world, tmp_path), tasks=(task,))
    step = with_settings(step, schedule="constant", warmup=0.0, lr=5e-4, epochs=6)
    train_step(with_settings(step, keep="best:val_loss"))
    losses = column(step.out, "val_loss")
    best = losses.index(min(losses))
    assert 0 < best < len(losses) - 1, losses
    until = with_settings(replace(step, out=tmp_path / "until"), epochs=best + 1)
    train_step(until)
    assert (until.out / WEIGHTS).read_bytes() == (step.out / WEIGHTS).read_bytes()


@pytest.mark.parametrize("blends", [False, True])
def test_slow_models_take_or_average_the_statistics_of_batch_norm(
    world: TrainingWorld, tmp_path: Path, *, blends: bool
) -> None:
    step = with_settings(
        _first(world, tmp_path, "ctp", save_every="1"),
        **resnet(tmp_path),
        blend_buffers=blends,
        steps=2,
    )
    assert in_child(step, kill_at("step=1")) == -signal.SIGKILL
    names = load_file(tmp_path / ".00.vlcpctl" / "partial" / "state.safetensors")
    assert ("slots/ctp/momentum:visual.bn1.running_mean" in names) == blends
    assert in_child(step) == 0


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("resize", "torch", "resize was not set and is now 'torch'"),
        ("jpeg_decode", "scaled", "jpeg_decode was 'exact' and is now 'scaled'"),
    ],
)
def test_other_pixels_make_another_run(
    world: TrainingWorld, tmp_path: Path, setting: str, value: str, told: str
) -> None:
    task = make_task(tmp_path / "task", 12, pair=lambda n: make_pair(n, size=64, kind="JPEG"))
    step = replace(_first(world, tmp_path), tasks=(task,))
    train_step(step)
    other = with_settings(step, **{setting: value})
    with pytest.raises(OutputExists, match=rf"settings\.{told}"):
        train_step(other)
    train_step(replace(other, out=tmp_path / "other"))
    plain, made = (read_manifest(one, "checkpoint") for one in (step.out, tmp_path / "other"))
    assert "resize" not in plain["identity"]["settings"]  # as before there was a choice
    assert made["identity"]["settings"][setting] == value
    found, before = load_file(tmp_path / "other" / WEIGHTS), load_file(step.out / WEIGHTS)
    assert not all(torch.equal(found[name], before[name]) for name in before)


def test_each_attempt_draws_differently_and_is_of_the_same_seed(
    world: TrainingWorld, tmp_path: Path
) -> None:
    step = request(world, "seqf", 0, tmp_path / "run", buffered=False)
    weights = []
    for attempt in (0, 1, 2):
        out = tmp_path / str(attempt)
        train_step(replace(step, out=out, attempt=attempt))
        weights.append((out / WEIGHTS).read_bytes())
        made = read_manifest(out, "checkpoint")
        assert (made["seed"], made["identity"]["attempt"]) == (0, attempt)
    assert len(set(weights)) == 3
    with pytest.raises(OutputExists, match="attempt was 2 and is now 1"):
        train_step(replace(step, out=tmp_path / "2", attempt=1))
    train_step(replace(step, out=tmp_path / "again", attempt=1))
    assert (tmp_path / "again" / WEIGHTS).read_bytes() == weights[1]

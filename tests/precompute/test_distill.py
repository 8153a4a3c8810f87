"""distill: equal to a loop over single images, with the same bytes in any number of runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from support.checkpoints import write_checkpoint_manifest
from support.commands import buffer
from support.processes import exit_code_of, start_child
from support.program import ProgramResult, check_refused, run_program

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.data.images.transforms import decode_image, train_view
from vlcpctl.data.precomputed.targets import IMAGES, SAMPLES, TEXTS, open_targets
from vlcpctl.data.tasks.task import Task, open_stream, open_task
from vlcpctl.files.manifest import is_artifact, read_manifest
from vlcpctl.files.parts import Parts
from vlcpctl.inspection.check import check
from vlcpctl.models import encoders
from vlcpctl.models.encoders import NewModelOptions
from vlcpctl.precompute import distill as distilling
from vlcpctl.precompute import distill_plan
from vlcpctl.precompute.compute_options import ComputeOptions
from vlcpctl.precompute.distill import distill
from vlcpctl.precompute.distill_plan import Distillation
from vlcpctl.testing.tiny_stream import make_pair, make_stream
from vlcpctl.training.methods import compose
from vlcpctl.training.presets import resolve
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.train_step import train_step

FLAGS = {"model": "micro", "batch_size": 4, "epochs": 1, "image_size": 16, "crop": "random"}
MEANS = ComputeOptions(batch_size=4, device="cpu", workers=0, threads=1, nproc=1)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream with two captions per image, a buffer of its first task, and a trained teacher."""
    root = tmp_path_factory.mktemp("distill")
    make_stream(root / "stream", 2, 11, pair=lambda n: make_pair(n, captions=1 + n % 2))
    make_teacher(root / "teacher", tasks(root)[0].path)
    buffer(tasks(root)[0].path, root / "buffer", policy="reservoir", size="5", quiet=True)
    return root


def make_teacher(out: Path, task: Path) -> Path:
    settings, _ = resolve("tiny", {**FLAGS, "flip": True}, {})
    train_step(TrainRequest(tasks=(task,), out=out, methods=compose("seqf"), settings=settings))
    return out


def tasks(place: Path) -> list[Task]:
    return open_stream(place / "stream")


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distill_plan, "PAIRS_OF_A_PART", 3)


def request(place: Path, out: Path, **how: Any) -> Distillation:
    usual = {"tasks": (tasks(place)[1].path,), "teacher": place / "teacher", "augmentation": {}}
    return Distillation(**{**usual, "out": out, **how})


def made(asked: Distillation, means: ComputeOptions = MEANS) -> Distillation:
    distill(asked, means, Parts(asked.out))
    return asked


def data(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in (IMAGES, TEXTS, SAMPLES)}


def samples(out: Path) -> list[tuple[str, int]]:
    table = pq.read_table(out / SAMPLES).to_pydict()
    return list(zip(table["key"], table["captions"], strict=True))


def test_a_row_is_what_the_teacher_says_of_one_view_or_caption_alone(
    place: Path, tmp_path: Path
) -> None:
    plan = made(request(place, tmp_path / "t", views=3, seed=7, buffer=place / "buffer"))
    encoder = encoders.load(place / "teacher")
    encoder.module.eval()
    splits = [task.split("train") for task in (tasks(place)[1], open_task(place / "buffer"))]
    images, texts, known = [], [], []
    with torch.no_grad():
        for split in splits:
            for row, key in enumerate(split.keys):
                known.append((key, len(split.captions(row))))
                for view in range(3):
                    pixels = train_view(
                        decode_image(split.image(row)), plan.transform, 7, key, view
                    )
                    raw, _ = encoder.features(encoder.pixels(torch.tensor(pixels)[None]), None)
                    images.append(raw[0].tolist())
                for caption in split.captions(row):
                    _, raw = encoder.features(None, encoder.tokenize([caption]))
                    texts.append(raw[0].tolist())
    assert samples(tmp_path / "t") == known
    for name, expected in ((IMAGES, images), (TEXTS, texts)):
        found = np.load(tmp_path / "t" / name)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert len(images) == 16 * 3
    assert len({tuple(one) for one in images[:3]}) == 3  # views differ


def test_the_manifest_says_what_it_is_of(place: Path, tmp_path: Path) -> None:
    plan = made(request(place, tmp_path / "t", views=2, buffer=place / "buffer"))
    manifest = read_manifest(tmp_path / "t", "targets")
    identity = manifest["identity"]
    assert identity["teacher"] == read_manifest(place / "teacher", "checkpoint")["content"]
    assert identity["tasks"] == [tasks(place)[1].content]
    assert identity["buffer"] == open_task(place / "buffer").content
    assert (identity["views"], identity["seed"]) == (2, 0)
    transform = identity["transform"]
    assert (transform["crop"], transform["flip"], transform["image_size"]) == ("random", True, 16)
    scale = encoders.load(place / "teacher").weights()["logit_scale"].exp().item()
    assert manifest["scale"] == scale
    assert (manifest["pairs"], manifest["views"], manifest["width"]) == (16, 2, 8)
    assert plan.caption_counts.sum() == len(np.load(tmp_path / "t" / TEXTS))


def test_a_pair_of_task_and_buffer_is_there_once(place: Path, tmp_path: Path) -> None:
    first = tasks(place)[0].path
    made(request(place, tmp_path / "t", tasks=(first,), views=1, buffer=place / "buffer"))
    keys = [key for key, _ in samples(tmp_path / "t")]
    assert sorted(keys) == sorted(tasks(place)[0].split("train").keys)


def test_workers_and_shards_change_no_byte(place: Path, tmp_path: Path) -> None:
    made(request(place, tmp_path / "one"))
    made(request(place, tmp_path / "workers"), replace(MEANS, workers=2))
    plan = request(place, tmp_path / "shards")
    whole = [distill(plan, MEANS, Parts(tmp_path / "shards", 3, index)) for index in (2, 0, 1)]
    assert whole == [False, False, True]
    assert data(tmp_path / "workers") == data(tmp_path / "one") == data(tmp_path / "shards")
    contents = {read_manifest(tmp_path / name, "targets")["content"] for name in ("one", "shards")}
    assert len(contents) == 1
    assert not (tmp_path / ".shards.vlcpctl").exists()


def test_killed_and_resumed_ends_with_the_same_bytes(place: Path, tmp_path: Path) -> None:
    made(request(place, tmp_path / "one"))
    asked = request(place, tmp_path / "killed")
    kills = [("images", 0), ("texts", 1), ("images", 1), ("join", 0)]
    for what, number in kills:
        child = start_child(partial(made_until, asked, what, number))
        assert exit_code_of(child) == -signal.SIGKILL
        assert (tmp_path / ".killed.vlcpctl" / "partial").is_dir()
        assert not (tmp_path / "killed").exists()
    made(asked)
    assert data(tmp_path / "killed") == data(tmp_path / "one")
    assert not (tmp_path / ".killed.vlcpctl").exists()


def made_until(asked: Distillation, what: str, number: int, _rank: int) -> None:
    """In a child: kill it after N files of a kind have been written, or before they are joined."""
    count = 0

    def dying(write: Callable[..., Any]) -> Callable[..., Any]:
        def act(*given: Any) -> Any:
            nonlocal count
            if what == "join" and write is join:
                os.kill(os.getpid(), signal.SIGKILL)
            done = write(*given)
            if what in str(given[0]):
                count += 1
                if count > number:
                    os.kill(os.getpid(), signal.SIGKILL)
            return done

        return act

    join = distilling.write_targets
    distilling.write_vectors = dying(distilling.write_vectors)
    distilling.write_targets = dying(join)
    made(asked)


def test_a_shard_that_comes_when_another_has_joined_all_changes_nothing(
    place: Path, tmp_path: Path
) -> None:
    plan = made(request(place, tmp_path / "t", views=2))
    before = (tmp_path / "t" / "targets.json").stat().st_mtime_ns
    distilling._join(plan, Parts(tmp_path / "t"), {}, force=False)
    assert (tmp_path / "t" / "targets.json").stat().st_mtime_ns == before


def test_the_augmentation_is_the_teachers_a_presets_or_as_told(place: Path, tmp_path: Path) -> None:
    own = request(place, tmp_path / "t").transform
    assert (own.crop, own.flip) == ("random", True)
    ctp = request(place, tmp_path / "t", preset="ctp").transform
    assert (ctp.crop, ctp.flip, ctp.randaugment) == ("random", True, (2, 5))
    told = request(place, tmp_path / "t", augmentation={"flip": False}).transform
    assert (told.crop, told.flip) == ("random", False)


def test_views_that_would_all_be_the_same_are_one(place: Path, tmp_path: Path) -> None:
    still = {"crop": "center", "flip": False}
    assert request(place, tmp_path / "t", augmentation=still).view_count == 1
    assert request(place, tmp_path / "t").view_count == 4
    with pytest.raises(UsageError, match="--views 2 has no effect"):
        _ = request(place, tmp_path / "t", augmentation=still, views=2).identity
    with pytest.raises(UsageError, match="--seed 3 has no effect"):
        _ = request(place, tmp_path / "t", augmentation=still, seed=3).identity


def test_a_teacher_that_was_not_trained_here_needs_a_preset(place: Path, tmp_path: Path) -> None:
    from vlcpctl.files.outputs import new_directory

    with new_directory(tmp_path / "openai", is_artifact) as directory:
        encoders.save(encoders.build("micro", NewModelOptions()), directory)
        write_checkpoint_manifest(directory, "c", identity={"imported": True})
    foreign = {"teacher": tmp_path / "openai"}
    with pytest.raises(UsageError, match="its augmentation is not known; pass the --preset"):
        _ = request(place, tmp_path / "t", **foreign).identity
    assert request(place, tmp_path / "t", **foreign, preset="ctp").transform.crop == "random"


@pytest.mark.parametrize("name", [IMAGES, TEXTS, SAMPLES])
def test_targets_that_were_changed_are_not_used(place: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "t"
    made(request(place, out, views=2))
    open_targets(out).verify()
    assert list(check(out, deep=True)) == []
    data = (out / name).read_bytes()
    if name.endswith("npy"):
        (out / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:  # other rows in a whole table
        table = pq.read_table(out / name)
        pq.write_table(table.take(list(range(len(table)))[::-1]), out / name)
    with pytest.raises(BadInput, match=rf"{name}.* has changed since it was written: "):
        open_targets(out).verify()
    assert any(name in problem for problem in check(out, deep=False))


def test_the_program_prints_the_path_when_the_last_shard_is_there(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "t"

    def run(*words: object) -> ProgramResult:
        line = ("distill", tasks(place)[1].path, "--teacher", place / "teacher", "-o", out, "-q")
        return run_program(capfd, *line, *words)

    assert (run("--num-shards", 2, "--shard-index", 1).out, out.exists()) == ("", False)
    first = ("--num-shards", 2, "--shard-index", 0)
    check_refused(run(*first, "--views", 2), "distill", 4, "--out", "--force")
    assert run(*first).out == f"{out}\n"
    assert '"views": 4' in run("--json").out
    for words, code, said in (
        (("--num-shards", 2, "--shard-index", 2), 2, "--num-shards"),
        (("--num-shards", 2, "--force"), 2, "--force"),
        (("--views", 2), 4, "views"),
    ):
        check_refused(run(*words), "distill", code, said)

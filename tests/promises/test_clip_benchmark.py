"""The published clip-benchmark, in an environment of its own, gets our very numbers.

Both read one checkpoint. For accuracies, the data is a folder of Emoji-9 with its subgroups as
classes; for recalls, what `vlcpctl export` makes of a task whose images have up to three captions.
CLIP_BENCHMARK_PYTHON is the Python of an existing environment with clip_benchmark.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from support.class_folders import write_class_folder
from support.environments import install, new_python, run
from support.program import run_program

from vlcpctl.data.images.header import read_header
from vlcpctl.data.tasks.task import open_stream
from vlcpctl.testing.tiny_stream import make_pair, make_task

# Several, so that the mean over prompts matters, and of different lengths.
TEMPLATES = ("a photo of a {c}.", "{c}", "an emoji that shows a {c}", "the {c} in many colours.")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Python that has clip-benchmark, with the versions of its libraries that are here."""
    given = os.environ.get("CLIP_BENCHMARK_PYTHON")
    if given:
        yield Path(given)
        return
    place = tmp_path_factory.mktemp("environment") / "venv"
    found = new_python(place)
    names = ("torch", "torchvision", "open_clip_torch", "timm", "transformers", "pillow")
    # It imports requests without asking for it, and stumbles over numpy 2.4.
    more = ("requests", "numpy<2.4")
    install(found, "clip-benchmark", *more, *(f"{name}=={version(name)}" for name in names))
    yield found
    shutil.rmtree(place)


def emoji_folder(root: Path, capfd: pytest.CaptureFixture[str], side: int) -> tuple[Path, Path]:
    """A stream of Emoji-9, and its test images in CLIP_benchmark's layout."""
    pairs, stream = root / "pairs.parquet", root / "stream"
    views = ("--views", 2, "--test-views", 1, "--size", side)
    assert run_program(capfd, "sample", "emoji9", "-o", pairs, "-q", *views).code == 0
    how = ("--by", "column:group", "--labels-from", "subgroup", "--split-column", "split", "-q")
    assert run_program(capfd, "split", pairs, "-o", stream, *how).code == 0
    tasks = open_stream(stream)
    classes = sorted({label for task in tasks for label in task.manifest.labels})
    images = []
    for split in [task.split("test") for task in tasks]:
        for row, label in enumerate(split.column("label")):
            data = split.image(row)
            images.append((data, read_header(data).kind, classes.index(label)))
    folder = root / "emoji9"
    return stream, write_class_folder(folder, images, classes, TEMPLATES, per_tar=700)


def theirs(
    python: Path, folder: Path, checkpoint: Path, out: Path, *more: object
) -> dict[str, float]:
    """What clip-benchmark finds, in percent; without mixed precision, as we compute."""
    run(
        *(python, "-m", "clip_benchmark.cli", "eval", "--dataset", "wds/emoji9", *more),
        *("--dataset_root", folder, "--model", f"local-dir:{checkpoint}", "--pretrained", "none"),
        *("--no_amp", "--num_workers", 0, "--batch_size", 50, "--output", out, "--quiet"),
        HF_HUB_OFFLINE="1",
        OMP_NUM_THREADS="1",
    )
    return {key: 100 * value for key, value in json.loads(out.read_text())["metrics"].items()}


def ours(capfd: pytest.CaptureFixture[str], folder: Path, checkpoint: Path) -> dict[str, Any]:
    ended = run_program(capfd, "eval-zeroshot", folder, "--checkpoint", checkpoint, "-q")
    assert ended.code == 0, ended.err
    row: dict[str, Any] = json.loads(ended.out)
    return row


@pytest.mark.slow
@pytest.mark.net
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("side", [32, 48])  # as the model takes them, and to be resized
def test_our_accuracies_are_those_of_clip_benchmark(
    python: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], side: int
) -> None:
    stream, folder = emoji_folder(tmp_path, capfd, side)
    checkpoint = tmp_path / "run"
    tasks = [task.path for task in open_stream(stream)]
    how = ("--method", "joint", "--preset", "tiny", "--epochs", 4, "-q")
    assert run_program(capfd, "train-step", *tasks, "-o", checkpoint, *how).code == 0
    row = ours(capfd, folder, checkpoint)
    found = theirs(python, folder, checkpoint, tmp_path / "theirs.json")
    with capfd.disabled():
        print(f"\n{side} px, {row['n_images']} images, {row['n_classes']} classes", end=": ")
        print(row["metrics"], found, f"n_ties {row['n_ties']}")
    # A tie, which is a miss here and which they may win by the order of the classes, is rare: there
    # is one or none, which depends on the last bits and so on the CPU.
    assert row["n_ties"] <= 1
    assert row["metrics"].keys() == found.keys()
    for key, value in found.items():
        count = row["n_classes" if key == "mean_per_class_recall" else "n_images"]
        ours_if_won = row["metrics"][key] + 100 * row["n_ties"] / count
        assert row["metrics"][key] - 1e-9 <= value <= ours_if_won + 1e-9, key


@pytest.mark.slow
@pytest.mark.net
@pytest.mark.timeout(3600)
def test_our_recalls_are_those_of_clip_benchmark_on_an_export(
    python: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task, checkpoint, folder = tmp_path / "task", tmp_path / "run", tmp_path / "export"
    make_task(
        task,
        120,
        pair=lambda number: make_pair(number, captions=1 + number % 3, size=32),
    )
    how = ("--method", "joint", "--preset", "tiny", "--epochs", 30, "--batch-size", 16, "-q")
    assert run_program(capfd, "train-step", task, "-o", checkpoint, *how).code == 0
    words = (task, "--to", "clip-benchmark", "--shard-size", "200kB")
    assert run_program(capfd, "export", *words, "-o", folder, "-q").code == 0
    assert int((folder / "train" / "nshards.txt").read_text()) > 1
    ended = run_program(
        *(capfd, "eval-retrieval", task, "--checkpoint", checkpoint),
        *("--split", "train", "--duplicates", "separate", "-q"),
    )
    row = json.loads(ended.out)
    more = ("--split", "train", "--task", "zeroshot_retrieval", "--recall_k", 1, 5, 10)
    found = theirs(python, folder, checkpoint, tmp_path / "theirs.json", *more)
    with capfd.disabled():
        print(f"\n{row['n_images']} images, {row['n_texts']} texts:", row["metrics"], found)
    assert (row["n_images"], row["n_texts"]) == (120, 240)
    assert row["n_ties"] == 0
    for ours, name in (("t2i", "image"), ("i2t", "text")):
        for k in (1, 5, 10):
            recall = found[f"{name}_retrieval_recall@{k}"]  # computed in float32
            assert row["metrics"][f"{ours}_r{k}"] == pytest.approx(recall, abs=1e-4)

"""`--num-shards` of eval-zeroshot: the bytes of one process.

Of eval-retrieval: test_eval_shards.py; of distill: tests/precompute/test_distill.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.checkpoints import write_checkpoint_manifest
from support.class_folders import write_class_folder
from support.program import run_program

from vlcpctl.data.tasks.task import open_stream
from vlcpctl.evaluation import embedding
from vlcpctl.evaluation.classification import labelled_sets
from vlcpctl.files.manifest import is_artifact
from vlcpctl.files.outputs import new_directory
from vlcpctl.models import encoders
from vlcpctl.models.encoders import NewModelOptions
from vlcpctl.testing.tiny_stream import make_image, make_pair, make_stream

CLASSES = ("cat", "dog", "bird", "fish", "frog", "horse")
TEMPLATES = ("a photo of a {c}.", "the {c}")
CPU = ("--device", "cpu", "-q")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream, a folder with an image that cannot be decoded, and two checkpoints."""
    root = tmp_path_factory.mktemp("shards")
    make_stream(root / "stream", 2, 13, test=7, pair=partial(make_pair, captions=2, labels=3))
    images = [(make_image(number), "png", number % 6) for number in range(25)]
    images[12] = (b"no image", "png", 0)
    write_class_folder(root / "pets", images, CLASSES, TEMPLATES, per_tar=11)
    (root / "templates.txt").write_text("a {c}\n")
    for step in range(2):
        make_checkpoint(root / "run" / f"{step:02d}", root / "stream", step)
    return root


def make_checkpoint(directory: Path, stream: Path, step: int) -> None:
    tasks = [task.content for task in open_stream(stream)][: step + 1]
    body = {"run": "seqf", "method": "seqf", "buffer": None, "seed": 0, "step": step}
    with new_directory(directory, is_artifact) as temporary:
        encoders.save(encoders.build("micro", NewModelOptions(seed=step)), temporary)
        write_checkpoint_manifest(temporary, f"content {step}", **body, tasks=tasks)


def words(place: Path, out: Path, *more: object) -> list[object]:
    run, tasks = place / "run", sorted((place / "stream").glob("[0-9]*"))
    line = ["eval-zeroshot", *tasks, place / "pets", "-o", out, "--batch-size", 4, "--workers", 0]
    checkpoints = ["--checkpoint", run / "00", "--checkpoint", run / "01", "--max-skip", "10%"]
    ranks = ["--save-ranks", out.parent / "ranks.parquet"]
    return [*line, *checkpoints, *ranks, "--device", "cpu", "-q", *more]


def made(directory: Path) -> dict[str, bytes]:
    """The bytes of all files below a directory."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def whole_and_joined(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("whole", "joined"):
        (tmp_path / name).mkdir()
    return tmp_path / "whole" / "out", tmp_path / "joined" / "out"


@pytest.mark.parametrize("count", [1, 2, 5])
def test_joined_shards_have_the_bytes_of_one_process(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], count: int
) -> None:
    whole, joined = whole_and_joined(tmp_path)
    assert run_program(capfd, *words(place, whole)).code == 0
    sharing = words(place, joined, "--num-shards", count)
    for index in reversed(range(count)):
        ended = run_program(capfd, *sharing, "--shard-index", index)
        assert (ended.code, ended.out) == (0, ""), ended.err
        assert [path.name for path in joined.parent.iterdir()] == [".out.vlcpctl"]
    ended = run_program(capfd, *sharing)
    assert (ended.code, ended.out) == (0, f"{joined}\n"), ended.err
    assert made(joined.parent) == made(whole.parent)
    again = run_program(capfd, *sharing, "--shard-index", 0)
    assert (again.code, again.out) == (0, f"{joined}\n")  # it is there already


def no_model(*_: object, **_more: object) -> Iterator[None]:
    raise AssertionError("a model runs")


def test_a_joining_line_runs_no_model(
    place: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = words(place, tmp_path / "out", "--num-shards", 2)
    for index in range(2):
        assert run_program(capfd, *line, "--shard-index", index).code == 0
    monkeypatch.setattr(embedding, "text_vectors", no_model)
    monkeypatch.setattr(labelled_sets, "embed_images", no_model)
    assert run_program(capfd, *line).code == 0


def test_images_come_from_the_cache_and_the_joining_line_stores_them(
    place: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three shards compute and are joined; two others then take all images from the cache."""
    rows = {name: tmp_path / name / "out" for name in ("whole", "first", "second")}
    cache = ("--embedding-cache", tmp_path / "cache")
    assert run_program(capfd, *words(place, rows["whole"])).code == 0
    line = words(place, rows["first"], "--num-shards", 3, *cache)
    for index in range(3):
        assert run_program(capfd, *line, "--shard-index", index).code == 0
    assert not list((tmp_path / "cache").rglob("*.safetensors"))
    assert run_program(capfd, *line).code == 0
    monkeypatch.setattr(labelled_sets, "embed_images", no_model)
    line = words(place, rows["second"], "--num-shards", 2)
    for index in range(2):
        assert run_program(capfd, *line, *cache, "--shard-index", index).code == 0
    assert run_program(capfd, *line).code == 0
    for name in ("first", "second"):
        assert made(rows[name].parent) == made(rows["whole"].parent)

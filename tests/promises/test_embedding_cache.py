"""--embedding-cache changes the time alone: the same rows, whatever is in the directory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.evaluators import EVALUATORS, evaluation
from support.marks import mostly_slow
from support.program import run_program

from vlcpctl.data.tasks.samples import Pair
from vlcpctl.data.tasks.task import open_task
from vlcpctl.evaluation import embedding
from vlcpctl.evaluation.classification import labelled_sets
from vlcpctl.evaluation.embedding_cache import samples_of
from vlcpctl.testing.tiny_stream import make_pair, make_task

Words = list[object]


class Counted:
    """How many images and texts were embedded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.images = self.texts = 0
        each_image, each_text = embedding.image_vectors, embedding.text_vectors
        all_images = labelled_sets.embed_images

        def count_images(encoder: Any, batches: Any) -> Iterator[np.ndarray]:
            for found in each_image(encoder, batches):
                self.images += len(found)
                yield found

        def count_texts(encoder: Any, batches: Any) -> Iterator[np.ndarray]:
            for found in each_text(encoder, batches):
                self.texts += len(found)
                yield found

        def count_labelled(encoder: Any, batches: Any) -> np.ndarray:
            found = all_images(encoder, batches)
            self.images += len(found)
            return found

        monkeypatch.setattr(embedding, "image_vectors", count_images)
        monkeypatch.setattr(embedding, "text_vectors", count_texts)
        monkeypatch.setattr(labelled_sets, "embed_images", count_labelled)

    def taken(self) -> tuple[int, int]:
        """The counts since the last call."""
        found = self.images, self.texts
        self.images = self.texts = 0
        return found


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def lines(place: Path) -> dict[str, Words]:
    """Command lines that embed, in batches of 3."""
    first, second = place / "stream" / "00-part-0", place / "stream" / "01-part-1"
    plain, queued, size = place / "plain", place / "queued", ["--batch-size", 3, "-q"]
    both = ["--checkpoint", plain, "--checkpoint", queued]
    return {
        **{
            name: [*evaluation(name, (first, second), (plain, queued)), *size, "-o", "-"]
            for name in EVALUATORS
        },
        "merged": ["eval-retrieval", first, second, *both, "--gallery", "both", *size],
        "separate": ["eval-retrieval", first, *both, "--duplicates", "separate", *size],
        "train": ["eval-retrieval", first, "--split", "train", *both, "--limit", 10, *size],
    }


NAMES = tuple(lines(Path()))


def rows(capfd: pytest.CaptureFixture[str], line: Words, *more: object) -> str:
    ended = run_program(capfd, *line, *more)
    assert ended.code == 0, ended.err
    assert ended.out
    return ended.out


def files(cache: Path) -> Iterator[Path]:
    yield from (path for path in sorted(cache.rglob("*")) if path.is_file())


@pytest.mark.parametrize("name", mostly_slow(NAMES, kept=["merged", "eval-probe"]))
def test_rows_are_the_same_bytes_with_and_without_it(
    name: str, place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], counted: Counted
) -> None:
    line, cache = lines(place)[name], tmp_path / "new" / "cache"
    wanted = rows(capfd, line)
    assert rows(capfd, line, "--embedding-cache", cache) == wanted
    counted.taken()
    assert rows(capfd, line, "--embedding-cache", cache) == wanted
    assert counted.taken() == (0, 0)
    names = {"embeddings.npy", "samples.parquet", "cached.json"}
    assert {path.name for path in files(cache)} == names


def test_every_evaluator_reads_what_another_one_stored(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], counted: Counted
) -> None:
    line, cache = lines(place), tmp_path / "cache"
    wanted = {name: rows(capfd, line[name]) for name in NAMES}
    counted.taken()
    rows(capfd, line["merged"], "--embedding-cache", cache)
    images, texts = counted.taken()
    assert images
    assert texts
    assert rows(capfd, line["separate"], "--embedding-cache", cache) == wanted["separate"]
    assert (
        rows(capfd, line["spatial-report"], "--embedding-cache", cache) == wanted["spatial-report"]
    )
    assert counted.taken() == (0, 0)
    assert rows(capfd, line["eval-zeroshot"], "--embedding-cache", cache) == wanted["eval-zeroshot"]
    assert counted.taken()[0] == 0  # only the prompts
    assert rows(capfd, line["eval-probe"], "--embedding-cache", cache) == wanted["eval-probe"]
    train, _ = counted.taken()
    assert train > 0  # of its train split; the test split is there
    assert rows(capfd, line["eval-probe"], "--embedding-cache", cache) == wanted["eval-probe"]
    assert counted.taken() == (0, 0)


def test_what_leaves_out_an_image_is_not_read_by_what_refuses_it(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Classification stores the other images; retrieval would take them for all of the split."""

    def pair(number: int) -> Pair:
        whole = make_pair(number, labels=2)
        data = bytearray(whole.image or b"")
        middle = len(data) // 2
        data[middle : middle + 8] = bytes(8)
        return whole._replace(image=bytes(data)) if number == 1 else whole

    task = make_task(tmp_path / "task", splits={"test": 6}, pair=pair)
    how = (task, "--checkpoint", place / "plain", "-q", "--embedding-cache", tmp_path / "cache")
    (row,) = map(json.loads, rows(capfd, ["eval-zeroshot", *how, "--max-skip", 1]).splitlines())
    assert (row["n_images"], row["n_skipped"]) == (5, 1)
    for _ in range(2):  # nothing was stored, either
        ended = run_program(capfd, "eval-retrieval", *how)
        assert ended.code == 3, ended.err
        assert "cannot be decoded" in ended.err


@pytest.mark.parametrize(
    "damage",
    mostly_slow(
        ["byte", "short", "empty", "swapped", "samples", "manifest"], kept=["swapped", "samples"]
    ),
)
def test_a_damaged_or_foreign_file_is_not_used(
    damage: str, place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], counted: Counted
) -> None:
    line, cache = lines(place)["merged"], tmp_path / "cache"
    wanted = rows(capfd, line, "--embedding-cache", cache)
    stored = {path: path.read_bytes() for path in files(cache) if path.suffix != ".json"}
    name = {"samples": "samples.parquet", "manifest": "cached.json"}.get(damage, "embeddings.npy")
    paths = [path for path in files(cache) if path.name == name]
    for number, path in enumerate(paths):
        data = bytearray(path.read_bytes())
        data[-9] ^= 1
        new = {"short": bytes(data[:-200]), "empty": b"", "manifest": b"text"}
        if damage == "swapped":
            new[damage] = stored[paths[number - 1]]
        path.write_bytes(new.get(damage, bytes(data)))
    counted.taken()
    ended = run_program(capfd, *line, "--embedding-cache", cache)
    assert ended.out == wanted
    assert counted.taken()[0] > 0
    warnings = [text for text in ended.err.splitlines() if "computing the embeddings again" in text]
    assert len(warnings) == len(paths)
    assert {path: path.read_bytes() for path in stored} == stored


def test_another_batch_size_or_number_of_threads_is_another_key(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], counted: Counted
) -> None:
    first, cache = place / "stream" / "00-part-0", tmp_path / "cache"
    line = ["eval-retrieval", first, "--checkpoint", place / "plain", "-q"]
    for more in (["--batch-size", 3], ["--batch-size", 4], ["--batch-size", 4, "--limit", 2]):
        rows(capfd, line, *more, "--embedding-cache", cache)
        assert counted.taken()[0] > 0


def test_a_cache_that_cannot_be_written_to_is_named_once(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    line, cache = lines(place)["merged"], tmp_path / "cache"
    wanted = rows(capfd, line)
    rows(capfd, line, "--embedding-cache", cache)
    for folder in list(cache.iterdir()):
        shutil.rmtree(folder)
        folder.write_text("in the way")
    ended = run_program(capfd, *line, "--embedding-cache", cache)
    assert ended.out == wanted
    assert sum("the embeddings are not kept" in text for text in ended.err.splitlines()) == 1


def test_a_file_is_not_a_cache(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "file"
    other.write_text("text")
    ended = run_program(capfd, *lines(place)["merged"], "--embedding-cache", other)
    assert ended.code == 2
    assert "is not a directory" in ended.err
    assert other.read_text() == "text"


def test_forget_deletes_cached_embeddings_of_a_pair(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = shutil.copytree(place, tmp_path / "inputs")
    stream, cache = place / "stream", tmp_path / "cache"
    line = ["eval-retrieval", stream / "00-part-0", stream / "01-part-1", "-q"]
    line += ["--checkpoint", place / "plain", "--embedding-cache", cache]
    rows(capfd, line)
    key = open_task(stream / "00-part-0").split("test").keys[0]
    entries = {path.parent for path in files(cache)}
    before = {entry for entry in entries if key in samples_of(entry)}
    assert len(before) == 2 < len(entries)  # its image, and its texts
    ended = run_program(capfd, "forget", "--key", key, "--dry-run", stream, cache, "-q")
    assert ended.out.count("delete cached-embeddings") == 2
    assert {path.parent for path in files(cache)} == entries
    ended = run_program(capfd, "forget", "--key", key, stream, cache, "-q")
    assert ended.code == 0, ended.err
    assert {path.parent for path in files(cache)} == entries - before
    rows(capfd, line)
    assert not any(key in samples_of(path.parent) for path in files(cache))


def test_forget_refuses_a_damaged_file_of_the_cache(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place, cache = shutil.copytree(place, tmp_path / "inputs"), tmp_path / "cache"
    first = place / "stream" / "00-part-0"
    line = ["eval-retrieval", first, "--checkpoint", place / "plain", "-q"]
    rows(capfd, line, "--embedding-cache", cache)
    damaged = next(path for path in files(cache) if path.suffix == ".parquet")
    damaged.write_bytes(damaged.read_bytes()[:-10])
    key = open_task(first).split("test").keys[0]
    ended = run_program(capfd, "forget", "--key", key, place / "stream", cache, "-q")
    assert ended.code == 3
    assert f"cannot read {damaged}: " in ended.err
    assert "; delete it, evaluations compute it again" in ended.err
    assert key in open_task(first).split("test").keys

"""--embedding-cache changes the time alone: the same rows, whatever is in the directory."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.evaluators import EVALUATORS, evaluation
from support.marks import mostly_slow
from support.program import run_program

from vlcpctl.data.tasks.samples import Pair
from vlcpctl.data.tasks.task import open_task
from vlcpctl.evaluation import embedding
from vlcpctl.evaluation.classification import labelled_sets
from vlcpctl.testing.tiny_stream import make_pair, make_task

Words = list[object]


class Counted(Counter[str]):
    """How many batches of images and texts were embedded."""

    def of(self, batches: Iterable[Any], kind: str) -> Iterator[Any]:
        for batch in batches:
            self[kind] += 1
            yield batch

    def taken(self) -> tuple[int, int]:
        """The counts since the last call."""
        found = self["images"], self["texts"]
        self.clear()
        return found


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counts = Counted()

    def watch(module: ModuleType, name: str, kind: str) -> None:
        embed = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda encoder, batches: embed(encoder, counts.of(batches, kind))
        )

    watch(embedding, "image_vectors", "images")
    watch(embedding, "text_vectors", "texts")
    watch(labelled_sets, "embed_images", "images")
    return counts


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
    for name in ("separate", "spatial-report"):
        assert rows(capfd, line[name], "--embedding-cache", cache) == wanted[name]
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

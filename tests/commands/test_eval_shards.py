"""`--num-shards` of eval-retrieval and eval-zeroshot: the bytes of one process.

Of distill: tests/precompute/test_distill.py.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import save_encoder
from support.class_folders import write_class_folder
from support.marks import mostly_slow
from support.processes import exit_code_of, start_child
from support.program import ProgramResult, check_refused, run_program

from vlcpctl.data.tasks.task import open_stream
from vlcpctl.evaluation import embedding
from vlcpctl.evaluation.classification import labelled_sets
from vlcpctl.evaluation.retrieval import protocols
from vlcpctl.files.manifest import read_manifest
from vlcpctl.files.outputs import Output
from vlcpctl.files.parts import Parts
from vlcpctl.models import encoders
from vlcpctl.models.encoders import NewModelOptions
from vlcpctl.testing.tiny_stream import make_image, make_pair, make_stream

CLASSES = ("cat", "dog", "bird", "fish", "frog", "horse")
RANKS = ("--save-ranks", "ranks.parquet")
SEARCHES: dict[str, tuple[str, ...]] = {
    "own": ("--save-embeddings", "emb", *RANKS),
    "merged": ("--gallery", "merged", "--save-embeddings", "emb"),
    "index": ("--gallery-checkpoint", "old", "--distractors", "more", "--distractors-by", "query"),
    "distractors": ("--gallery-checkpoint", "old", "--distractors", "more"),
    "multi-modal": ("--protocol", "multi-modal", "--gallery", "both"),
    "sigmoid": ("--gallery", "both"),
}
KINDS = {**SEARCHES, "zero-shot": ("--max-skip", "10%", *RANKS)}
MODELS = {"run": "micro", "multi-modal": "albef-micro", "sigmoid": "micro"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream, other tasks, a folder with a broken image, and checkpoints of both families."""
    root = tmp_path_factory.mktemp("shards")
    pair = partial(make_pair, captions=2, labels=4)
    make_stream(root / "stream", 2, 4, test=13, pair=pair)
    make_stream(root / "others", 1, 4, test=7, pair=lambda number: pair(number + 500))
    images = [(make_image(number), "png", number % 6) for number in range(25)]
    images[12] = (b"no image", "png", 0)
    templates = ("a photo of a {c}.", "the {c}")
    write_class_folder(root / "pets", images, CLASSES, templates, per_tar=11)
    contents = [task.content for task in open_stream(root / "stream")]
    for name, model in MODELS.items():
        for step in range(3):
            how = NewModelOptions(seed=step, is_sigmoid=name == "sigmoid" or None, batch_size=8)
            facts = {"content": f"content {model} {step}", "tasks": contents[: step + 1]}
            encoder = encoders.build(model, how)
            save_encoder(root / name / f"{step:02d}", encoder, step=step, **facts)
    return root


def words(place: Path, out: Path, kind: str = "own", *more: object) -> list[object]:
    """A line that evaluates two checkpoints; its other outputs are beside its rows."""
    run = place / (kind if kind in MODELS else "run")
    (other,) = (place / "others").glob("[0-9]*")
    paths = {"emb": out.parent / "emb", "ranks.parquet": out.parent / "ranks.parquet"}
    paths |= {"old": run / "00", "more": other}
    options = [paths.get(word, word) for word in KINDS[kind]]
    checkpoints = ["--checkpoint", run / "00", "--checkpoint", run / "01"]
    data = sorted((place / "stream").glob("[0-9]*"))
    if kind == "zero-shot":
        data.append(place / "pets")
    command = "eval-zeroshot" if kind == "zero-shot" else "eval-retrieval"
    # 13 images are batches of 5, 5 and 3.
    how = ["--batch-size", 5, "--device", "cpu", "--workers", 0, "-q"]
    return [command, *data, *checkpoints, "-o", out, *options, *how, *more]


def made(directory: Path) -> dict[str, Any]:
    """The bytes of all files below a directory, of manifests what does not depend on time."""
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        if path.name == "embeddings.json":
            manifest = read_manifest(path.parent, "embeddings")
            found[str(path)] = {name: manifest[name] for name in ("content", "digests", "inputs")}
        elif path.is_file():
            found[str(path)] = path.read_bytes()
    return {name.removeprefix(str(directory)): value for name, value in found.items()}


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Any:
    """Runs lines that must end well."""

    def run(*line: object) -> ProgramResult:
        ended = run_program(capfd, *line)
        assert ended.code == 0, ended.err
        return ended

    return run


@pytest.fixture
def whole(place: Path, tmp_path: Path, run: Any) -> Any:
    """What one process makes, by kind."""

    def whole(kind: str = "own") -> dict[str, Any]:
        run(*words(place, tmp_path / "whole" / "rows", kind))
        return made(tmp_path / "whole")

    return whole


def noted(monkeypatch: pytest.MonkeyPatch, asked: list[int]) -> None:
    """Add the number of queries of each search to `asked`."""

    def noting(real: Any) -> Any:
        def search(first: Any, *more: Any) -> Any:
            asked.append(len(more[-1] if isinstance(more[-1], range) else first))
            return real(first, *more)

        return search

    for name in ("ranks", "exact_ranks"):
        monkeypatch.setattr(protocols, name, noting(getattr(protocols, name)))
    monkeypatch.setattr(protocols, "hits", noting(protocols.hits))


@pytest.mark.parametrize(
    "shared",
    mostly_slow(
        [
            *((kind, 2) for kind in KINDS),
            *(("own", 1), ("own", 5), ("merged", 5), ("zero-shot", 5)),
        ],
        kept=[("index", 2), ("multi-modal", 2), ("own", 5), ("zero-shot", 5)],
    ),
    ids=lambda shared: f"{shared[0]}-{shared[1]}",
)
def test_joined_shards_have_the_bytes_of_one_process(
    place: Path,
    tmp_path: Path,
    run: Any,
    whole: Any,
    monkeypatch: pytest.MonkeyPatch,
    shared: tuple[str, int],
) -> None:
    """Of retrieval, a second round of the shards searches; the joining line what one left out."""
    (kind, count), joined, left_out = shared, tmp_path / "joined" / "rows", 3
    sharing = words(place, joined, kind, "--num-shards", count)
    searching = [one for one in range(count) if one != left_out] if kind in SEARCHES else []
    for index in (*reversed(range(count)), *searching):
        assert run(*sharing, "--shard-index", index).out == ""
        assert [path.name for path in joined.parent.iterdir()] == [".rows.vlcpctl"]
    expected = whole(kind)
    asked: list[int] = []
    noted(monkeypatch, asked)
    for part in (embedding, labelled_sets):  # the joining line runs no model
        for name in ("image_vectors", "text_vectors", "embed_images"):
            monkeypatch.delattr(part, name, raising=False)
    assert run(*sharing).out == f"{joined}\n"
    assert bool(asked) is (kind in SEARCHES and count > left_out)
    assert made(joined.parent) == expected
    assert run(*sharing, "--shard-index", 0).out == f"{joined}\n"  # it is there already


def test_a_shard_that_was_killed_computes_only_what_it_lacks(
    place: Path,
    tmp_path: Path,
    run: Any,
    whole: Any,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed while it embeds and while it searches; each time three more parts are there."""
    rows = tmp_path / "cut" / "rows"
    line = words(place, rows, "own", "--num-shards", 2)
    keep, kept = Parts.keep, list[str]()

    def killed_after(count: int) -> None:
        def dying(self: Parts, name: str, *given: Any) -> None:
            keep(self, name, *given)
            kept.append(name)
            if len(kept) == count:
                os.kill(os.getpid(), signal.SIGKILL)

        def act(_: int) -> None:
            monkeypatch.setattr(Parts, "keep", dying)
            run(*line, "--shard-index", 1)

        assert exit_code_of(start_child(act)) == -signal.SIGKILL

    def then_keeps() -> int:
        before = len(Parts(rows).listed())
        run(*line, "--shard-index", 1)
        return len(Parts(rows).listed()) - before

    killed_after(3)
    run(*line, "--shard-index", 0)
    check_refused(run_program(capfd, *line), "eval-retrieval", 3, "--shard-index 1")
    # Images and texts of two tasks by two checkpoints, the end; both directions of the same.
    assert then_keeps() == 8 - 3 + 1
    killed_after(3)
    assert then_keeps() == 8 - 3
    run(*line)
    assert made(rows.parent) == whole()


def test_what_was_changed_is_computed_again(
    place: Path, tmp_path: Path, run: Any, whole: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "joined" / "rows"
    join = words(place, rows, "own", "--num-shards", 2)
    for index in (0, 1, 1):
        run(*join, "--shard-index", index)
    for kind in ("npz", "npy"):
        file = max(Output(rows).partial.glob(f"*.{kind}"))
        data = file.read_bytes()
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    # It searches what is missing, but embeds nothing.
    ended = run_program(capfd, *join)
    assert (ended.code, rows.exists(), "--shard-index 1" in ended.err) == (3, False, True)
    for index in range(2):
        run(*join, "--shard-index", index)
    run(*join)
    assert made(rows.parent) == whole()


def test_shards_of_something_else_are_refused_and_not_dropped(
    place: Path, tmp_path: Path, run: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    rows, shares = tmp_path / "rows", ("--num-shards", 2)
    for index in range(2):
        run(*words(place, rows, "own", *shares, "--shard-index", index, "--threads", 1))
    (other,) = (place / "others").glob("[0-9]*")
    for change, word in (
        ((*shares, "--threads", 1, "--batch-size", 4), "batch_size was 5 and is now 4"),
        ((*shares, "--threads", 2), "threads was 1 and is now 2"),
        ((*shares, "--threads", 1, "--limit", 9), "limit"),
        ((*shares, "--threads", 1, "--split", "train"), "split"),
        ((*shares, "--threads", 1, "--checkpoint", place / "run" / "02"), "checkpoints"),
        ((*shares, "--threads", 1, "--distractors", other), "distractors"),
        (("--num-shards", 3, "--threads", 1), "shards was 2 and is now 3"),
        (("--threads", 1), "--num-shards"),
    ):
        line = words(place, rows, "own", *change)
        check_refused(run_program(capfd, *line), "eval-retrieval", 4, word)
        assert not rows.exists()
    run(*words(place, rows, "own", "--force"))
    assert not Output(rows).hidden.exists()


def test_images_come_from_the_cache_and_the_joining_line_stores_them(
    place: Path, tmp_path: Path, run: Any, whole: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three shards compute and are joined; two others then take all images from the cache."""
    cache, expected = ("--embedding-cache", tmp_path / "cache"), whole("zero-shot")
    for name, count in (("first", 3), ("second", 2)):
        rows = tmp_path / name / "rows"
        line = words(place, rows, "zero-shot", "--num-shards", count, *cache)
        for index in range(count):
            run(*line, "--shard-index", index)
            assert any((tmp_path / "cache").rglob("*.npy")) == (name == "second")
        run(*line)
        assert made(rows.parent) == expected
        monkeypatch.delattr(labelled_sets, "embed_images", raising=False)

"""Objects of a store, read through a cache: what is fetched, how often, and how it fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.object_store import Store, object_store
from support.processes import exit_code_of, run_line, run_together, start_child
from support.program import check_refused, run_program

from vlcpctl.core.errors import VlcpError
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.files import stores
from vlcpctl.files.inputs import open_regular
from vlcpctl.files.stores import stored, use_cache, whole
from vlcpctl.testing.tiny_stream import make_pair, make_task

fsspec, s3fs = pytest.importorskip("fsspec"), pytest.importorskip("s3fs")
pytestmark = pytest.mark.filterwarnings("ignore")  # Amazon's libraries warn of their use of Python

TRAIN = ("--method", "seqf", "--preset", "tiny", "--model", "micro", "--quiet")
OBJECT = "s3://data/one"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with object_store() as one:
        s3fs.S3FileSystem.clear_instance_cache()  # those of an earlier server
        for name, value in one.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(stores, "_DEADLINE", 0.5)
        monkeypatch.setattr(stores, "_PIECE", 1 << 16)
        monkeypatch.setattr(s3fs.S3FileSystem, "read_timeout", 1)
        yield one
    os.environ.pop(stores.CACHE_SETTING, None)


@pytest.fixture
def cache(tmp_path: Path, store: Store) -> Path:
    return use_cache(tmp_path / "cache")


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("task")
    return make_task(root / "task", 64, pair=photo, shard_bytes=500_000)


def photo(number: int) -> Pair:
    """A pair with an image of 35 kB: images between those of a batch are too large to read over."""
    return make_pair(number, size=120)


def read(url: str) -> bytes:
    with open_regular(stored(url)) as file:
        return file.read()


def weights(checkpoint: Path) -> dict[str, bytes]:
    """The files of a checkpoint but its manifest, which has times."""
    files = sorted(path for path in checkpoint.rglob("*") if path.is_file())
    return {path.name: path.read_bytes() for path in files if path.name != "checkpoint.json"}


@pytest.mark.parametrize("size", [0, 1, 1 << 16, (1 << 20) + 5])
def test_an_object_is_fetched_once_in_pieces(store: Store, cache: Path, size: int) -> None:
    data = store.objects["one"] = os.urandom(size)
    assert read(OBJECT) == read(OBJECT) == data
    assert store.gets == -(-size >> 16)


def test_an_object_that_changed_is_never_served_stale(store: Store, cache: Path) -> None:
    first, second = os.urandom(100), os.urandom(100)
    for data in (first, second, first):
        store.objects["one"] = data
        assert read(OBJECT) == data
    assert store.gets == 2
    store.objects["one"] = os.urandom(100)
    path = stored(OBJECT)
    store.objects["one"] = second
    with pytest.raises(VlcpError, match="was replaced"):
        whole(path)


def test_an_object_of_another_store_that_was_replaced_is_refused(cache: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe_file("bucket/one", b"first")
    path = stored("memory://bucket/one")
    memory.pipe_file("bucket/one", b"other")
    with pytest.raises(VlcpError, match="was replaced"):
        whole(path)
    assert read("memory://bucket/one") == b"other"


def test_an_answer_with_another_version_than_the_listed_one_is_refused(
    store: Store, cache: Path
) -> None:
    store.objects["dir/one"], store.listed["dir/one"] = os.urandom(100), os.urandom(100)
    with pytest.raises(VlcpError, match="dir/one"):
        whole(stored("s3://data/dir") / "one")
    assert not [*(cache / "data").glob("*.xxh3")]


def test_damage_in_the_cache_is_fetched_again(store: Store, cache: Path) -> None:
    data = store.objects["one"] = os.urandom(100)
    kept = whole(stored(OBJECT))
    kept.write_bytes(b"damaged")
    stores._checked.clear()  # as in another process
    assert read(OBJECT) == data


@pytest.mark.parametrize("fails", [403, 404, 500, "silent"])
def test_a_store_that_never_gives_the_bytes_ends_a_command_in_one_line(
    tmp_path: Path, task: Path, store: Store, capfd: pytest.CaptureFixture[str], fails: int | str
) -> None:
    url, store.fails, store.is_bad = store.put(task, "task"), fails, lambda _: True
    words = ("train-step", url, "-o", tmp_path / "o", *TRAIN, "--cache", tmp_path / "cache")
    ended = run_program(capfd, *words)
    check_refused(ended, "train-step", 1, f"{url}/task.json", tmp_path / "cache")
    assert store.gets <= 2  # no client asks again by itself


def test_training_while_answers_fail_has_the_bytes_of_a_local_task(
    tmp_path: Path,
    task: Path,
    store: Store,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stores, "_DEADLINE", 30)
    url, steps = store.put(task, "task"), ("--batch-size", "8", "--steps", "2")
    store.is_bad = lambda number: number % 5 == 0
    for name, source, more in (
        ("local", task, ()),
        ("cold", url, ("--cache", tmp_path / "cache", "--workers", "2")),
        ("warm", url, ("--cache", tmp_path / "cache")),
    ):
        words = ("train-step", source, "-o", tmp_path / name, *TRAIN, *steps, *more)
        store.asked.clear()
        found = run_program(capfd, *words)
        assert found.code == 0, found.err
        assert weights(tmp_path / name) == weights(tmp_path / "local")
    assert store.gets == 0
    sent = sum(store.sent_to.values())
    assert 0 < sent < sum(path.stat().st_size for path in task.glob("*.tar")) / 2


def test_a_training_that_the_store_ended_goes_on_from_a_local_copy(
    tmp_path: Path, task: Path, store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    url, words = store.put(task, "task"), ("--batch-size", "8", "--steps", "3", "--save-every", "1")
    assert run_program(capfd, "train-step", task, "-o", tmp_path / "e", *TRAIN, *words).code == 0
    out, store.is_bad = ("-o", tmp_path / "o"), lambda number: number > 16
    ended = run_program(
        capfd, "train-step", url, *out, *TRAIN, *words, "--cache", tmp_path / "cache"
    )
    check_refused(ended, "train-step", 1, "run the command again")
    resumed = run_program(capfd, "train-step", task, *out, *TRAIN[:-1], *words)
    assert (resumed.code, "resum" in resumed.err) == (0, True), resumed.err
    assert weights(tmp_path / "o") == weights(tmp_path / "e")


def test_processes_share_a_cache_and_one_of_them_fetches(store: Store, cache: Path) -> None:
    data = store.objects["one"] = os.urandom(1 << 20)

    def act(_: int) -> None:
        assert read(OBJECT) == data

    children = [start_child(act) for _ in range(4)]
    assert [exit_code_of(one) for one in children] == [0] * 4
    assert store.gets == 16


@pytest.mark.slow
def test_each_of_eight_nodes_fetches_an_eighth(tmp_path: Path, task: Path, store: Store) -> None:
    url = store.put(task, "task")

    def act(rank: int) -> None:
        os.environ.update(store.environment(f"node-{rank}"))
        words = ("train-step", url, "-o", tmp_path / "o", *TRAIN, "--epochs", "1")
        run_line((*words, "--batch-size", "32", "--cache", tmp_path / f"{rank}"), tmp_path / "log")

    assert run_together(act, 8) == [0] * 8
    indexes = sum(path.stat().st_size for path in task.iterdir() if path.suffix != ".tar")
    images = sum(len(photo(number).image or b"") for number in range(64))
    fetched = [store.sent_to[f"node-{rank}"] - indexes for rank in range(8)]
    assert max(fetched) < 1.05 * images / 8
    assert sum(fetched) == pytest.approx(images, rel=0.01)  # each image by one node

"""Tasks and sources in an object store: the bytes of local copies, with any cache, twice at once.

The server is moto's, on this machine; without it and s3fs these tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.class_folders import write_class_folder
from support.object_store import Store, object_store
from support.processes import run_line, run_together
from support.production import PASSES, SETTINGS, write_week
from support.program import check_refused, run_program

from vlcpctl.data.tasks.samples import Pair
from vlcpctl.testing.tiny_stream import make_image, make_pair, make_stream, make_task

pytest.importorskip("moto")
pytest.importorskip("s3fs")
# Libraries of Amazon warn of their own use of Python.
pytestmark = pytest.mark.filterwarnings("ignore")

PAIRS = 24
TRAIN = ("--method", "seqf", "--preset", "tiny", "--model", "micro", "--batch-size", "4")
STEPS = (*TRAIN, "--steps", "4", "--quiet")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream, and a checkpoint and rows made of its first task."""
    root = tmp_path_factory.mktemp("local")
    make_stream(root / "stream", 1, PAIRS)
    return root


@pytest.fixture(scope="module")
def task(local: Path) -> Path:
    (found,) = (local / "stream").glob("00-*")
    return found


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    import s3fs

    with object_store() as one:
        s3fs.S3FileSystem.clear_instance_cache()  # those of an earlier server
        for name, value in one.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("vlcpctl.files.object_stores._WAITS", (0.0, 0.01, 0.02, 0.04))
        yield one
    os.environ.pop("_VLCPCTL_STORE_CACHE", None)


def weights(checkpoint: Path) -> dict[str, bytes]:
    """The files of a checkpoint but its manifest, which has times."""
    files = sorted(path for path in checkpoint.rglob("*") if path.is_file())
    return {path.name: path.read_bytes() for path in files if path.name != "checkpoint.json"}


def used(cache: Path) -> int:
    """The bytes on the disk of what a cache has read."""
    return sum(path.stat().st_blocks * 512 for path in (cache / "data").iterdir())


def train(capfd: pytest.CaptureFixture[str], task: object, out: Path, *more: object) -> Path:
    found = run_program(capfd, "train-step", task, "-o", out, *STEPS, *more)
    assert found.code == 0, found.err
    return out


@pytest.fixture
def expected(tmp_path: Path, task: Path, capfd: pytest.CaptureFixture[str]) -> dict[str, bytes]:
    return weights(train(capfd, task, tmp_path / "expected"))


def test_training_has_the_bytes_of_a_local_task_and_a_warm_cache_asks_for_nothing(
    tmp_path: Path,
    task: Path,
    store: Store,
    expected: dict[str, bytes],
    capfd: pytest.CaptureFixture[str],
) -> None:
    url, cache = store.put(task, "task"), tmp_path / "cache"
    assert weights(train(capfd, url, tmp_path / "cold", "--cache", cache)) == expected
    tars = sum(path.stat().st_size for path in task.glob("*.tar"))
    whole = sum(path.stat().st_size for path in task.iterdir())
    assert 0 < store.sent < whole  # no test split, no captions in tars
    assert store.sent - (whole - tars) < tars
    store.sent = 0
    warm = train(capfd, url, tmp_path / "warm", "--cache", cache, "--workers", "2")
    assert weights(warm) == expected
    assert store.sent == 0


def test_workers_read_from_the_store(
    tmp_path: Path,
    task: Path,
    store: Store,
    expected: dict[str, bytes],
    capfd: pytest.CaptureFixture[str],
) -> None:
    url = store.put(task, "task")
    made = train(capfd, url, tmp_path / "o", "--cache", tmp_path / "cache", "--workers", "2")
    assert weights(made) == expected


def test_a_cache_that_is_too_small_is_kept_small(
    tmp_path: Path,
    task: Path,
    store: Store,
    expected: dict[str, bytes],
    capfd: pytest.CaptureFixture[str],
) -> None:
    url, cache = store.put(task, "task"), tmp_path / "cache"
    small = ("--cache", cache, "--cache-size", "1kB")
    assert weights(train(capfd, url, tmp_path / "o", *small)) == expected
    first = store.sent
    train(capfd, url, tmp_path / "again", *small)
    assert store.sent > first  # fetched again
    index = sum(path.stat().st_size for path in task.iterdir() if path.suffix != ".tar")
    assert used(cache) < index + 64_000  # what is open stays


@pytest.mark.parametrize("every", [3, 10])
def test_a_server_that_fails_every_tenth_answer(
    tmp_path: Path,
    task: Path,
    store: Store,
    every: int,
    expected: dict[str, bytes],
    capfd: pytest.CaptureFixture[str],
) -> None:
    url = store.put(task, "task")
    store.fail_every = every
    cache = ("--cache", tmp_path / "cache", "--cache-size", "1kB")  # so that it asks often
    assert weights(train(capfd, url, tmp_path / "o", *cache)) == expected
    assert store.requests > every


def test_a_store_that_gives_nothing_is_one_line_and_no_pair_is_skipped(
    tmp_path: Path,
    task: Path,
    store: Store,
    capfd: pytest.CaptureFixture[str],
) -> None:
    url = store.put(task, "task")
    store.fail_every = 1
    words = ("train-step", url, "-o", tmp_path / "o", *STEPS, "--cache", tmp_path / "cache")
    check_refused(run_program(capfd, *words), "train-step", 1, "s3://data/task/", "asked 5 times")
    source = store.put(task / "test-000000.tar", "pairs.tar")
    split = ("split", source, "-o", tmp_path / "s", "--by", "iid", "--tasks", "1")
    check_refused(
        run_program(capfd, *split, "--cache", tmp_path / "cache"),
        "split",
        1,
        "s3://data/pairs.tar",
    )


def test_two_processes_share_a_cache(
    tmp_path: Path, task: Path, store: Store, expected: dict[str, bytes]
) -> None:
    url, cache = store.put(task, "task"), tmp_path / "cache"
    words = [sys.executable, "-m", "vlcpctl", "train-step", url, *STEPS, "--cache", str(cache)]
    both = [
        subprocess.Popen([*words, "--cache-size", size, "-o", str(tmp_path / size)])
        for size in ("64GB", "1kB")  # which removes what the other one reads
    ]
    assert [one.wait() for one in both] == [0, 0]
    assert weights(tmp_path / "64GB") == weights(tmp_path / "1kB") == expected


def test_a_run_from_a_local_copy_is_finished_by_one_from_the_store(
    tmp_path: Path, task: Path, store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    url, out = store.put(task, "task"), tmp_path / "o"
    train(capfd, task, out)
    found = run_program(capfd, "train-step", url, "-o", out, *STEPS, "--cache", tmp_path / "c")
    assert found.code == 0
    assert store.sent < 64_000  # the indexes at most
    more = (*TRAIN, "--steps", "5", "--cache", tmp_path / "c")
    other = run_program(capfd, "train-step", url, "-o", out, *more)
    check_refused(other, "train-step", 4, "settings.steps was 4 and is now 5")


def test_rows_and_buffers_have_the_bytes_of_a_local_task(
    tmp_path: Path, task: Path, store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    url, cache = store.put(task, "task"), ("--cache", tmp_path / "cache")
    checkpoint = train(capfd, task, tmp_path / "k")
    for place, more in ((task, ()), (url, cache)):
        rows = tmp_path / f"{len(more)}.ndjson"
        words = ("eval-retrieval", place, "--checkpoint", checkpoint, "-o", rows, "--quiet")
        assert run_program(capfd, *words, *more).code == 0
        kept = ("buffer", place, "-o", tmp_path / f"b{len(more)}", "--policy", "ring")
        assert run_program(capfd, *kept, "--size", "6", "--quiet", *more).code == 0
    assert (tmp_path / "0.ndjson").read_bytes() == (tmp_path / "2.ndjson").read_bytes()
    assert (tmp_path / "b0/train.parquet").read_bytes() == (
        tmp_path / "b2/train.parquet"
    ).read_bytes()


def test_split_reads_tasks_tars_and_globs_in_a_store(
    tmp_path: Path, task: Path, store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    tars = tmp_path / "tars"
    tars.mkdir()
    for tar in task.glob("*.tar"):
        shutil.copy(tar, tars)
    url = store.put(tars, "tars")
    store.put(task, "task")
    sources = [
        (str(tars), url),
        (f"{tars}/train-*.tar", f"{url}/train-*.tar"),
        (str(task), "s3://data/task"),
    ]
    for number, (here, there) in enumerate(sources):
        made = []
        for place, more in ((here, ()), (there, ("--cache", tmp_path / "cache"))):
            out = tmp_path / f"s{number}{len(more)}"
            words = ("split", place, "-o", out, "--by", "all:x", "--quiet", *more)
            found = run_program(capfd, *words)
            assert found.code == 0, found.err
            files = sorted(path for path in out.rglob("*") if path.suffix != ".json")
            made.append([path.read_bytes() for path in files if path.is_file()])
        assert made[0] == made[1]


def test_an_object_that_was_replaced_is_read_again(
    tmp_path: Path, task: Path, store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    cache = ("--cache", tmp_path / "cache", "--quiet", "--json")
    split = ("--by", "all:x", "--holdout", "none")
    one, other = task / "train-000000.tar", task / "test-000000.tar"
    counts = []
    for number, tar in enumerate((one, other)):
        url = store.put(tar, "pairs.tar")
        found = run_program(capfd, "split", url, "-o", tmp_path / f"{number}", *split, *cache)
        assert found.code == 0, found.err
        counts.append(found.out.count('"images"') and found.out)
    assert counts[0] != counts[1]


def test_damage_in_the_cache_is_fetched_again(
    tmp_path: Path,
    task: Path,
    store: Store,
    expected: dict[str, bytes],
    capfd: pytest.CaptureFixture[str],
) -> None:
    url, cache = store.put(task, "task"), tmp_path / "cache"
    train(capfd, url, tmp_path / "first", "--cache", cache)
    for path in (cache / "data").glob("*.images"):
        data = bytearray(path.read_bytes())
        data[::50] = bytes(len(data[::50]))
        path.write_bytes(data)
    assert weights(train(capfd, url, tmp_path / "o", "--cache", cache)) == expected


def test_what_cannot_be_in_a_store_is_refused(
    tmp_path: Path, task: Path, store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    url = store.put(task, "task")
    out = ("-o", "s3://data/x")
    check_refused(run_program(capfd, "train-step", url, *out, *TRAIN), "train-step", 2, "is a URL")
    update = ("update", task, "--state", tmp_path / "state", "--init", "s3://data/run")
    check_refused(run_program(capfd, *update), "update", 2, "is a URL")
    store.put(task / "task.json", "run/checkpoint.json")
    buffer = (*out[:1], tmp_path / "o", *TRAIN, "--buffer", "s3://data/run")
    refused = run_program(capfd, "train-step", url, *buffer, "--cache", tmp_path / "cache")
    check_refused(refused, "train-step", 3, "s3://data/run is a checkpoint, which must be local")
    place = ("split", url, "-o", tmp_path / "s", "--by", "all:x", "--in-place")
    check_refused(run_program(capfd, *place), "split", 2, "--in-place", "leave it out")
    nothing = ("split", "s3://data/nothing", "-o", tmp_path / "s", "--by", "all:x")
    cache = ("--cache", tmp_path / "cache")
    check_refused(run_program(capfd, *nothing, *cache), "split", 3, "does not exist in the store")
    unknown = ("split", "zz://data/nothing", "-o", tmp_path / "s", "--by", "all:x")
    check_refused(run_program(capfd, *unknown, *cache), "split", 2, "not a protocol of fsspec")


def test_a_training_that_the_store_ended_goes_on_from_a_local_copy(
    tmp_path: Path,
    task: Path,
    store: Store,
    expected: dict[str, bytes],
    capfd: pytest.CaptureFixture[str],
) -> None:
    url, saves = store.put(task, "task"), ("--save-every", "1")
    train(capfd, url, tmp_path / "counted", "--cache", tmp_path / "first", *saves)
    store.fail_after, store.requests = store.requests - 1, 0
    out = tmp_path / "o"
    words = ("train-step", url, "-o", out, *STEPS, *saves, "--cache", tmp_path / "second")
    ended = run_program(capfd, *words)
    assert ended.code == 1, ended.err
    assert "run the command again" in ended.err
    words = ("train-step", task, "-o", out, *STEPS, *saves)
    resumed = run_program(capfd, *(word for word in words if word != "--quiet"))
    assert resumed.code == 0, resumed.err
    assert "resum" in resumed.err
    assert weights(out) == expected


def test_sets_of_classes_are_read_by_workers(
    tmp_path: Path, task: Path, store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoint = train(capfd, task, tmp_path / "k")
    images = [(make_image(number), "png", number % 3) for number in range(24)]
    here = write_class_folder(tmp_path / "pets", images, ["cat", "dog", "cow"], per_tar=7)
    cache = ("--cache", tmp_path / "cache", "--cache-size", "1kB", "--workers", "2")
    rows = []
    for place, more in ((here, ()), (store.put(here, "pets"), cache)):
        out = tmp_path / f"{len(rows)}.ndjson"
        words = ("eval-zeroshot", place, "--checkpoint", checkpoint, "-o", out, "--quiet")
        found = run_program(capfd, *words, "--batch-size", "5", *more)
        assert found.code == 0, found.err
        rows.append(out.read_bytes())
    assert rows[0] == rows[1]


@pytest.mark.slow
def test_the_lines_of_a_week_read_from_the_store(
    tmp_path: Path, task: Path, store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoint = train(capfd, task, tmp_path / "k")
    week = write_week(tmp_path / "week.parquet", 1)
    images = [(make_image(number), "png", number % 3) for number in range(9)]
    pets = write_class_folder(tmp_path / "pets", images, ["cat", "dog", "cow"])
    local = (week, task, pets)
    urls = [store.put(path, path.name) for path in local]
    made = []
    for (data, guard, classes), more in ((local, ()), (urls, ("--cache", tmp_path / "cache"))):
        state = tmp_path / f"state{len(made)}"
        words = ("update", data, "--state", state, "--init", checkpoint, "--run", "shop")
        words += (
            "--guard-classes",
            classes,
            "--guard",
            guard,
            "--small-guard",
            "--method",
            "seqf",
            *SETTINGS,
            *PASSES,
        )
        store.fail_every = 5
        found = run_program(capfd, *words, *more)
        assert found.code == 0, found.err
        made.append(weights(state / "weeks/0001/checkpoint"))
    assert made[0] == made[1]
    assert store.requests >= 5


@pytest.mark.slow
def test_each_of_eight_nodes_fetches_an_eighth(tmp_path: Path, store: Store) -> None:
    task = make_task(tmp_path / "task", 128, pair=photo, shard_bytes=1_000_000)
    url = store.put(task, "task")
    tars = [path.stat().st_size for path in task.glob("*.tar")]
    indexes = sum(path.stat().st_size for path in task.iterdir()) - sum(tars)

    def run_on_all(name: str, source: object, *, caches: bool) -> None:
        def act(rank: int) -> None:
            os.environ.update(store.environment(f"node-{rank}"))
            more = ("--cache", tmp_path / f"cache-{rank}") if caches else ()
            words = ("train-step", source, "-o", tmp_path / name, *TRAIN, "--epochs", "1", *more)
            run_line((*words, "--batch-size", "32", "--quiet"), tmp_path / f"{name}-{rank}")

        assert run_together(act, 8) == [0] * 8

    run_on_all("local", task, caches=False)
    run_on_all("stored", url, caches=True)
    assert weights(tmp_path / "stored") == weights(tmp_path / "local")
    fetched = [store.sent_to[f"node-{rank}"] - indexes for rank in range(8)]
    images = sum(len(photo(number).image) for number in range(128))
    assert len(tars) == 5
    assert max(fetched) < 1.05 * images / 8
    assert sum(fetched) == pytest.approx(images, rel=0.01)  # each image by one node


def photo(number: int) -> Pair:
    """A pair with an image of 35 kB: images between those of a batch are too large to read over."""
    return make_pair(number, size=120)

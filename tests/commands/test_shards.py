"""`--num-shards` of eval-zeroshot, buffer and invert-texts: the bytes of one process.

Of eval-retrieval: test_eval_shards.py.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import write_checkpoint_manifest
from support.class_folders import write_class_folder
from support.commands import buffer
from support.processes import exit_code_of, start_child, wait_until
from support.program import ProgramResult, check_refused, run_program

from vlcpctl.data.tasks.task import open_stream, open_task
from vlcpctl.deletion.lineage import outdated_parts
from vlcpctl.evaluation import embedding
from vlcpctl.evaluation.classification import labelled_sets
from vlcpctl.files import resumable_parts
from vlcpctl.files.atomic import new_directory
from vlcpctl.files.staging import Staging
from vlcpctl.models import encoders
from vlcpctl.models.encoders import NewModelOptions
from vlcpctl.models.inversion import Inverter
from vlcpctl.precompute import pair_features
from vlcpctl.testing.tiny_stream import make_image, make_pair, make_stream

CLASSES = ("cat", "dog", "bird", "fish", "frog", "horse")
TEMPLATES = ("a photo of a {c}.", "the {c}")
CPU = ("--device", "cpu", "-q")
KINDS = ("zeroshot", "herding", "ctp-kmeans", "reservoir", "texts")
COMMANDS = {"zeroshot": "eval-zeroshot", "texts": "invert-texts"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream, a folder with an image that cannot be decoded, a buffer, and two checkpoints."""
    root = tmp_path_factory.mktemp("shards")
    make_stream(root / "stream", 2, 13, test=7, pair=partial(make_pair, captions=2, labels=3))
    images = [(make_image(number), "png", number % 6) for number in range(25)]
    images[12] = (b"no image", "png", 0)
    write_class_folder(root / "pets", images, CLASSES, TEMPLATES, per_tar=11)
    (root / "templates.txt").write_text("a {c}\n")
    for step in range(2):
        make_checkpoint(root / "run" / f"{step:02d}", root / "stream", step)
    first = root / "stream" / "00-part-0"
    given: dict[str, Any] = {"checkpoint": root / "run" / "00", "device": "cpu", "quiet": True}
    buffer(first, root / "b", policy="herding", size="8", **given)
    buffer(first, root / "stored", policy="reservoir", size="20", store_features=True, **given)
    return root


def make_checkpoint(directory: Path, stream: Path, step: int) -> None:
    tasks = [task.content for task in open_stream(stream)][: step + 1]
    body = {"run": "seqf", "method": "seqf", "buffer": None, "seed": 0, "step": step}
    with new_directory(directory, "checkpoint.json") as temporary:
        encoders.save(encoders.build("micro", NewModelOptions(seed=step)), temporary)
        write_checkpoint_manifest(temporary, f"content {step}", **body, tasks=tasks)


@pytest.fixture(autouse=True)
def _pairs_in_batches_of_5(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_features, "BATCH", 5)


def words(place: Path, kind: str, out: Path, *more: object) -> list[object]:
    run, (first, second) = place / "run", sorted((place / "stream").glob("[0-9]*"))
    both = ("--checkpoint", run / "00", "--checkpoint", run / "01")
    one = ("--checkpoint", run / "00")
    ranks = out.parent / "ranks.parquet"
    lines: dict[str, list[object]] = {
        "zeroshot": [
            *("eval-zeroshot", first, second, place / "pets", *both, "--batch-size", 4),
            *("--max-skip", "10%", "--save-ranks", ranks, "--workers", 0),
        ],
        "herding": ["buffer", second, *one, "--policy", "herding", "--size", 8, "--previous"],
        "ctp-kmeans": ["buffer", first, *one, "--policy", "kmeans", "--size", 6, "--variant"],
        "reservoir": ["buffer", second, *one, "--store-features", "--size", 20, "--previous"],
        "texts": [
            *("invert-texts", "--buffer", place / "b", *one, "--count", 11, "--images", 4),
            *("--iterations", 2, "--rate", 0.5, "--batch-size", 3, "--workers", 0),
        ],
    }
    last = {"herding": [place / "b"], "ctp-kmeans": ["ctp"], "reservoir": [place / "stored"]}
    return [*lines[kind], *last.get(kind, []), "-o", out, *CPU, *more]


def command_of(kind: str) -> str:
    return COMMANDS.get(kind, "buffer")


def made(directory: Path) -> dict[str, Any]:
    """The bytes of all files below a directory, of manifests all but who made them and when."""
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        if path.name == "task.json":
            found[str(path)] = {**json.loads(path.read_bytes()), "made_by": None}
        elif path.is_file():
            found[str(path)] = path.read_bytes()
    return {name.removeprefix(str(directory)): value for name, value in found.items()}


def whole_and_joined(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("whole", "joined"):
        (tmp_path / name).mkdir()
    return tmp_path / "whole" / "out", tmp_path / "joined" / "out"


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_joined_shards_have_the_bytes_of_one_process(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str, count: int
) -> None:
    whole, joined = whole_and_joined(tmp_path)
    assert run_program(capfd, *words(place, kind, whole)).code == 0
    sharing = words(place, kind, joined, "--num-shards", count)
    for index in reversed(range(count)):
        ended = run_program(capfd, *sharing, "--shard-index", index)
        assert (ended.code, ended.out) == (0, ""), ended.err
        assert [path.name for path in joined.parent.iterdir()] == [".out.vlcpctl"]
    ended = run_program(capfd, *sharing)
    assert (ended.code, ended.out) == (0, f"{joined}\n"), ended.err
    assert made(joined.parent) == made(whole.parent)
    again = run_program(capfd, *sharing, "--shard-index", 0)
    assert (again.code, again.out) == (0, f"{joined}\n")  # it is there already


def test_projections_of_what_features_choose_are_computed_when_shards_are_joined(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole, joined = whole_and_joined(tmp_path)
    more = ("--previous", place / "both", "--store-features")
    first = place / "stream" / "00-part-0"
    given: dict[str, Any] = {"checkpoint": place / "run" / "00", "store_features": True}
    buffer(first, place / "both", policy="herding", size="8", quiet=True, device="cpu", **given)
    assert run_program(capfd, *words(place, "herding", whole, *more)).code == 0
    sharing = words(place, "herding", joined, *more, "--num-shards", 2)
    for end in (("--shard-index", 1), ("--shard-index", 0), ()):
        assert run_program(capfd, *sharing, *end).code == 0
    assert made(joined.parent) == made(whole.parent)


def no_model(*_: object, **_more: object) -> Iterator[None]:
    raise AssertionError("a model runs")


@pytest.mark.parametrize("kind", KINDS)
def test_a_joining_line_runs_no_model(
    place: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    line = words(place, kind, tmp_path / "out", "--num-shards", 2)
    for index in range(2):
        assert run_program(capfd, *line, "--shard-index", index).code == 0
    monkeypatch.setattr(embedding, "text_vectors", no_model)
    monkeypatch.setattr(labelled_sets, "embed_images", no_model)
    monkeypatch.setattr(pair_features.PairWork, "results", no_model)
    monkeypatch.setattr(Inverter, "invert", no_model)
    assert run_program(capfd, *line).code == 0


@pytest.mark.parametrize("kind", ["zeroshot", "herding", "texts"])
def test_a_shard_that_was_killed_computes_only_what_it_lacks(
    place: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """Killed before it is complete: after five of its arrays, or when it has all."""
    whole, rows = whole_and_joined(tmp_path)
    assert run_program(capfd, *words(place, kind, whole)).code == 0
    line = words(place, kind, rows, "--num-shards", 2)
    # Prompts and images of three data sets, two of which share their prompts, by two checkpoints.
    kept, expected = {"zeroshot": (5, 10), "herding": (1, 1), "texts": (1, 2)}[kind]

    def recorded() -> list[str]:
        return sorted(path.name for path in Staging(rows).partial.glob("part-*.json"))

    write = resumable_parts.new_part

    def dying(final: Path) -> Any:
        if final.name.startswith("part-") and len(recorded()) == kept:
            os.kill(os.getpid(), signal.SIGKILL)
        return write(final)

    def act(_: int) -> None:
        monkeypatch.setattr(resumable_parts, "new_part", dying)
        run_program(capfd, *line, "--shard-index", 1)

    assert exit_code_of(start_child(act)) == -signal.SIGKILL
    assert len(recorded()) == kept
    before = {name: (Staging(rows).partial / name).stat().st_mtime_ns for name in recorded()}
    check_refused(run_program(capfd, *line), command_of(kind), 3, "0 of 2", "--shard-index 0")
    assert run_program(capfd, *line, "--shard-index", 0).code == 0
    check_refused(run_program(capfd, *line), command_of(kind), 3, "1 of 2", "--shard-index 1")
    done = recorded()
    assert run_program(capfd, *line, "--shard-index", 1).code == 0
    assert len({*recorded()} - {*done}) == expected - kept + 1  # and that it is complete
    after = {name: (Staging(rows).partial / name).stat().st_mtime_ns for name in before}
    assert after == before
    assert run_program(capfd, *line).code == 0
    assert made(rows.parent) == made(whole.parent)


OTHERS: list[tuple[str, tuple[object, ...], str]] = [
    ("zeroshot", ("--batch-size", 5), "numeric.batch_size was 4 and is now 5"),
    ("zeroshot", ("--limit", 6), "limit was not set and is now 6"),
    ("zeroshot", ("--templates", "templates.txt"), "prompts was ["),
    ("zeroshot", ("--num-shards", 3), "numeric.shards was 2 and is now 3"),
    ("ctp-kmeans", ("--seed", 1), "seed was 0 and is now 1"),
    ("herding", ("--num-shards", 3), "numeric.shards was 2 and is now 3"),
    ("herding", ("--threads", 2), "numeric.threads was 1 and is now 2"),
    ("ctp-kmeans", ("--policy", "herding"), "policy was 'kmeans' and is now 'herding'"),
    ("texts", ("--count", 12), "count was 11 and is now 12"),
    ("texts", ("--num-shards", 3), "numeric.shards was 2 and is now 3"),
    ("texts", ("--checkpoint", "run/01"), "checkpoint was 'content 0' and is now 'content 1'"),
]


@pytest.mark.parametrize(("kind", "other", "said"), OTHERS)
def test_shards_of_something_else_are_refused_with_advice_that_works(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str, other: Any, said: str
) -> None:
    out = tmp_path / "out"
    usual = ("--num-shards", 2, "--threads", 1)
    for index in range(2):
        assert shard(place, kind, out, capfd, *usual, "--shard-index", index).code == 0
    given = [place / word if (place / str(word)).exists() else word for word in other]
    advice = "choose another --out; --force without --num-shards replaces it"
    for more in ((), ("--shard-index", 1)):
        refused = shard(place, kind, out, capfd, *usual, *given, *more)
        check_refused(refused, command_of(kind), 4, "is an unfinished run of a diff", said, advice)
    assert not out.exists()
    count = given if given[0] == "--num-shards" else (*usual, *given)
    assert shard(place, kind, out.with_name("new"), capfd, *count, "--shard-index", 0).code == 0
    alone = () if given[0] == "--num-shards" else given
    assert run_program(capfd, *words(place, kind, out, *alone, "--force")).code == 0
    assert not Staging(out).path.exists()


def shard(
    place: Path, kind: str, out: Path, capfd: pytest.CaptureFixture[str], *more: object
) -> ProgramResult:
    return run_program(capfd, *words(place, kind, out, *more))


@pytest.mark.parametrize("kind", ["zeroshot", "reservoir", "texts"])
def test_a_line_without_shards_does_not_silently_drop_them(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    out, alone = tmp_path / "out", words(place, kind, tmp_path / "out")
    sharing = ("--num-shards", 1)
    assert shard(place, kind, out, capfd, *sharing, "--shard-index", 0).code == 0
    refused = run_program(capfd, *alone)
    check_refused(refused, command_of(kind), 4, "; join them with --num-shards, or --force replace")
    assert run_program(capfd, *alone, *sharing).code == 0
    assert shard(place, kind, out.with_name("b"), capfd, *sharing, "--shard-index", 0).code == 0
    assert run_program(capfd, *words(place, kind, out.with_name("b")), "--force").code == 0
    assert not Staging(out.with_name("b")).path.exists()


@pytest.mark.parametrize("kind", ["zeroshot", "herding", "texts"])
def test_a_shard_that_was_changed_is_not_joined(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    out = tmp_path / "out"
    line = words(place, kind, out, "--num-shards", 2)
    for index in range(2):
        assert run_program(capfd, *line, "--shard-index", index).code == 0
    file = max(path for path in Staging(out).partial.iterdir() if path.suffix != ".json")
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    ended = run_program(capfd, *line)  # of zeroshot, after a warning of an image
    assert ended.code == 5
    assert f"{file.name} has changed since it was written" in ended.err
    assert ended.err.endswith("; --force starts over\n")
    assert not out.exists()
    assert run_program(capfd, *words(place, kind, out), "--force").code == 0


@pytest.mark.parametrize("kind", ["reservoir", "texts"])
def test_a_running_shard_is_named_and_not_one_that_ended(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    """All shards share a lock, whose file names the one that came last."""
    out, has_begun = tmp_path / "out", tmp_path / "begun"

    def hold(_: int) -> None:
        with Staging(out).locked_part("1-of-2"):
            has_begun.touch()
            time.sleep(60)

    child = start_child(hold)
    wait_until(has_begun.exists)
    line = words(place, kind, out, "--num-shards", 2)
    said = f"{out} is being written by process {child} on host "
    try:
        assert run_program(capfd, *line, "--shard-index", 0).code == 0
        check_refused(run_program(capfd, *line), command_of(kind), 4, said)
        again = run_program(capfd, *line, "--shard-index", 1)
        check_refused(again, command_of(kind), 4, said)
    finally:
        os.kill(child, signal.SIGKILL)
        exit_code_of(child)


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        ("texts", ("--shard-index", 0), "--shard-index has no effect without --num-shards"),
        ("herding", ("--num-shards", 2, "--shard-index", 2), "with --num-shards 2 the last is 1"),
        ("texts", ("--num-shards", 2, "--force"), "--force would remove the shards of other"),
        ("zeroshot", ("--num-shards", 2, "--out", "-"), "give their file with --out"),
    ],
)
def test_options_of_shards_that_do_not_fit_are_refused(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str, more: Any, said: str
) -> None:
    line = words(place, kind, tmp_path / "out", *more)
    check_refused(run_program(capfd, *line), command_of(kind), 2, said)


def test_commands_cannot_share_what_no_model_computes(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    line = ["buffer", place / "stream" / "00-part-0", "-o", tmp_path / "b", "--size", 4]
    refused = run_program(capfd, *line, "--num-shards", 2, "--shard-index", 0)
    check_refused(refused, "buffer", 2, "--num-shards 2 has no effect without --checkpoint")


def test_images_come_from_the_cache_and_the_joining_line_stores_them(
    place: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three shards compute and are joined; two others then take all images from the cache."""
    rows = {name: tmp_path / name / "out" for name in ("whole", "first", "second")}
    cache = ("--embedding-cache", tmp_path / "cache")
    assert run_program(capfd, *words(place, "zeroshot", rows["whole"])).code == 0
    line = words(place, "zeroshot", rows["first"], "--num-shards", 3, *cache)
    for index in range(3):
        assert run_program(capfd, *line, "--shard-index", index).code == 0
    assert not list((tmp_path / "cache").rglob("*.safetensors"))
    assert run_program(capfd, *line).code == 0
    monkeypatch.setattr(labelled_sets, "embed_images", no_model)
    line = words(place, "zeroshot", rows["second"], "--num-shards", 2)
    for index in range(2):
        assert run_program(capfd, *line, *cache, "--shard-index", index).code == 0
    assert run_program(capfd, *line).code == 0
    for name in ("first", "second"):
        assert made(rows[name].parent) == made(rows["whole"].parent)


@pytest.mark.parametrize("kind", ["zeroshot", "herding", "texts"])
def test_forget_finds_shards_of_its_data(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    out = tmp_path / "out"
    line = words(place, kind, out, "--num-shards", 2, "--shard-index", 0)
    assert run_program(capfd, *line).code == 0
    partial_ = Staging(out).partial
    tasks = [task.content for task in open_stream(place / "stream")]
    known = [*tasks, open_task(place / "b").content]
    uses = {"zeroshot": tasks[0], "herding": tasks[1], "texts": known[2]}[kind]
    assert outdated_parts([partial_], [uses], known, str) == [partial_]
    assert outdated_parts([partial_], ["another"], known, str) == []

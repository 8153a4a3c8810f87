"""`vlcpctl export` of tasks: every layout has all pairs, and is as its loader expects it."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from support.pair_files import rows, write_parquet
from support.program import check_refused, run_program

from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream as split_stream
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.data.tasks.task import open_stream
from vlcpctl.export.data_card import front_matter
from vlcpctl.export.data_sets import DataSetExport
from vlcpctl.testing.tiny_stream import make_image, make_pair, make_stream, make_task

FORMS = ("clip-benchmark", "hf")
KINDS = ("PNG", "JPEG", "WEBP")
ODD = "two\nlines,\r\nanother\u2028and\x0bmore"


def odd_pair(number: int) -> Pair:
    """Pairs of all kinds of images with one to three captions, one of them with line breaks."""
    pair = make_pair(number, captions=1 + number % 3, kind=KINDS[number % 3])
    return pair._replace(captions=[ODD, *pair.captions]) if number % 4 == 0 else pair


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_stream(tmp_path_factory.mktemp("inputs") / "stream", 2, 7, pair=odd_pair)


def pairs_of(stream: Path, split: str) -> Iterator[tuple[bytes, list[str], str, str]]:
    """Image, captions, label and key of each pair of a split, in order."""
    for task in open_stream(stream):
        opened = task.split(split)
        for row, label in enumerate(opened.column("label")):
            yield opened.image(row), opened.captions(row), label, opened.keys[row]


def tar_members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]


@pytest.fixture
def export(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Exports and returns the directory."""

    def run(*words: object) -> Path:
        ended = run_program(capfd, "export", *words, "-o", tmp_path / "out", "-q")
        assert (ended.code, ended.out) == (0, f"{tmp_path / 'out'}\n"), ended.err
        assert run_program(capfd, "check", "--deep", tmp_path / "out").code == 0
        return tmp_path / "out"

    return run


def test_clip_benchmark_gets_numbered_tars_and_its_files(stream: Path, export: Any) -> None:
    out = export(stream, "--to", "clip-benchmark", "--shard-size", "9kB")
    assert (out / "dataset_type.txt").read_text() == "retrieval\n"
    assert (out / "classnames.txt").read_text() == "class-0\nclass-1\nclass-2\n"
    assert (out / "zeroshot_classification_templates.txt").read_text() == "a photo of a {c}.\n"
    for split in ("train", "test"):
        count = int((out / split / "nshards.txt").read_text())
        assert count > 1
        found: dict[str, bytes] = {}
        for number in range(count):
            path = out / split / f"{number}.tar"
            assert path.stat().st_size <= 9_000 + 10_240  # tarfile fills the last record
            found |= tar_members(path)
        wanted = list(pairs_of(stream, split))
        names = list(dict.fromkeys(name.split(".")[0] for name in found))
        assert names == [f"s{number:07d}" for number in range(len(wanted))]
        for name, (image, captions, label, _) in zip(names, wanted, strict=True):
            assert image in [found.get(f"{name}.{kind}") for kind in ("png", "jpg", "webp")]
            lines = found[f"{name}.txt"].decode().splitlines()
            assert lines == [" ".join(caption.splitlines()) for caption in captions]
            assert int(found[f"{name}.cls"]) == int(label.removeprefix("class-"))
        assert not (out / split / f"{count}.tar").exists()


def test_a_classification_export_has_the_accuracy_of_its_task(
    export: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = make_task(tmp_path / "task", splits={"train": 4, "test": 12})
    (tmp_path / "prompts.txt").write_text("a {c} thing\n{c}\n")
    how = ("--dataset-type", "classification", "--templates", tmp_path / "prompts.txt")
    out = export(task, "--to", "clip-benchmark", "--split", "test", *how)
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == [".vlcpctl", "test"]
    model = tmp_path / "model"
    train = ("--method", "seqf", "--preset", "tiny", "--model", "micro", "--batch-size", 4)
    assert run_program(capfd, "train-step", task, *train, "-o", model, "-q").code == 0
    found = []
    for words in ((out,), (task, "--templates", tmp_path / "prompts.txt")):
        ended = run_program(capfd, "eval-zeroshot", *words, "--checkpoint", model, "-q")
        assert ended.code == 0, ended.err
        found.append(json.loads(ended.out))
    assert found[0]["metrics"] == found[1]["metrics"]
    assert found[0]["prompts"] == found[1]["prompts"]


def test_the_hub_gets_parquet_whose_schema_describes_images(stream: Path, export: Any) -> None:
    out = export(stream, "--to", "hf", "--shard-size", "9kB")
    files = sorted((out / "data").glob("train-*.parquet"))
    assert len(files) > 1
    assert files[0].name == f"train-00000-of-{len(files):05d}.parquet"
    found = []
    for path in files:
        metadata = json.loads(pq.read_schema(path).metadata[b"huggingface"])
        features = metadata["info"]["features"]
        assert features["image"] == {"_type": "Image"}
        assert list(features) == pq.read_schema(path).names
        for row in pq.read_table(path).to_pylist():
            assert row["image"]["path"].split(".")[0] == row["key"]
            assert (row["width"], row["height"]) == (24, 24)
            found.append((row["image"]["bytes"], row["captions"], row["label"], row["key"]))
    assert found == list(pairs_of(stream, "train"))
    card = (out / "README.md").read_text()
    assert "license: unknown" in card
    assert f"num_examples: {len(found)}\n" in card
    assert open_stream(stream)[1].content in card


def test_a_name_of_a_task_is_text_on_the_card(tmp_path: Path, export: Any) -> None:
    name = "![p](http://x.com/p.png) <b>a|b</b>"
    write_parquet(tmp_path / "in.parquet", rows(8))
    given = SplitOptions(sources=[str(tmp_path / "in.parquet")], by=f"all:{name}")
    split_stream(given, tmp_path / "named")
    card = (export(tmp_path / "named", "--to", "hf") / "README.md").read_text()
    (line,) = [one for one in card.splitlines() if "x.com" in one]
    assert line.startswith(r"| !\[p\](http\://x.com/p.png) \<b\>a\|b\</b\> | ")


def test_kept_columns_are_exported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = [{**row, "status": f"s{n}", "text": f"t{n}"} for n, row in enumerate(rows(6))]
    source = write_parquet(tmp_path / "pairs.parquet", made)
    how = ("--by", "source", "--keep-columns", "status,text", "-q")
    assert run_program(capfd, "split", source, "-o", tmp_path / "stream", *how).code == 0
    out = tmp_path / "hf"
    assert run_program(capfd, "export", tmp_path / "stream", "--to", "hf", "-o", out).code == 0
    hub = pq.read_table(next((out / "data").iterdir()))
    assert sorted(hub["status"].to_pylist()) == [[f"s{n}"] for n in range(6)]
    assert sorted(hub["text"].to_pylist()) == [[f"t{n}"] for n in range(6)]


def test_a_card_may_be_edited_and_damage_is_not_replaced(
    stream: Path, export: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    out = export(stream, "--to", "hf")
    again = ("export", stream, "--to", "hf", "-o", out)
    (out / "README.md").write_text("filled in by a person")
    assert (run_program(capfd, *again).code, run_program(capfd, "check", out).code) == (0, 0)
    assert (out / "README.md").read_text() == "filled in by a person"
    data = next(out.rglob("*.parquet"))
    data.write_bytes(data.read_bytes()[:-1] + b"?")
    check_refused(run_program(capfd, *again), "export", 4, "has changed", "--force")
    assert run_program(capfd, "check", out).code == 3
    replaced = run_program(capfd, *again, "--split", "test", "--force", "--json")
    assert json.loads(replaced.out)["splits"] == {"test": {"images": 8, "captions": 17}}


@pytest.mark.parametrize("to", ["hf", "clip-benchmark"])
def test_every_setting_decides_whether_an_export_is_finished(to: str, stream: Path) -> None:
    first, second = open_stream(stream)
    request = DataSetExport(tasks=[first, second], to=to, out=stream)
    changes: list[dict[str, Any]] = [
        {"tasks": [first]},
        {"tasks": [second, first]},
        {"splits": ("test",)},
        {"to": "hf-model"},
        {"shard_bytes": 1000},
        {"dataset_type": "classification"},
        {"templates": ("{c}",)},
    ]
    wanted = request.identity()
    same = [one for one in changes if replace(request, **one).identity() == wanted]
    assert same == ([] if to == "clip-benchmark" else changes[-2:])  # which only it writes
    assert replace(request, out=stream / "out", force=True).identity() == wanted


def test_a_damaged_image_stops_the_export_and_nothing_is_left(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = make_task(tmp_path / "task", 4)
    tar = task / "train-000000.tar"
    image = make_image(2)
    tar.write_bytes(tar.read_bytes().replace(image, image[:-1] + b"?"))
    for form in FORMS:
        ended = run_program(capfd, "export", task, "--to", form, "-o", tmp_path / "out", "-q")
        check_refused(ended, "export", 3, "does not match the index")
        assert [path.name for path in tmp_path.iterdir()] == ["task"]


def test_what_cannot_be_exported_is_refused_in_one_line(
    stream: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = open_stream(stream)[0].path
    plain = make_task(tmp_path / "plain", 3, pair=lambda n: make_pair(n, labels=0))
    classes = ("--to", "clip-benchmark", "--dataset-type", "classification")
    cases: list[tuple[tuple[object, ...], int, str]] = [
        ((first, "--to", "hf", "--split", "val"), 3, "has no images in split 'val' (it has: train"),
        ((first, stream, "--to", "hf"), 2, "is the same task as"),
        ((plain, *classes), 3, "has no label; --dataset-type retrieval"),
        ((tmp_path, "--to", "hf"), 3, "is not a task: it has no task.json"),
        ((first, "--to", "hf", "--shard-size", "big"), 2, "'big' is not a size"),
    ]
    for words, code, said in cases:
        ended = run_program(capfd, "export", *words, "-o", tmp_path / "out", "-q")
        check_refused(ended, "export", code, said)
    assert not (tmp_path / "out").exists()


def test_any_text_reads_back() -> None:
    texts = [
        "no",
        "1e3",
        "\U0001f600 x",
        "\\ud83d\\ude00",
        "\\\U0001f600",
        "\xe9\u2028\x7f",
        "a: b",
    ]
    fields = {
        "texts": texts,
        "\U0001f601": {"no": [], "x": None},
        "dtype": [{"name": "\U00010000"}],
    }
    text = front_matter(fields)
    assert text.isascii()
    assert yaml.safe_load(text.removeprefix("---\n").removesuffix("---")) == fields

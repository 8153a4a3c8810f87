"""Class folders, class names and templates that lie: an end, and one line that names the file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.class_folders import write_class_folder
from support.hostile import block, check_memory, member, refusal, tar_file

from vlcpctl.data.classification.labelled_images import open_folder
from vlcpctl.data.classification.prompts import prompts_of, read_templates
from vlcpctl.data.splitting.labels import labels_from
from vlcpctl.testing.tiny_stream import make_image

IMAGES = [(make_image(number, 8), "png", number % 2) for number in range(4)]


def folder(path: Path) -> Path:
    return write_class_folder(path, IMAGES, ["cat", "dog"], ["a {c}"])


def read(path: Path) -> object:
    opened = open_folder(path, "pets")
    return opened.prompts(None), opened.images("test").labels


@pytest.mark.parametrize(
    "count",
    ["1" * 5000, "9" * 12, "\u00b2", "\u0661", "-1", "1_0", "1.0", "", "0", "x" * 10**6],
    ids=lambda text: text[:9],
)
def test_a_number_of_tars_that_is_none_is_refused(tmp_path: Path, count: str) -> None:
    path = folder(tmp_path / "set")
    (path / "test" / "nshards.txt").write_text(count, encoding="utf-8")
    assert refusal(lambda: read(path), path)
    check_memory(lambda: read(path), 40)


FILES = ["test/nshards.txt", "test/0.tar", "classnames.txt", "dataset_type.txt"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("spoil", [os.mkfifo, lambda path: path.write_bytes(b"\xff")])
def test_a_pipe_or_bytes_in_place_of_a_file_are_refused(
    tmp_path: Path, name: str, spoil: Callable[[Path], object]
) -> None:
    path = folder(tmp_path / "set")
    (path / name).unlink(missing_ok=True)
    spoil(path / name)
    assert refusal(lambda: read(path), path)


@pytest.mark.parametrize("label", ["\u00b2", "-1", "2", "x", "1" * 5000])
def test_a_label_that_is_none_is_refused(tmp_path: Path, label: str) -> None:
    path = folder(tmp_path / "set")
    tar_file(path / "test" / "0.tar", member(b"a.png", b"x"), member(b"a.cls", label.encode()))
    assert refusal(lambda: read(path), path)


def test_many_members_of_one_sample_take_no_memory(tmp_path: Path) -> None:
    path = folder(tmp_path / "set")
    parts = (block(b"a.x%d" % number) for number in range(60_000))
    tar_file(path / "test" / "0.tar", *parts)
    check_memory(lambda: read(path), 25)


TEMPLATES = {
    "deep": "[" * 500 + "]" * 500,
    "very deep": "[" * 100_000,
    "surrogate": '["{c} \\ud800"]',
    "long integer": "1" * 5000,
    "not a list": "3",
    "empty": "",
    "nulls": '{"a": [null]}',
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_that_are_none_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(TEMPLATES[name])
    assert refusal(lambda: read_templates(path), path)


def test_a_long_template_is_shown_shortened(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("x" * 10**6)
    assert refusal(lambda: prompts_of(["cat"], read_templates(path).of("d"), path), path)


def test_lists_of_class_names_that_are_no_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\n")
    (tmp_path / "blank.txt").write_text("a\n\nb\n")
    for name in ("pipe.txt", "bytes.txt", "blank.txt", "missing.txt", "."):
        path = tmp_path / name
        assert refusal(lambda: labels_from("timm:resnet18", path), path)  # noqa: B023
    assert labels_from("timm:resnet18", _marked(tmp_path / "marked.txt")).names == ("cat",)


def _marked(path: Path) -> Path:
    path.write_bytes(b"\xef\xbb\xbfcat\n")
    return path

"""What is no damage, but makes numbers mean less, is reported with count, example and advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlcpctl.data.tasks.samples import Pair
from vlcpctl.inspection.check import findings
from vlcpctl.inspection.findings import Finding
from vlcpctl.testing.tiny_stream import make_pair, make_stream, make_task


def found(kind: str, *paths: Path) -> list[Finding]:
    return [finding for finding in findings(paths) if finding.kind == kind]


def test_a_stream_of_some_size_has_no_finding(tmp_path: Path) -> None:
    stream = make_stream(tmp_path / "stream", 2, 70, test=12)
    assert list(findings([stream])) == []


def test_captions_of_several_images_are_counted_with_the_worst(tmp_path: Path) -> None:
    captions = ["a photo", "a photo", "a photo", "a cat", "a cat", *map(str, range(7))]

    def pair(number: int) -> Pair:
        return make_pair(number)._replace(captions=[captions[number % 12]])

    task = make_task(tmp_path / "task", splits={"test": 12}, pair=pair)
    (shared,) = found("shared captions", task)
    assert shared.count == 2
    assert shared.example == "a photo"
    assert "captions shared by several images: 2 of 9 in 1 split" in shared.text
    assert "'a photo' by 3 images" in shared.text


def test_a_caption_repeated_for_one_image_is_not_shared(tmp_path: Path) -> None:
    def pair(number: int) -> Pair:
        return make_pair(number)._replace(captions=[f"thing {number}"] * 3)

    assert found("shared captions", make_task(tmp_path / "a", splits={"test": 12}, pair=pair)) == []
    # In training data it is not a matter of recall.
    alike = make_task(tmp_path / "b", 12, pair=lambda n: make_pair(n)._replace(captions=["x"]))
    assert found("shared captions", alike) == []


@pytest.mark.parametrize(
    ("count", "trivial"), [(1, "R@1, R@5, R@10"), (5, "R@5, R@10"), (10, "R@10")]
)
def test_a_gallery_not_larger_than_k_is_reported(tmp_path: Path, count: int, trivial: str) -> None:
    stream = make_stream(tmp_path / "stream", 3, 70, test=count)
    (small,) = found("small gallery", stream)
    assert (small.path, small.count) == (stream, 3)
    assert f"where {trivial} cannot be below 100 %" in small.text


def test_equal_images_and_captions_are_one_entry_of_a_gallery(tmp_path: Path) -> None:
    task = make_task(
        tmp_path / "task",
        splits={"test": 12},
        pair=lambda n: make_pair(n)._replace(captions=[f"text {n % 4}"]),
    )
    (small,) = found("small gallery", task)
    assert "with 4, where R@5, R@10" in small.text


def test_a_split_of_one_class_is_reported(tmp_path: Path) -> None:
    def pair(number: int) -> Pair:
        return make_pair(number)._replace(label="cats")

    task = make_task(tmp_path / "task", splits={"train": 70, "test": 12}, pair=pair)
    (single,) = found("one class", task)
    assert "'cats'" in single.text
    assert "--classes all" in single.text
    unlabelled = make_task(tmp_path / "other", splits={"test": 12}, first=100, pair=make_unlabelled)
    assert found("one class", unlabelled) == []


def make_unlabelled(number: int) -> Pair:
    return make_pair(number, labels=0)

"""What is no damage, but makes numbers mean less: leaks, near copies, captions, small galleries."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vlcpctl.data.tasks.samples import Pair
from vlcpctl.inspection.check import findings
from vlcpctl.inspection.findings import Finding
from vlcpctl.testing.tiny_stream import make_pair, make_stream, make_task


def found(kind: str, *paths: Path, near_bits: int | None = None) -> list[Finding]:
    every = findings(paths, near_bits=near_bits)
    return [finding for finding in every if finding.kind == kind]


def repeating(of: int, *, other_captions: bool = False) -> Callable[[int], Pair]:
    """Pairs in which some images repeat: number n has the image of n modulo `of`."""

    def pair(number: int) -> Pair:
        one = make_pair(number % of)
        if not other_captions or number < of:
            return one
        return make_pair(number)._replace(image=one.image)

    return pair


@pytest.mark.parametrize(("other_captions", "same"), [(True, 0), (False, 7)])
def test_a_copy_is_a_leak_whatever_its_captions(
    tmp_path: Path, *, other_captions: bool, same: int
) -> None:
    pair = repeating(25, other_captions=other_captions)
    task = make_task(tmp_path / "task", splits={"train": 20, "val": 12}, pair=pair)
    (leak,) = found("leak", task)
    assert (leak.path, leak.count) == (task, 7)  # 25..31 repeat 0..6
    assert f"7 of 12, {same} with the same captions" in leak.text
    assert leak.example in leak.text
    assert ("there)" in leak.text) == other_captions  # the training image has another key


def test_a_leak_across_tasks_of_a_stream_names_the_other_task(tmp_path: Path) -> None:
    # Task 1 has images 24.. of 48, which are 0.. of 40 again.
    stream = make_stream(tmp_path / "stream", 2, 20, test=12, pair=repeating(40))
    everywhere = [leak for leak in found("leak", stream) if leak.path.name == "01-part-1"]
    (leak,) = everywhere
    assert str(stream / "00-part-0") in leak.text
    # What is given twice is one.
    again = found("leak", stream, stream / "00-part-0", Path(f"{stream}/../stream"))
    assert again == found("leak", stream)


@pytest.mark.parametrize("split", ["val", "test", "query", "gallery"])
def test_a_leak_across_paths_is_found_in_any_split(tmp_path: Path, split: str) -> None:
    trained = make_task(tmp_path / "a", 20)
    held_out = make_task(tmp_path / "b", splits={split: 12}, first=15)
    assert found("leak", trained) == found("leak", held_out) == []
    (leak,) = found("leak", held_out, trained)
    assert (leak.path, leak.count) == (held_out, 5)


def smaller_copy(data: bytes) -> bytes:
    file = io.BytesIO()
    with Image.open(io.BytesIO(data)) as image:
        image.resize((60, 60)).save(file, "JPEG", quality=80)
    return file.getvalue()


def picture(number: int) -> bytes:
    """A picture with shapes, unlike that of any other number."""
    generator = np.random.default_rng(number)
    coarse = generator.integers(0, 256, (6, 6, 3)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(coarse).resize((96, 96), Image.Resampling.BICUBIC).save(file, "PNG")
    return file.getvalue()


def test_a_smaller_copy_of_a_training_image_looks_like_it(tmp_path: Path) -> None:
    pytest.importorskip("imagehash")

    def pair(number: int) -> Pair:
        image = picture(number) if number < 18 else smaller_copy(picture(number - 18))
        return make_pair(number)._replace(image=image)

    task = make_task(tmp_path / "task", splits={"train": 10, "test": 12}, pair=pair)
    assert found("leak", task) == []
    assert found("near duplicate", task) == []
    (equal,) = found("near duplicate", task, near_bits=0)
    assert equal.count < 4
    (near,) = found("near duplicate", task, near_bits=4)
    assert (near.path, near.count) == (task, 4)  # 18..21 are copies of 0..3
    assert "images in test that look like training images: 4 of 12" in near.text
    assert near.example in near.text


def test_images_that_cannot_be_read_hide_no_near_copies_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("imagehash")
    task, broken = (
        make_task(tmp_path / name, splits={"train": 6, "test": 6}, pair=repeating(8))
        for name in ("task", "broken")
    )
    (broken / "test.parquet").write_bytes(b"PAR1")
    (broken / "train-000000.tar").write_bytes(b"")
    whole = found("near duplicate", task, near_bits=8)
    assert found("near duplicate", broken, task, near_bits=8) == whole


# -- captions, galleries and classes


def test_captions_of_several_images_are_counted_with_the_worst(tmp_path: Path) -> None:
    captions = ["a photo", "a photo", "a photo", "a cat", "a cat", *map(str, range(7))]

    def pair(number: int) -> Pair:  # what one image repeats is not shared
        return make_pair(number)._replace(captions=[captions[number % 12]] * 2)

    task = make_task(tmp_path / "task", splits={"test": 12}, pair=pair)
    (shared,) = found("shared captions", task)
    assert shared.count == 2
    assert shared.example == "a photo"
    assert "captions shared by several images: 2 of 9 in 1 split" in shared.text
    assert "'a photo' by 3 images" in shared.text


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

"""Thumbnails: small, decodable, without what the file says besides its pixels."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from vlcpctl.core.errors import BadInput
from vlcpctl.data.tasks.task import open_task
from vlcpctl.report.forgotten.library import EDGE, Library, open_library, thumbnail
from vlcpctl.testing.tiny_stream import make_pair, make_stream, make_task


def encoded(width: int, height: int, kind: str, **how: object) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **how)
    return file.getvalue()


@pytest.mark.parametrize(
    ("size", "wanted"),
    [((1000, 500), (96, 48)), ((20, 30), (20, 30)), ((2, 3000), (1, 96)), ((97, 97), (96, 96))],
)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_thumbnail_keeps_the_ratio_and_enlarges_nothing(
    size: tuple[int, int], wanted: tuple[int, int], kind: str
) -> None:
    found = thumbnail(encoded(*size, kind))
    assert (found.width, found.height) == wanted
    assert max(wanted) <= EDGE
    with Image.open(io.BytesIO(found.data)) as image:
        assert image.size == wanted
        assert found.kind == f"image/{image.format.lower()}"
    assert len(found.data) < 30_000


def test_comments_and_profiles_of_the_file_are_left_out() -> None:
    words = PngInfo()
    words.add_text("Comment", "of a person")
    for data in (
        encoded(40, 40, "PNG", pnginfo=words, icc_profile=b"of a person"),
        encoded(40, 40, "JPEG", comment=b"of a person"),
    ):
        assert b"of a person" in data
        assert b"of a person" not in thumbnail(data).data


def test_a_damaged_image_is_refused() -> None:
    with pytest.raises(BadInput, match="the picture cannot be decoded"):
        thumbnail(encoded(40, 40, "JPEG")[:300], "the picture")


def test_pairs_are_found_by_key_in_the_splits_that_are_searched(tmp_path: Path) -> None:
    stream = make_stream(tmp_path / "stream", 2, 3, pair=lambda n: make_pair(n, captions=2))
    tasks = open_library([stream, stream])
    assert len(tasks) == 2, "each task once"
    train, test = (tasks[1].split(name).keys[0] for name in ("train", "test"))
    library = Library(tasks, frozenset({"test"}))
    library.find([train, test, "a path, not a key"])
    assert library.captions(test) == tasks[1].split("test").captions(0)
    assert library.thumbnail(test) is not None
    assert (library.captions(train), library.thumbnail(train)) == ([], None)
    assert library.captions("a path, not a key") == []


def test_only_streams_and_tasks_have_pictures(tmp_path: Path) -> None:
    task = make_task(tmp_path / "task")
    assert [one.path for one in open_library([task])] == [task]
    assert open_task(task).content == open_library([task])[0].content
    with pytest.raises(BadInput, match="neither a stream nor a task directory"):
        open_library([tmp_path])
    with pytest.raises(BadInput, match="does not exist"):
        open_library([tmp_path / "none"])

"""Every input that may be in an object store: results have the bytes of those from local copies.

The store is fsspec's in memory; `tests/files/test_stores.py` has a server.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.class_folders import write_class_folder
from support.commands import buffer
from support.marks import mostly_slow
from support.object_store import put_in_memory
from support.program import TINY, check_refused, run_program

from vlcpctl.testing.tiny_stream import make_image

_TINY = ("--previous", "plain", *TINY[2:])


@pytest.fixture(scope="module")
def place(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs on the disk, and copies of them in the store."""
    root = shutil.copytree(place, tmp_path_factory.mktemp("stored"), dirs_exist_ok=True)
    images = [(make_image(number), "png", number % 3) for number in range(12)]
    for split in ("train", "test"):
        write_class_folder(root / "sets/pets", images, ["cat", "dog", "cow"], split=split)
        write_class_folder(root / "sets/cifar10", images, ["cat", "dog", "cow"], split=split)
    listed = [{"image": f"{number}.png", "caption": f"thing {number}"} for number in range(8)]
    (root / "pictures").mkdir()
    for number in range(8):
        (root / "pictures" / f"{number}.png").write_bytes(make_image(number))
    (root / "list.json").write_text(json.dumps(listed))
    first, how = root / "stream/00-part-0", {"checkpoint": root / "plain", "store_features": True}
    buffer(first, root / "features", size="5", quiet=True, **how)  # type: ignore[arg-type]
    for name in ("stream", "buffer", "features", "plain", "sets", "pictures", "list.json"):
        put_in_memory(root / name, name)
    return root


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch, place: Path) -> Iterator[None]:
    monkeypatch.chdir(place)
    monkeypatch.setattr("vlcpctl.files.stores._DEADLINE", 1.0)
    yield
    os.environ.pop("_VLCPCTL_STORE_CACHE", None)


def files_of(out: Path) -> dict[str, bytes]:
    """The files of an output but its manifests, which have times."""
    if out.is_file():
        return {"": out.read_bytes()}
    paths = sorted(path for path in out.rglob("*") if path.is_file() and path.suffix != ".json")
    return {str(path.relative_to(out)): path.read_bytes() for path in paths}


TASK, REFERENCE = "stream/01-part-1", ("--reference", "@stream/02-part-2")


LINES = [
    ("eval-zeroshot", "@stream/00-part-0", "--checkpoint", "plain"),
    ("eval-zeroshot", "@sets/pets", "--checkpoint", "plain"),
    ("eval-zeroshot", "cifar10", "--data", "@sets", "--checkpoint", "plain"),
    ("eval-probe", "@stream/00-part-0", "--checkpoint", "plain", "--strength", "1e-3"),
    ("eval-probe", "@sets/pets", "--checkpoint", "plain", "--strength", "1e-3"),
    ("train-step", TASK, "--method", "er", *_TINY, "--buffer", "@buffer"),
    ("train-step", TASK, "--method", "der", *_TINY, "--buffer", "@features"),
    ("train-step", TASK, "--method", "zscl", *_TINY, *REFERENCE),
    ("distill", TASK, "--teacher", "plain", "--buffer", "@buffer"),
    ("buffer", "@stream/00-part-0", "--policy", "ring", "--size", "5"),
    ("invert-texts", "--checkpoint", "plain", "--buffer", "@buffer", "--count", "4"),
    ("export", "@stream/00-part-0", "--to", "hf"),
    ("eval-retrieval", "@stream/00-part-0", "--checkpoint", "plain"),
    ("split", "@stream/00-part-0", "--by", "all:x"),
    ("split", "@stream/00-part-0/train-*.tar", "--by", "all:x"),
    ("split", "@list.json", "--image-root", "@pictures", "--by", "all:x"),
    ("split", TASK, "--not-test-images", "@stream/00-part-0", "--by", "all:x"),
]


@pytest.mark.parametrize(
    "words",
    mostly_slow(LINES, kept=LINES[1::3]),
    ids=lambda words: "-".join(word for word in words if "@" in word or "-" in word)[:40],
)
def test_a_result_has_the_bytes_of_one_from_local_copies(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    monkeypatch.setattr("vlcpctl.files.stores._PIECE", 512)  # so that files have several
    made = []
    cache = ("--cache", tmp_path / "cache")
    for protocol, more in (("", ()), ("memory://", cache)):
        out = tmp_path / f"out{len(made)}"
        given = [word.replace("@", protocol) for word in words]
        found = run_program(capfd, *given, "-o", out, "-q", *more)
        assert found.code == 0, found.err
        made.append(files_of(out))
    assert made[0] == made[1]
    assert made[0]


def test_a_data_set_of_a_hub_has_its_url(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As huggingface_hub's file system answers, without a network."""
    from huggingface_hub import HfFileSystem

    tar = next((place / "stream/00-part-0").glob("train-*.tar"))
    name, data = "datasets/org/name@main/data/pairs.tar", tar.read_bytes()
    asked = []

    def find(_: HfFileSystem, path: str, **__: object) -> dict[str, dict[str, object]]:
        asked.append(path)
        return {name: {"name": name, "size": len(data), "type": "file", "blob_id": "1f"}}

    def cat_file(_: HfFileSystem, path: str, start: int, end: int, **__: object) -> bytes:
        assert path.removeprefix("hf://") == name
        return data[start:end]

    monkeypatch.setattr(HfFileSystem, "find", find)
    monkeypatch.setattr(HfFileSystem, "cat_file", cat_file)
    made = []
    for source, more in ((tar, ()), ("hf://datasets/org/name@main", ("--cache", tmp_path / "c"))):
        out = tmp_path / f"out{len(made)}"
        done = run_program(capfd, "split", source, "-o", out, "--by", "all:x", "-q", *more)
        assert done.code == 0, done.err
        made.append(files_of(out))
    assert made[0] == made[1]
    assert asked[0] == "hf://datasets/org/name@main"


SPLIT = ("--by", "all:x")
REFUSED: list[tuple[tuple[object, ...], int, str]] = [
    (("split", "memory://stream/00-part-0", *SPLIT, "--in-place"), 2, "--in-place"),
    (("split", "memory://nothing", *SPLIT), 3, "memory://nothing does not exist"),
    (("train-step", TASK, *TINY[:2], *_TINY, "--buffer", "memory://plain"), 3, "is a checkpoint"),
    *(
        (("split", f"{protocol}://host/data", *SPLIT), 2, f"{protocol}://host/data")
        for protocol in ("zz", "ftp", "sftp", "smb")
    ),
    (("split", "s3://KEY:pass/word@data/x", *SPLIT), 2, "s3://***@data/x"),
    (("split", "https://me:pass@host/x?sig=pass", *SPLIT), 2, "https://***@host/x?sig=***"),
]


@pytest.mark.parametrize(("words", "code", "said"), REFUSED)
def test_what_cannot_be_in_a_store_is_refused_and_passwords_are_not_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, said: str
) -> None:
    ended = run_program(capfd, *words, "-o", tmp_path / "o", "-q", "--cache", tmp_path / "cache")
    check_refused(ended, words[0], code, said)
    assert "KEY:" not in ended.err
    assert ":pass" not in ended.err

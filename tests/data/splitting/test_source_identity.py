"""What makes a source another one: any byte of any file that is read, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.pair_files import rows, write_tar

from vlcpctl.core.errors import BadInput, OutputExists
from vlcpctl.data.sources.source import FileLog
from vlcpctl.data.splitting import writing
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import describe_plan, make_stream
from vlcpctl.files import digests
from vlcpctl.testing.tiny_stream import make_image

COUNT = 40
Source = Callable[[Path], tuple[Path, Path]]  # what makes one: its path, and that of a file of it


def caption(number: int) -> str:
    return f"caption {number:04d} " + 9000 * "x"  # the source is larger than 128 KiB


def image_files(place: Path) -> list[str]:
    (place / "images").mkdir(parents=True)
    for number in range(COUNT):
        (place / "images" / f"{number}.png").write_bytes(make_image(number, 8))
    return [f"images/{number}.png" for number in range(COUNT)]


def parquet(place: Path) -> tuple[Path, Path]:
    place.mkdir()
    table = pa.Table.from_pylist([{**row, "caption": caption(n)} for n, row in enumerate(rows(40))])
    pq.write_table(table, place / "p.parquet", compression="none", use_dictionary=False)
    return place / "p.parquet", place / "p.parquet"


def tar(place: Path) -> tuple[Path, Path]:
    members = {}
    for number in range(COUNT):
        members[f"{number:04d}.png"] = make_image(number, 8)
        members[f"{number:04d}.txt"] = caption(number).encode()
    path = write_tar(place / "p.tar", members)
    return path, path


def json_list(place: Path) -> tuple[Path, Path]:
    names = image_files(place)
    listed = [{"image": name, "caption": caption(n)} for n, name in enumerate(names)]
    (place / "p.json").write_text(json.dumps(listed))
    return place / "p.json", place / "p.json"


def image_of_json(place: Path) -> tuple[Path, Path]:
    return json_list(place)[0], place / "images" / "20.png"


def image_of_struct(place: Path) -> tuple[Path, Path]:
    names = image_files(place)
    structs = [
        {"bytes": None if number % 2 == 0 else make_image(number + 100, 8), "path": name}
        for number, name in enumerate(names)
    ]
    listed = [{"image": image, "caption": name} for image, name in zip(structs, names, strict=True)]
    pq.write_table(pa.Table.from_pylist(listed), place / "p.parquet")
    return place / "p.parquet", place / "images" / "20.png"


def folder(place: Path) -> tuple[Path, Path]:
    names = image_files(place)
    for number, name in enumerate(names):
        (place / name).with_suffix(".txt").write_text(caption(number))
    return place, place / "images" / "20.txt"


def image_of_folder(place: Path) -> tuple[Path, Path]:
    return folder(place)[0], place / "images" / "20.png"


def tar_in_folder(place: Path) -> tuple[Path, Path]:
    write_tar(place / "b" / "p.tar", {})
    return place, tar(place / "a")[1]


SOURCES = [
    *(parquet, tar, json_list, image_of_json, image_of_struct, folder, image_of_folder),
    tar_in_folder,
]


def split(source: Path, out: Path, **options: object) -> None:
    settings = {"by": "source", "max_skip": "60", "holdout": "none", **options}
    make_stream(SplitOptions(sources=[str(source)], **settings), out)  # type: ignore[arg-type]


def change_in_the_middle(path: Path) -> None:
    """Change one byte; the size and the times that can be set stay."""
    before, data = path.stat(), bytearray(path.read_bytes())
    if path.suffix == ".png":
        data[-1] ^= 1  # of the checksum of IEND, which nothing reads
    else:
        place = data.index(b"caption 0020")
        data[place : place + 7] = b"CAPTION"
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _never(*_: object) -> str:
    raise AssertionError("hashed again")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, that takes files of any size and age."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "_CACHED_FROM", 0)
    monkeypatch.setattr(digests, "_SETTLED_SECONDS", -1e9)
    return tmp_path / "cache"


@pytest.mark.parametrize("limit", [None, 30])
@pytest.mark.parametrize("make", SOURCES)
def test_a_source_that_changed_anywhere_is_another(
    tmp_path: Path,
    make: Source,
    limit: int | None,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (source, file), out = make(tmp_path / "in"), tmp_path / "out"
    split(source, out, limit=limit)
    if limit is None:  # untouched, it is not hashed again
        facts = FileLog.facts
        with monkeypatch.context() as patch:
            patch.setattr(digests, "file_digest", _never)
            patch.setattr(FileLog, "facts", lambda log: facts(log) if not log._files else _never())
            split(source, out)
    # An identical copy is the same source, whether or not its digests are known.
    shutil.copytree(tmp_path / "in", tmp_path / "elsewhere" / "in")
    for _ in range(2):
        split(tmp_path / "elsewhere" / source.relative_to(tmp_path), out, limit=limit)
        assert "is already finished" in capfd.readouterr().err
        shutil.rmtree(cache, ignore_errors=True)
    change_in_the_middle(file)
    with pytest.raises(OutputExists, match=rf"other settings: sources\.{source.stem}\."):
        split(source, out, limit=limit)
    options = SplitOptions(sources=[str(source)], by="source", holdout="none", limit=limit)
    with pytest.raises(OutputExists):
        describe_plan(options, out)


def test_files_beyond_the_limit_do_not_count(tmp_path: Path) -> None:
    source, _ = tar_in_folder(tmp_path / "in")
    _, file = tar(source / "b")
    split(source, tmp_path / "out", limit=COUNT)
    change_in_the_middle(file)
    split(source, tmp_path / "out", limit=COUNT)
    with file.open("ab") as longer:
        longer.write(bytes(512))
    with pytest.raises(OutputExists, match="has other content"):
        split(source, tmp_path / "out", limit=COUNT)


def test_the_order_of_sources_counts(tmp_path: Path) -> None:
    paths = [str(tar(tmp_path / name)[0].rename(tmp_path / f"{name}.tar")) for name in "ab"]
    make_stream(SplitOptions(sources=paths, by="iid", tasks=1, max_skip="50%"), tmp_path / "out")
    other = SplitOptions(sources=paths[::-1], by="iid", tasks=1, max_skip="50%")
    with pytest.raises(OutputExists, match="source_order was"):
        make_stream(other, tmp_path / "out")


@pytest.mark.parametrize("make", [parquet, tar, json_list])
def test_a_source_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, make: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, file = make(tmp_path / "in")
    identify = writing.identify

    def changing(*given: object, **how: object) -> object:
        os.utime(file, (1, 1))
        return identify(*given, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(writing, "identify", changing)
    with pytest.raises(BadInput, match="changed while it was being read"):
        split(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()

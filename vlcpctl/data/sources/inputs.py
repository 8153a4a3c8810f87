"""From what stands on the command line to the files that hold pairs."""

from __future__ import annotations

import glob
import hashlib
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.data.index import SPLITS
from vlcpctl.data.sources.folders import Folder
from vlcpctl.data.sources.lists import JSON, TABLES, ListFile
from vlcpctl.data.sources.parquet import ParquetFile
from vlcpctl.data.sources.webdataset import TarFile

PairFile = ParquetFile | TarFile | ListFile | Folder
_ENDS_BYTES = 65536
_PICKLES = frozenset({".pkl", ".pickle", ".npy", ".npz", ".pt", ".pth"})
_STATISTICS = "_stats.json"  # of img2dataset, written when a shard is complete


@dataclass(frozen=True)
class Input:
    """One SOURCE of the command line: a name that no other has, and its files in order."""

    name: str
    files: tuple[PairFile, ...]


def find_inputs(sources: list[str]) -> list[Input]:
    """Every SOURCE with its files: a file, a directory of them, or a glob."""
    files = [(source, _files_of(source)) for source in sources]
    paths = Counter(str(file.path.resolve()) for _, group in files for file in group)
    twice = [path for path, count in paths.items() if count > 1]
    if twice:
        raise UsageError(f"{twice[0]} is given twice")
    names = distinct_names([source for source, _ in files])
    return [Input(name, tuple(group)) for name, (_, group) in zip(names, files, strict=True)]


def distinct_names(sources: list[str]) -> list[str]:
    """As much of the end of each path as tells them apart, without the ending.

    >>> distinct_names(["in/week1/pairs.parquet", "in/week2/pairs.parquet"])
    ['week1/pairs', 'week2/pairs']
    """
    parts = [Path(os.path.abspath(source)).with_suffix("").parts for source in sources]
    for depth in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise UsageError("two sources differ in their ending alone; rename one")


def fingerprint(file: PairFile) -> dict[str, Any]:
    """What tells one version of a file from another without reading all of it."""
    if isinstance(file, Folder):
        return file.fingerprint()
    path = file.path
    size = path.stat().st_size
    with path.open("rb") as data:
        digest = hashlib.sha256(data.read(_ENDS_BYTES))
        data.seek(max(0, size - _ENDS_BYTES))
        digest.update(data.read())
    return {"name": path.name, "bytes": size, "ends": digest.hexdigest()[:32]}


def _files_of(source: str) -> list[PairFile]:
    if "://" in source or "::" in source or source.startswith("pipe:"):
        raise UsageError(f"{source!r} is not a path; download it first")
    path = Path(source)
    if path.is_dir():
        return _files_in(path)
    if path.exists():
        return [_opened(path)]
    found = sorted(glob.glob(source))  # noqa: PTH207 - Path.glob takes no absolute pattern
    if not found:
        raise BadInput(f"{source}: there is no such file or directory")
    return [_opened(Path(name)) for name in found]


def _files_in(directory: Path) -> list[PairFile]:
    lists = _lists_of_splits(directory)
    if lists:
        return [ListFile(path) for path in lists]
    tars = sorted(directory.rglob("*.tar"))
    # The pairs are in the tars where a table only describes them: img2dataset's has the name of its
    # tar or directory, ours the name of its split.
    described = {tar.with_suffix("") for tar in tars}
    described |= {stem.with_name(stem.name.rpartition("-")[0] or stem.name) for stem in described}
    tables = sorted(directory.rglob("*.parquet"))
    tables = [
        path
        for path in tables
        if path.with_suffix("") not in described and not path.with_suffix("").is_dir()
    ]
    if tars and tables:
        found = f"{directory} holds both tars and Parquet files ({tables[0].name})"
        raise BadInput(f"{found}; give the files themselves")
    _check_complete(directory, tars or tables)
    if tars or tables:
        return [_opened(path) for path in tars or tables]
    folder = Folder(directory)
    if folder.holds_images():
        return [folder]
    raise BadInput(
        f"{directory} holds neither a .parquet nor a .tar file, no train.json and no image"
    )


def _lists_of_splits(directory: Path) -> list[Path]:
    """Lists that are named by their split alone, as those of P9D, here or in `json`."""
    if any(directory.glob("*.tar")) or any(directory.glob("*.parquet")):
        return []
    found = [*directory.glob("*.json"), *directory.glob("json/*.json")]
    return sorted(
        (path for path in found if path.stem in SPLITS), key=lambda path: SPLITS.index(path.stem)
    )


def _check_complete(directory: Path, shards: list[Path]) -> None:
    """Refuse a shard that img2dataset has not finished: it writes the statistics last."""
    finished = set(directory.rglob(f"*{_STATISTICS}"))
    if not finished:
        return
    places = {path.parent for path in finished}
    shards = shards or [path for place in places for path in place.iterdir() if path.is_dir()]
    for shard in sorted(shards):
        if shard.name != "_tmp" and shard.with_name(shard.stem + _STATISTICS) not in finished:
            raise BadInput(
                f"{shard} has no {shard.stem}{_STATISTICS}: img2dataset has not finished it; "
                "run it again, or move the shard away"
            )


def _opened(path: Path) -> PairFile:
    if not path.is_file():
        raise BadInput(f"{path} is not a regular file")
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"PAR1":
        return ParquetFile(path)
    if path.suffix == ".parquet":
        raise BadInput(f"{path} is not a Parquet file: it starts with {start!r}")
    if ".tar" in path.suffixes or path.suffix == ".tgz":
        return TarFile(path)
    if path.suffix in _PICKLES or start[:1] == b"\x80":
        raise BadInput(
            f"{path} is a pickle or an array, which could run code when it is read; "
            "convert it to Parquet, CSV or JSON"
        )
    if path.suffix in JSON | TABLES:
        return ListFile(path)
    raise BadInput(f"{path} is no Parquet, tar, JSON, CSV or TSV file")

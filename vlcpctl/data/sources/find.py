"""Find the files with pairs that the SOURCE arguments of the command line refer to."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from vlcpctl.core.errors import BadInput, UsageError, lfs_pointer, missing
from vlcpctl.core.words import shortened
from vlcpctl.data.sources import tables
from vlcpctl.data.sources.folders import (
    METADATA,
    columns_of_files,
    folder,
    split_of_directories,
    walk,
)
from vlcpctl.data.sources.lists import JSON, JSON_LINES, begin_list, listed
from vlcpctl.data.sources.pairs import pick
from vlcpctl.data.sources.source import IMAGES, OTHER_IMAGES, TABLES, TEXTS, Source
from vlcpctl.data.sources.tars import tar
from vlcpctl.data.tasks.facts import read_stream
from vlcpctl.data.tasks.index import SPLITS, split_named
from vlcpctl.data.tasks.task import open_task
from vlcpctl.files.inputs import matching, open_regular, read_json_object
from vlcpctl.files.manifest import MANIFESTS, is_artifact, kind_of

_STATISTICS = "_stats.json"  # of img2dataset, written when a shard is complete
_DICT, _STATE = "dataset_dict.json", "state.json"
# Fields of old versions of `datasets` for a data set that was shuffled, but not rewritten.
_INDICES = ("_indices_files", "_indices_data_files")


@dataclass(frozen=True)
class NamedSource:
    """One SOURCE of the command line: its unique name, and its files in order."""

    name: str
    files: tuple[Source, ...]


def find_inputs(sources: list[str]) -> list[NamedSource]:
    """Every SOURCE with its files; a SOURCE is a file, a directory of files or a glob.

    Raises UsageError for a SOURCE that is not a path or is given twice, and BadInput if it does
    not exist or has no supported format.
    """
    files = [(source, _files_of(source)) for source in sources]
    paths = Counter(str(file.path.resolve()) for _, group in files for file in group)
    twice = [path for path, count in paths.items() if count > 1]
    if twice:
        raise UsageError(f"{twice[0]} is given twice")
    names = distinct_names([source for source, _ in files])
    return [NamedSource(name, tuple(group)) for name, (_, group) in zip(names, files, strict=True)]


def distinct_names(sources: list[str]) -> list[str]:
    """The shortest ends of the paths, without suffix, that are all different.

    Raises UsageError if the paths differ only in their suffix.

    >>> distinct_names(["in/week1/pairs.parquet", "in/week2/pairs.parquet"])
    ['week1/pairs', 'week2/pairs']
    """
    parts = [Path(os.path.abspath(source)).with_suffix("").parts for source in sources]
    for depth in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise UsageError("two sources differ only in their suffix; rename one")


def _files_of(source: str) -> list[Source]:
    if "://" in source or "::" in source or source.startswith("pipe:"):
        raise UsageError(f"{source!r} is not a path; download it first")
    path = Path(source)
    if path.is_dir():
        return _files_in(path)
    found = [source] if path.exists() else matching(source)
    if not found:
        raise BadInput(missing(source))
    return [_opened(Path(name)) for name in found]


def _files_in(directory: Path) -> list[Source]:
    """The files of a directory: a task's splits, what `datasets` saved, lists, shards or images."""
    _check(directory)
    if kind_of(directory) == "stream" and is_artifact(directory):
        stream = read_stream(directory)
        if stream.in_place:  # its links lead to all samples of a tar
            tasks = " ".join(str(directory / entry.path) for entry in stream.tasks)
            raise BadInput(
                f"{directory} is a stream that was made in place; give its tasks: {tasks}"
            )
    if (directory / MANIFESTS["task"]).is_file():
        return [
            Source(directory / f"{name}.parquet", "task", tables.task, tables.begin_parquet, name)
            for name in open_task(directory).manifest.splits
        ]
    if found := _saved_files(directory):
        return found
    # Read once: there may be millions. A staging directory is hidden, as is what --force replaced.
    names = [name for _, _, name in walk(directory)]
    lists = _lists_of_splits(directory, names)
    return [_list(path) for path in lists] or _shards(directory, names) or _images(directory, names)


def _ending(directory: Path, names: list[str], *suffixes: str) -> list[Path]:
    return sorted(directory / name for name in names if name.endswith(suffixes))


# -- the kinds of files


def _list(path: Path) -> Source:
    """A list, with the one split in the file's name, such as test in coco_karpathy_test.json."""
    words = re.split(r"[^a-z]+", path.stem.lower())
    splits = {split_named(word) for word in words} - {None}
    split = splits.pop() if len(splits) == 1 else None
    return Source(path, "list", listed, begin_list, split=split)


def _opened(path: Path, split: str | None = None) -> Source:
    """A file, by its content and, for tars and lists, its name."""
    _check(path)
    with open_regular(path) as file:
        start = file.read(4)
    if start == b"PAR1":
        return Source(path, "table", tables.parquet, tables.begin_parquet)
    if path.suffix == ".arrow":
        return Source(path, "table", tables.arrow, tables.begin_arrow, split)
    if path.suffix == ".parquet":
        raise BadInput(f"{path} is not a Parquet file: it starts with {start!r}")
    if ".tar" in path.suffixes or path.suffix == ".tgz":
        return Source(path, "samples", tar)
    if path.suffix in JSON | JSON_LINES | TABLES:
        return _list(path)
    raise BadInput(
        f"{path} is not a Parquet, Arrow, tar, JSON, JSON Lines, CSV or TSV file; convert or "
        "unpack it"
    )


def _check(path: Path) -> None:
    """Raise BadInput for a name that no manifest can record, and for a pointer of Git LFS."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"the name of {path} is not UTF-8; rename it") from error
    if (pointer := lfs_pointer(path)) is not None:
        raise BadInput(pointer)


# -- directories


def _saved_files(directory: Path) -> list[Source]:
    """The files of a data set saved by `save_to_disk` in this directory; none without one.

    Its `state.json` names its files; `dataset_dict.json` names a directory for each split. Raises
    BadInput if either is malformed or names files that are not there.
    """
    places: list[tuple[Path, str | None]] = []
    if (directory / _DICT).is_file():
        splits = read_json_object(directory / _DICT).get("splits")
        places += [(directory / one, one) for one in _plain_names(directory / _DICT, splits)]
    elif (directory / _STATE).is_file() and (directory / "dataset_info.json").is_file():
        places.append((directory, None))
    else:
        return []
    found = [file for place, split in places for file in _files_of_split(place, split)]
    if not found:
        raise BadInput(f"{directory} has no rows: it was saved without data files")
    return found


def _files_of_split(directory: Path, split: str | None) -> list[Source]:
    path = directory / _STATE
    if not path.is_file():
        raise BadInput(
            f"{directory} has no {_STATE}: save_to_disk has not finished; save the data set again"
        )
    state = read_json_object(path)
    if any(state.get(name) for name in _INDICES):
        raise BadInput(
            f"{directory} was saved by an old version of datasets, with an order of rows apart "
            "from the data; load it with datasets and save it again"
        )
    files, own = state.get("_data_files"), state.get("_split")
    files = files if isinstance(files, list) else [None]
    names = [file.get("filename") if isinstance(file, dict) else None for file in files]
    split = split or (own if isinstance(own, str) else None)
    return [_opened(directory / one, split) for one in _plain_names(path, names)]


def _plain_names(path: Path, names: object) -> list[str]:
    """The names of files or directories beside `path`. Raises BadInput for anything else."""
    found: list[str] = []
    for name in names if isinstance(names, list) else [names]:
        if not isinstance(name, str) or name in ("", ".", "..") or {"/", "\0"} & set(name):
            raise BadInput(f"{path} is malformed: {shortened(repr(name))} is not a name beside it")
        found.append(name)
    return found


def _lists_of_splits(directory: Path, names: list[str]) -> list[Path]:
    """The lists named after a split, as in P9D, in the directory or in `json` below it."""
    own = [name for name in names if "/" not in name]
    if any(name.endswith((".tar", ".parquet")) for name in own):
        return []
    # Also through a link, which `walk` does not follow.
    found = [*_ending(directory, own, *JSON), *directory.glob("json/*.json")]
    found = [path for path in found if path.stem in SPLITS]
    lines = _ending(directory, own, *JSON_LINES)
    lines = [path for path in lines if split_named(path.stem) is not None]
    if found and lines:
        raise _several(directory, found[0], lines[0])
    return sorted(found + lines, key=lambda path: SPLITS.index(split_named(path.stem) or ""))


def _shards(directory: Path, names: list[str]) -> list[Source]:
    """The tars or Parquet files below a directory, unless a Parquet file describes images."""
    tars = _ending(directory, names, ".tar")
    # A table that only describes tars is not a source: img2dataset gives it the name of its tar or
    # directory, vlcpctl the name of its split.
    described = {path.with_suffix("") for path in tars}
    described |= {stem.with_name(stem.name.rpartition("-")[0] or stem.name) for stem in described}
    parquets = [
        path
        for path in _ending(directory, names, ".parquet")
        if path.with_suffix("") not in described and not path.with_suffix("").is_dir()
    ]
    if tars and parquets:
        raise _several(directory, tars[0], parquets[0])
    is_described = not tars and all(path.name in METADATA for path in parquets)
    if is_described and (found := _image_folders(directory, names)):
        return found
    _check_complete(directory, names, tars or parquets)
    return [_opened(path) for path in tars or parquets]


def _image_folders(directory: Path, names: list[str]) -> list[Source]:
    """The tables of an `imagefolder`, wherever in the directory; none if it has no such tables."""
    found: list[Source] = []
    for path in _ending(directory, names, *METADATA):
        if path.name in METADATA and columns_of_files(path, (file := _opened(path)).start.names):
            split = split_of_directories(path.relative_to(directory))
            found.append(replace(file, split=split, is_folder=True))
    kinds = {one.path.name: one.path for one in found}
    if len(kinds) > 1:  # which may describe the same images
        raise _several(directory, *list(kinds.values())[:2])
    return found


def _several(directory: Path, one: Path, other: Path) -> BadInput:
    return BadInput(
        f"{directory} contains both {one.name} and {other.name}; name the files instead of the "
        "directory"
    )


def _images(directory: Path, names: list[str]) -> list[Source]:
    """The directory itself as a source, or the table in it, if its images have no texts.

    Raises BadInput if it contains no images, or several tables.
    """
    parts = [(stem, kind.lower()) for stem, _, kind in (name.rpartition(".") for name in names)]
    texts = {stem for stem, kind in parts if kind in TEXTS}
    images = [stem for stem, kind in parts if kind in IMAGES]
    others = any(kind in OTHER_IMAGES for _, kind in parts)
    if (images or others) and texts.isdisjoint(images):
        lists = _ending(directory, names, *JSON, *JSON_LINES, *TABLES)
        lists = [path for path in lists if _lists_images(path)]
        if len(lists) == 1:
            return [_opened(lists[0])]
        if lists:
            raise _several(directory, *lists[:2])
    if images:
        return [Source(directory, "samples", folder)]
    raise BadInput(
        f"{directory} contains no Parquet file, tar, JPEG, PNG or WebP, no train.json or "
        "train.jsonl, and no data set that save_to_disk has finished; convert what it has"
    )


def _lists_images(path: Path) -> bool:
    """Whether a file is a table; one of text or JSON is if it has a column of images."""
    if path.suffix not in {".json", ".txt"}:
        return path.is_file()
    try:
        return pick(path, _list(path).start.names, "image") != ""
    except BadInput:
        return False


# -- img2dataset


def _check_complete(directory: Path, names: list[str], shards: list[Path]) -> None:
    """Raise BadInput for a shard that img2dataset has not finished: it writes statistics last."""
    finished = set(_ending(directory, names, _STATISTICS))
    if not finished:
        return
    places = {path.parent for path in finished}
    shards = shards or [path for place in places for path in place.iterdir() if path.is_dir()]
    for shard in sorted(shards):
        if shard.name != "_tmp" and shard.with_name(shard.stem + _STATISTICS) not in finished:
            raise BadInput(
                f"{shard} has no {shard.stem}{_STATISTICS}: img2dataset has not finished it; "
                "run img2dataset again, or move the shard away"
            )


def failed_by_statistics(file: Source) -> Iterator[tuple[str, int, str]]:
    """The statistics of img2dataset that list failed downloads: name, number and the reasons.

    They are of downloads that are not in the tar or folder; tables list theirs.
    """
    if file.kind != "samples":
        return
    own = file.path.with_name(file.path.stem + _STATISTICS)
    inside = file.path.glob(f"*{_STATISTICS}") if file.path.is_dir() else ()
    for path in [own, *sorted(inside)]:
        found = read_json_object(path) if path.is_file() else {}
        total, whole = found.get("count"), found.get("successes")
        if isinstance(total, int) and isinstance(whole, int) and total > whole:
            yield path.name, total - whole, f"{total - whole} of {total} downloads failed"

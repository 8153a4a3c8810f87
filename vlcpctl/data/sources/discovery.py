"""Find the files with pairs that the SOURCE arguments of the command line refer to."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from vlcpctl.core.errors import BadInput, UsageError, lfs_pointer, missing, some_names
from vlcpctl.core.words import counted
from vlcpctl.data.sources.columns import IMAGE, ColumnOptions, pick
from vlcpctl.data.sources.folders import Folder
from vlcpctl.data.sources.image_folders import METADATA, ImageFolder, split_of_directories
from vlcpctl.data.sources.json_lists import JSON, JSON_LINES
from vlcpctl.data.sources.list_files import TABLES, ListFile
from vlcpctl.data.sources.parquet import ParquetFile
from vlcpctl.data.sources.sample_parts import IMAGES, OTHER_IMAGES, TEXTS
from vlcpctl.data.sources.saved_datasets import ArrowFile, saved_files
from vlcpctl.data.sources.task_splits import splits_in
from vlcpctl.data.sources.webdataset import TarFile
from vlcpctl.data.tasks.facts import read_stream
from vlcpctl.data.tasks.index import SPLITS, split_named
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.files.inputs import open_regular, read_json_object
from vlcpctl.files.manifest import is_artifact, kind_of

_PICKLES = frozenset({".pkl", ".pickle", ".npy", ".npz", ".pt", ".pth"})
_TABLES = (*JSON, *JSON_LINES, *TABLES)
_GZIP = b"\x1f\x8b"
_STATISTICS = "_stats.json"  # of img2dataset, written when a shard is complete


class Source(Protocol):
    """One file, or one directory, with pairs in one format.

    To add a format, write a frozen dataclass with these members and create it in `_opened`.
    """

    @property
    def path(self) -> Path:
        """The file or directory."""

    def rows(self) -> int | None:
        """The number of pairs, for progress; None if it is not known without reading them."""

    def check_columns(self, columns: ColumnOptions) -> None:
        """Raise BadInput if a column is missing or has the wrong type, before any work is done."""

    def names_files(self, columns: ColumnOptions) -> bool:
        """Whether some images are given by path, so that --image-root has an effect."""

    def pairs(self, columns: ColumnOptions, *, images: bool = True) -> Iterator[list[Pair]]:
        """Yield the pairs in batches, in the same order every time.

        A pair that cannot be used has no image, and a flaw that gives the reason. With
        `images=False`, the pairs only serve to assign tasks: only `place`, `label` and `value` need
        to be set. Raises BadInput if the source itself is malformed or damaged.
        """


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
    if path.exists():
        return [_opened(path)]
    found = sorted(glob.glob(source))  # noqa: PTH207 - Path.glob takes no absolute pattern
    if not found:
        raise BadInput(missing(source))
    return [_opened(Path(name)) for name in found]


def _files_in(directory: Path) -> list[Source]:
    _check(directory)
    if kind_of(directory) == "stream" and is_artifact(directory):
        stream = read_stream(directory)
        if stream.in_place:  # its links lead to all samples of a tar
            tasks = " ".join(str(directory / entry.path) for entry in stream.tasks)
            raise BadInput(
                f"{directory} is a stream that was made in place; give its tasks: {tasks}"
            )
    listed: list[Source] = [*(splits_in(directory) or saved_files(directory) or ())]
    if listed:
        return listed
    tree = _Tree.below(directory)
    listed = [ListFile(path) for path in _lists_of_splits(tree)]
    return listed or _shards_in(tree) or _images_in(tree)


@dataclass(frozen=True)
class _Tree:
    """The names of what is below a directory, read once: there may be millions.

    Hidden directories are left out: a hidden directory is one, and an output that --force replaced
    is not a source.
    """

    root: Path
    names: list[str]

    @classmethod
    def below(cls, root: Path) -> Self:
        names: list[str] = []
        for place, directories, files in os.walk(root):
            directories[:] = [name for name in directories if name[0] != "."]
            below = os.path.relpath(place, root)
            start = "" if below == os.curdir else f"{below}/"
            names += [start + name for name in (*directories, *files) if name[0] != "."]
        return cls(root, names)

    def parts(self) -> Iterator[tuple[str, str]]:
        """Each path without its extension, and the extension in lower case."""
        for name in self.names:
            stem, _, kind = name.rpartition(".")
            yield stem, kind.lower()

    def ending(self, *suffixes: str) -> list[Path]:
        """The paths that end with one of the suffixes, sorted."""
        return sorted(self.root / name for name in self.names if name.endswith(suffixes))


def _shards_in(tree: _Tree) -> list[Source]:
    """The tars or Parquet files below a directory, unless a Parquet file describes images."""
    directory, tars = tree.root, tree.ending(".tar")
    # A table that only describes tars is not a source: img2dataset gives it the name of its tar or
    # directory, vlcpctl the name of its split.
    described = {tar.with_suffix("") for tar in tars}
    described |= {stem.with_name(stem.name.rpartition("-")[0] or stem.name) for stem in described}
    tables = tree.ending(".parquet")
    tables = [
        path
        for path in tables
        if path.with_suffix("") not in described and not path.with_suffix("").is_dir()
    ]
    if tars and tables:
        found = f"{directory} contains both tars and Parquet files ({tables[0].name})"
        raise BadInput(f"{found}; name the files instead of the directory")
    if not tars and all(path.name in METADATA for path in tables):
        described_images = _image_folders(tree)
        if described_images:
            return described_images
    _check_complete(tree, tars or tables)
    return [_opened(path) for path in tars or tables]


def _images_in(tree: _Tree) -> list[Source]:
    """The directory itself as a source, or the table in it, if its images have no texts.

    Raises BadInput if it contains no images, or several tables.
    """
    directory = tree.root
    texts = {stem for stem, kind in tree.parts() if kind in TEXTS}
    has_texts = any(kind in IMAGES and stem in texts for stem, kind in tree.parts())
    others = Counter(kind for _, kind in tree.parts() if kind in OTHER_IMAGES)
    holds_images = Folder(directory).holds_images()
    if (holds_images or others) and not has_texts:
        tables = [path for path in tree.ending(*_TABLES) if _lists_images(path)]
        if len(tables) == 1:
            return [_opened(tables[0])]
        if tables:
            names = some_names([str(path) for path in tables])
            raise BadInput(f"{directory} contains several tables; name what to read: {names}")
    if holds_images:
        return [Folder(directory)]
    if others:
        counts = some_names([counted(count, f".{kind} file") for kind, count in others.items()])
        raise BadInput(
            f"{directory} contains {counts}: images must be JPEG, PNG or WebP; convert them"
        )
    if tree.ending(".arrow"):
        raise BadInput(
            f"{directory} contains .arrow files, but no data set that save_to_disk has finished; "
            "save it again, or name the files instead of the directory"
        )
    raise BadInput(
        f"{directory} contains no .parquet, .tar or image files, no train.json or train.jsonl, and "
        "no data set saved by save_to_disk"
    )


def _lists_images(path: Path) -> bool:
    """Whether a file is a table; one of text or JSON is if it has a column of images."""
    if path.suffix not in {".json", ".txt"}:
        return path.is_file()
    try:
        return pick(path, ListFile(path).names(), None, IMAGE) is not None
    except BadInput:
        return False


def _image_folders(tree: _Tree) -> list[Source]:
    """The tables of an `imagefolder`, wherever in the directory; none if it has no such tables."""
    directory = tree.root
    tables = [path for path in tree.ending(*METADATA) if path.name in METADATA]
    for path in tables:
        _check(path)
    found = [
        ImageFolder(path, split_of_directories(path.relative_to(directory))) for path in tables
    ]
    found = [folder for folder in found if folder.describes_images()]
    names = {folder.path.name for folder in found}
    if len(names) > 1:
        raise BadInput(
            f"{directory} contains both {' and '.join(sorted(names)[:2])}, which may describe the "
            "same images; move one of them away, or name the files instead of the directory"
        )
    return list(found)


def _lists_of_splits(tree: _Tree) -> list[Path]:
    """The lists named after a split, as in P9D, in the directory or in `json` below it."""
    directory = tree.root
    own = [name for name in tree.names if "/" not in name]
    if any(name.endswith((".tar", ".parquet")) for name in own):
        return []
    found = [directory / name for name in own if name.endswith(".json")]
    found += directory.glob("json/*.json")  # also through a link, which the tree does not follow
    found = [path for path in found if path.stem in SPLITS]
    lines = sorted(directory / name for name in own if name.endswith(tuple(JSON_LINES)))
    lines = [path for path in lines if split_named(path.stem) is not None]
    if found and lines:
        raise BadInput(
            f"{directory} contains both {found[0].name} and {lines[0].name}; name the files "
            "instead of the directory"
        )
    return sorted(found + lines, key=lambda path: SPLITS.index(split_named(path.stem) or ""))


def _check_complete(tree: _Tree, shards: list[Path]) -> None:
    """Raise BadInput for a shard that img2dataset has not finished: it writes statistics last."""
    finished = set(tree.ending(_STATISTICS))
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
    if not isinstance(file, TarFile | Folder):
        return
    own = file.path.with_name(file.path.stem + _STATISTICS)
    inside = file.path.glob(f"*{_STATISTICS}") if file.path.is_dir() else ()
    for path in [own, *sorted(inside)]:
        found = read_json_object(path) if path.is_file() else {}
        total, whole = found.get("count"), found.get("successes")
        if isinstance(total, int) and isinstance(whole, int) and total > whole:
            yield path.name, total - whole, f"{total - whole} of {total} downloads failed"


def failed_downloads(file: Source) -> int:
    """The number of downloads of img2dataset that failed, by its table or statistics."""
    if isinstance(file, ParquetFile):
        return file.failed_downloads()
    return sum(count for _, count, _ in failed_by_statistics(file))


def _opened(path: Path) -> Source:
    _check(path)
    with open_regular(path) as file:
        start = file.read(4)
    if start == b"PAR1":
        return ParquetFile(path)
    if path.suffix == ".arrow":
        return ArrowFile(path)
    if path.suffix == ".parquet":
        raise BadInput(f"{path} is not a Parquet file: it starts with {start!r}")
    if ".tar" in path.suffixes or path.suffix == ".tgz":
        return TarFile(path)
    if path.suffix in _PICKLES or start[:1] == b"\x80":
        raise BadInput(
            f"{path} is a pickle or a NumPy file, which can run code when it is loaded; "
            "convert it to Parquet, CSV or JSON"
        )
    if start[:2] == _GZIP:
        raise BadInput(f"{path} is compressed with gzip; unpack it first")
    if path.suffix in JSON | JSON_LINES | TABLES:
        return ListFile(path)
    raise BadInput(f"{path} is not a Parquet, Arrow, tar, JSON, JSON Lines, CSV or TSV file")


def _check(path: Path) -> None:
    """Raise BadInput for a name that no manifest can record, and for a pointer of Git LFS."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"the name of {path} is not UTF-8; rename it") from error
    if (pointer := lfs_pointer(path)) is not None:
        raise BadInput(pointer)

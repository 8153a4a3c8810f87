"""Read directories of images: each with a .txt (and .json) of its name, or listed in metadata.

The metadata of Hugging Face's `imagefolder` is `metadata.jsonl`, `metadata.csv` or
`metadata.parquet`, whose column `file_name`, or one that ends in `_file_name`, gives paths relative
to it. See https://huggingface.co/docs/datasets/image_dataset.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.core.words import shortened
from vlcpctl.data.images.header import MAX_BYTES
from vlcpctl.data.sources.source import (
    FLAW,
    IMAGES,
    OTHER_IMAGES,
    TEXT_BYTES,
    TEXTS,
    Record,
    Row,
    Wants,
    read_file,
)
from vlcpctl.data.sources.tars import record_of
from vlcpctl.data.tasks.index import split_named
from vlcpctl.data.tasks.samples import NO_IMAGE

METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
NOT_LISTED = "not in the metadata"
_UNFINISHED = "_tmp"  # a directory that img2dataset writes while it runs
_FILE, _FILES = "file_name", "file_names"
_BETWEEN_WORDS = re.compile(r"[-._ 0-9]+")  # as in the patterns of `datasets`
_TEST = frozenset({"testing", "eval", "evaluation"})  # its names for test besides `test`
_IS_SAMPLE = {*IMAGES, *OTHER_IMAGES, "txt"}


def folder(path: Path, wants: Wants) -> Iterator[Row]:
    """The samples of a directory, sorted by name: files that share a name up to the last dot.

    Raises BadInput if a sample has two files with the same extension.
    """
    for stem, group in groupby(walk(path), key=itemgetter(0)):
        files = [(suffix[1:].lower(), name) for _, suffix, name in group]
        names = dict(files)
        if len(names) < len(files):
            shown = shortened(", ".join(name for _, name in files))
            raise BadInput(f"{path} has two files for the same part of a sample: {shown}")
        if not _IS_SAMPLE.isdisjoint(names):  # else statistics, lists of classes
            key = _text(stem)
            yield key, _sample(path, key, names, wants)


def _sample(path: Path, key: str, names: dict[str, str], wants: Wants) -> Record:
    kind = next((kind for kind in IMAGES if kind in names), None)
    other = next((names[kind] for kind in OTHER_IMAGES if kind in names), None)
    if other is not None and kind is None:
        return {FLAW: (NO_IMAGE, f"{shortened(other)} is not one of JPEG, PNG and WebP")}
    image: bytes | str = "the sample has no image"
    texts: dict[str, bytes | str] = {}
    for one, name in names.items():
        place = f"{path}/{name}"
        if one in TEXTS:
            texts[one] = read_file(place, name, TEXT_BYTES, wants.log)
        elif one == kind and wants.images:
            image = read_file(place, name, MAX_BYTES, wants.log)
        elif wants.images:  # another image, or a file of another kind: its bytes are not used
            read_file(place, name, MAX_BYTES if one in IMAGES else -1, wants.log)
    return record_of(key, texts, image)


def walk(root: Path, without: Collection[str] = ()) -> Iterator[tuple[str, str, str]]:
    """The files below a directory, relative to it, those of one sample together.

    Of each: its name up to the last dot, the rest, and the name. Hidden files are left out, and
    directories below the root that have a file named in `without`. Raises BadInput for a directory
    that cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise BadInput(unreadable(error.filename, error)) from error

    for place, directories, files in os.walk(root, onerror=refuse):
        below = os.path.relpath(place, root)
        start = "" if below == os.curdir else f"{below}/"
        if start and not set(files).isdisjoint(without):
            directories.clear()
            continue
        directories[:] = sorted(one for one in directories if one[0] != "." and one != _UNFINISHED)
        yield from sorted(_in_parts(start + one) for one in files if one[0] != ".")


def _in_parts(name: str) -> tuple[str, str, str]:
    """The name up to its last dot, the rest, and the name; a dot at either end is none.

    >>> [_in_parts(name)[:2] for name in ("a.b/c.tar.gz", "a.b/.c", "a.b/c.")]
    [('a.b/c.tar', '.gz'), ('a.b/.c', ''), ('a.b/c.', '')]
    """
    dot = name.rfind(".")
    if dot <= name.rfind("/") + 1 or dot == len(name) - 1:
        return name, "", name
    return name[:dot], name[dot:], name


def _text(name: str) -> str:
    """A file name that can be written to JSON and Parquet, although it may not be UTF-8."""
    return (
        name if name.isascii() else name.encode(errors="surrogateescape").decode(errors="replace")
    )


# -- imagefolder


def not_listed(table: Path, listed: Iterable[str | None]) -> Iterator[tuple[str, str]]:
    """The name of each image of a table's directory that the table does not list, and why not."""
    # As numbers: a table may have millions of names.
    known = {hash(os.path.normpath(name)) for name in listed if name}
    for _, suffix, name in walk(table.parent, METADATA):
        is_image = suffix[1:].lower() in IMAGES + OTHER_IMAGES
        if is_image and hash(os.path.normpath(name)) not in known:
            yield _text(name), f"{table.name} has no row for it"


def columns_of_files(table: Path, names: Sequence[str]) -> list[str]:
    """The columns of metadata that name files; none if it is not that of an `imagefolder`.

    Raises BadInput if the only ones have lists of names.
    """
    found = [one for one in names if one == _FILE or one.endswith(f"_{_FILE}")]
    lists = [one for one in names if one == _FILES or one.endswith(f"_{_FILES}")]
    if lists and not found:
        raise BadInput(
            f"{table}: column {lists[0]!r} lists several images for each row; write a row for each "
            f"image, with its path in a column {_FILE!r}"
        )
    return found


def image_column(table: Path, names: Sequence[str], given: str | None) -> str | None:
    """The column of file names. As in `datasets`, `image_file_name` is also called `image`."""
    if given is not None:
        usual = {f"{given}_{_FILE}", _FILE if given == "image" else ""}
        return given if given in names else next((one for one in names if one in usual), given)
    found = columns_of_files(table, names)
    if len(found) > 1 and _FILE not in found:
        raise BadInput(
            f"{table} has several columns of file names ({', '.join(map(repr, found[:5]))}); "
            "choose one with --image-column"
        )
    return _FILE if _FILE in found else next(iter(found), None)


def split_of_directories(path: Path) -> str | None:
    """The split that a relative path has in the name of a directory, as `datasets` finds it.

    >>> split_of_directories(Path("data/train-2/metadata.csv"))
    'train'
    """
    for part in path.parts[:-1]:
        words = _BETWEEN_WORDS.split(part.lower())
        found = {"test" if word in _TEST else split_named(word) for word in words} - {None}
        if len(found) == 1:
            return found.pop()
    return None

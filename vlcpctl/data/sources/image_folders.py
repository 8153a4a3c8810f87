"""Read pairs from Hugging Face's `imagefolder`: images, and a table that describes them.

The table is `metadata.jsonl`, `metadata.csv` or `metadata.parquet`. Its column `file_name`, or a
column that ends in `_file_name`, gives paths relative to the table. Images of the table's directory
that it does not list are skipped, and counted as such. See
https://huggingface.co/docs/datasets/image_dataset.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xxhash

from vlcpctl.core.errors import BadInput
from vlcpctl.data.sources.columns import ColumnOptions
from vlcpctl.data.sources.folders import Folder
from vlcpctl.data.sources.list_files import ListFile
from vlcpctl.data.sources.parquet import ParquetFile
from vlcpctl.data.sources.records import in_batches
from vlcpctl.data.tasks.index import split_named
from vlcpctl.data.tasks.samples import Pair

METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
_FILE, _FILES = "file_name", "file_names"
_SPLIT = "split"
NOT_LISTED = "not in the metadata"
_BETWEEN_WORDS = re.compile(r"[-._ 0-9]+")  # as in the patterns of `datasets`
_TEST = frozenset({"testing", "eval", "evaluation"})  # its names for test besides `test`


@dataclass(frozen=True)
class ImageFolder:
    """One table of metadata, and the split that the names of its directories say, if any."""

    path: Path
    split: str | None = None

    def rows(self) -> int | None:
        """The number of rows of a Parquet table; None for others."""
        return self._table().rows()

    def check_columns(self, columns: ColumnOptions) -> None:
        """Raise BadInput if a column is missing or has the wrong type."""
        self._table().check_columns(self._of_table(columns))

    def names_files(self, columns: ColumnOptions) -> bool:
        """True: the table gives its images by path."""
        return True

    def pairs(self, columns: ColumnOptions, *, images: bool = True) -> Iterator[list[Pair]]:
        """The described images in order, in batches; with `images=False`, images are not read.

        Raises BadInput if the table is malformed or lacks a column.
        """
        wanted = self._of_table(columns)
        for batch in self._table().pairs(wanted, images=images):
            if wanted.split == columns.split:
                yield batch
            else:
                yield [pair._replace(split=self.split) for pair in batch]
        yield from in_batches(self._not_listed(wanted))

    def describes_images(self) -> bool:
        """Whether the table has a column of file names: others are not for `imagefolder`.

        Raises BadInput if it has a column of lists of them.
        """
        names = self._names()
        found = bool(_columns_of_files(names, _FILE))
        if not found and (lists := _columns_of_files(names, _FILES)):
            raise BadInput(
                f"{self.path}: column {lists[0]!r} lists several images for each row; write a row "
                f"for each image, with its path in a column {_FILE!r}"
            )
        return found

    def _not_listed(self, columns: ColumnOptions) -> Iterator[Pair]:
        """A pair with a flaw for each image that no column of file names has."""
        names = self._names()
        files = [*_columns_of_files(names, _FILE), columns.image]
        texts = self._table().texts([name for name in names if name in files], columns.caps)
        # Eight bytes for each name: a table may have millions.
        listed = np.sort(np.fromiter((_digest(text) for text in texts if text), np.uint64))
        for name in Folder(self.path.parent).images_without(METADATA):
            digest = _digest(name)
            place = np.searchsorted(listed, digest)
            if place == len(listed) or listed[place] != digest:
                key = name.encode(errors="surrogateescape").decode(errors="replace")
                flaw = f"{self.path.name} has no row for it"
                yield Pair(key, key, None, [], None, None, None, flaw, reason=NOT_LISTED)

    def _table(self) -> ListFile | ParquetFile:
        is_parquet = self.path.suffix == ".parquet"
        return ParquetFile(self.path) if is_parquet else ListFile(self.path)

    def _names(self) -> list[str]:
        return self._table().names()

    def _of_table(self, columns: ColumnOptions) -> ColumnOptions:
        """The options for reading the table itself."""
        names = self._names()
        image = _image_column(self.path, names, columns.image)
        if columns.split == _SPLIT and _SPLIT not in names and self.split is not None:
            columns = replace(columns, split=None)  # the directory's name is the split
        return replace(columns, image=image, is_contained=True)


def _digest(name: str) -> np.uint64:
    found = xxhash.xxh3_64_intdigest(os.path.normpath(name).encode(errors="surrogatepass"))
    return np.uint64(found)


def _columns_of_files(names: list[str], name: str) -> list[str]:
    return [one for one in names if one == name or one.endswith(f"_{name}")]


def _image_column(path: Path, names: list[str], given: str | None) -> str | None:
    """The column of file names. As in `datasets`, `image_file_name` is also called `image`."""
    if given is not None and given not in names:
        usual = {f"{given}_{_FILE}", _FILE if given == "image" else ""}
        return next((name for name in names if name in usual), given)
    found = _columns_of_files(names, _FILE)
    if given is not None or _FILE in found:
        return given or _FILE
    if len(found) > 1:
        raise BadInput(
            f"{path} has several columns of file names ({', '.join(map(repr, found[:5]))}); choose "
            "one with --image-column"
        )
    return found[0] if found else None


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

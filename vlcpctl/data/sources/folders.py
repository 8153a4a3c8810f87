"""Read pairs from a directory of images, each with a .txt (and .json) file of the same name."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.core.words import shortened
from vlcpctl.data.sources.columns import ColumnOptions
from vlcpctl.data.sources.file_log import FileLog, looks_only, state_of
from vlcpctl.data.sources.records import in_batches
from vlcpctl.data.sources.sample_parts import (
    IMAGES,
    OTHER_IMAGES,
    is_wanted,
    pair_of_parts,
    unusable,
)
from vlcpctl.data.sources.tar_reader import TarMember
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.files.inputs import open_with_state

_UNFINISHED = "_tmp"  # a directory that img2dataset writes while it runs


@dataclass(frozen=True)
class Folder:
    """A directory of samples: files that share a name up to the last dot."""

    path: Path

    def rows(self) -> None:
        """None: the number of samples is not known in advance."""

    def check_columns(self, columns: ColumnOptions) -> None:
        """Do nothing: a directory has no columns."""

    def names_files(self, columns: ColumnOptions) -> bool:
        """False: the images are in the directory itself."""
        return False

    def pairs(self, columns: ColumnOptions, *, images: bool = True) -> Iterator[list[Pair]]:
        """The samples sorted by name, in batches; with `images=False`, images are not read.

        Raises BadInput if a sample has two files with the same extension.
        """
        yield from in_batches(self._pairs(columns, images=images))

    def holds_images(self) -> bool:
        """Whether the directory contains an image, at any depth."""
        walk = (files for _, files in self._walk())
        return any(_extension(_in_parts(one)[1]) in IMAGES for files in walk for one in files)

    def _pairs(self, columns: ColumnOptions, *, images: bool) -> Iterator[Pair]:
        for stem, group in groupby(self._files(), key=itemgetter(0)):
            names = self._by_extension([(suffix, name) for _, suffix, name in group])
            if not names.keys() & {*IMAGES, *OTHER_IMAGES, "txt"}:
                continue  # statistics, lists of classes: not part of a pair
            # A file name that is not UTF-8 cannot be written to JSON or Parquet.
            key = stem.encode(errors="surrogateescape").decode(errors="replace")
            other = next((names[kind] for kind in OTHER_IMAGES if kind in names), None)
            if other is not None and not names.keys() & set(IMAGES):
                yield unusable(key, f"{shortened(other)} is not one of JPEG, PNG and WebP")
                continue
            parts = {
                kind: self._logged(name, kind, columns.log, images=images)
                for kind, name in names.items()
            }
            yield pair_of_parts(key, parts, columns)

    def _by_extension(self, files: list[tuple[str, str]]) -> dict[str, str]:
        found = {_extension(suffix): name for suffix, name in files}
        if len(found) < len(files):
            shown = shortened(", ".join(name for _, name in files))
            raise BadInput(f"{self.path} has two files for the same part of a sample: {shown}")
        return found

    def _logged(self, name: str, kind: str, log: FileLog | None, *, images: bool) -> TarMember:
        path = self._place(name)
        if looks_only(log, path):
            member, before = TarMember(name, 0, 0, is_regular=True, data=b""), state_of(path)
        else:
            member, before = self._member(path, name, kind, images=images)
        if log is not None:
            log.add(name, before, member.data)
        return member

    def _member(
        self, path: str, name: str, kind: str, *, images: bool
    ) -> tuple[TarMember, os.stat_result | None]:
        """A file as a member, and its state before it was read."""
        before = None
        try:
            file, before = open_with_state(path)
            with file:
                size = before.st_size
                wanted = is_wanted(kind, size, images=images)
                # Of this many bytes: to find the end of a file takes three more system calls.
                data = file.read(size) if wanted else None
                if data is not None and len(data) < size:
                    data += file.read()
        except (BadInput, OSError) as error:
            reason = error.__cause__ or error
            why = (
                unreadable(shortened(name), reason)
                if isinstance(reason, OSError)
                else f"{shortened(name)} is not a regular file"
            )
            flawed = TarMember(name, 0, 0, is_regular=False, data=None, why=why)
            return flawed, before or state_of(path)
        return TarMember(name, 0, size, is_regular=True, data=data), before

    def _place(self, name: str) -> str:
        """Where a file is, as text: making a path object takes as long as reading a small file."""
        return f"{self.path}/{name}"

    def images_without(self, tables: Collection[str]) -> Iterator[str]:
        """Relative names of the images, without those below a directory that has such a table."""
        for _, suffix, name in self._files(tables):
            if _extension(suffix) in IMAGES + OTHER_IMAGES:
                yield name

    def _files(self, tables: Collection[str] = ()) -> Iterator[tuple[str, str, str]]:
        """(stem, suffix, name) of the files, relative, those of one sample together.

        Hidden files are left out.
        """
        for start, files in self._walk(tables):
            yield from sorted([_in_parts(start + one) for one in files])

    def _walk(self, tables: Collection[str] = ()) -> Iterator[tuple[str, list[str]]]:
        """Every directory, relative and with a slash at its end, and the names of its files."""
        for place, directories, files in os.walk(self.path, onerror=_refuse):
            below = os.path.relpath(place, self.path)
            start = "" if below == os.curdir else f"{below}/"
            if start and not set(files).isdisjoint(tables):
                directories.clear()
                continue
            directories[:] = sorted(
                one for one in directories if one[0] != "." and one != _UNFINISHED
            )
            yield start, [one for one in files if one[0] != "."]


def _refuse(error: OSError) -> None:
    raise BadInput(unreadable(error.filename, error)) from error


def _extension(suffix: str) -> str:
    return suffix[1:].lower()


def _in_parts(name: str) -> tuple[str, str, str]:
    """The name up to its last dot, the rest, and the name; a dot at either end is none.

    >>> [_in_parts(name)[:2] for name in ("a.b/c.tar.gz", "a.b/.c", "a.b/c.")]
    [('a.b/c.tar', '.gz'), ('a.b/.c', ''), ('a.b/c.', '')]
    """
    dot = name.rfind(".")
    if dot <= name.rfind("/") + 1 or dot == len(name) - 1:
        return name, "", name
    return name[:dot], name[dot:], name

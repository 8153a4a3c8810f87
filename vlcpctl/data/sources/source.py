"""What every format of pairs has in common: a source is read as records, which are plain values.

To add a format, write a function that yields its records (`Reader`), and name it in `find`.

Fixed limits, and why none needs to be larger:

  RECORD_LENGTH     characters of one JSON value, text row or line: a record describes one image
  TEXT_BYTES        bytes of a .txt, .cls or .json member
  GROUP_BYTES       bytes to which a row group of a Parquet file decompresses, if that is more than
                    `GROUP_RATIO` times the size of the file
  MOST_COLUMNS      columns of a table
  and those of an image (`images.header`): every later command decodes it with the same bounds
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.core.words import shortened
from vlcpctl.files.digests import ALGORITHM, is_settled, recall, record
from vlcpctl.files.inputs import descriptor_of

RECORD_LENGTH = 1 << 24
TEXT_BYTES = 1 << 22
GROUP_BYTES = 1 << 26
GROUP_RATIO = 20  # text compresses less; zeros compress a thousandfold
MOST_COLUMNS = 10_000
FIRST_ROWS = 100  # that tell what a column holds

IMAGES = ("webp", "png", "jpg", "jpeg")  # in the order in which CLIP_benchmark tries them
IMAGE_SUFFIXES = tuple(f".{kind}" for kind in IMAGES)
# Images in these formats are reported as skipped; other files are ignored.
OTHER_IMAGES = ("gif", "bmp", "tif", "tiff", "heic", "heif", "avif", "jxl")
TEXTS = ("txt", "json", "cls")
TABLES = frozenset({".csv", ".tsv", ".txt"})  # suffixes of tables of text
# The first of these names that a source has is the column of a role, ignoring case.
USUAL = {
    "image": (
        *("image", "jpg", "jpeg", "png", "webp", "img", "image_path", "filepath", "file_path"),
        *("path", "file_name", "filename"),
    ),
    "caption": ("caption", "captions", "text", "texts", "title", "txt", "sentence", "sentences"),
    "label": ("label", "class", "cls", "category", "cate_name"),
    "key": ("key", "__key__", "id", "image_id", "item_id", "uid"),
}

# In a record beside its columns: why it cannot be used, as (reason, detail). And of samples of
# files: the bytes of the image, or why there are none; the tar and the offset in it; the key,
# captions and label, which are those of the .txt and the .cls or usual fields of the .json.
FLAW, IMAGE, WHY, WHERE = ".flaw", ".image", ".why", ".where"
KEY, CAPTIONS, TXT, LABEL, CLS = ".key", ".captions", ".txt", ".label", ".cls"

Record = dict[str, Any]
Row = tuple[int | str, Record]  # the number of the row or the name of the sample, and its values


class FileLog:
    """The files that a source reads besides its own, in order, as a digest of names and bytes.

    With `reads=False`, files are only looked at and have no bytes: enough for `recalled`, and much
    faster.
    """

    def __init__(self, source: Path, *, reads: bool = True) -> None:
        self.source, self.reads = source, reads
        self._name = f"files of {os.path.realpath(source)}"  # in the cache
        self._before = _mark(source)
        self._files = self._bytes = 0
        self._content, self._state = xxhash.xxh3_128(), xxhash.xxh3_128()
        self._began, self._newest_ns, self._is_empty = time.time(), 0, True

    def add(self, name: str, found: os.stat_result | None, data: bytes | None) -> None:
        """Record a file, given its state before it was read; no data if it cannot be used."""
        label = f"{len(name)}:{name}:".encode(errors="surrogatepass")
        self._is_empty, state = False, b";"
        if found is not None:
            modified, changed = found.st_mtime_ns, found.st_ctime_ns
            state = f"{found.st_dev} {found.st_ino} {found.st_size} {modified} {changed};".encode()
            self._newest_ns = max(self._newest_ns, modified, changed)
        self._state.update(label + state)
        if data is None:
            self._content.update(label + b"-;")
            return
        self._files += 1
        self._bytes += len(data)
        self._content.update(b"%b%d:%b;" % (label, len(data), xxhash.xxh3_128_digest(data)))

    def facts(self) -> dict[str, Any]:
        """Number and bytes of the files that were read, and a digest of names, sizes and bytes."""
        return {"files": self._files, "bytes": self._bytes, ALGORITHM: self._content.hexdigest()}

    def finished(self) -> dict[str, Any]:
        """The facts, when all has been read; they are cached, until one of the files is touched.

        Raises BadInput if the source's own file has changed since this log was made.
        """
        if not self.source.is_dir() and _mark(self.source) != self._before:
            raise BadInput(f"{self.source} changed while it was being read; run the command again")
        if self._files and is_settled(self._newest_ns, self._began):
            record(self._name, self._state.hexdigest(), self.facts())
        return self.facts()

    def recalled(self) -> Mapping[str, Any] | None:
        """The facts that are cached of the same files, if none has been touched since."""
        # Those of no files are none: a source may contain its images after all.
        return self.facts() if self._is_empty else recall(self._name, self._state.hexdigest())


def _mark(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def read_file(path: Path | str, name: str, limit: int, log: FileLog | None) -> bytes | str:
    """The bytes of a regular file of at most `limit` bytes; else, as text, why there are none.

    `name` is used in reasons and in the log.
    """
    if log is not None and not log.reads and Path(path).is_file():
        log.add(name, _state_of(path), b"")
        return b""
    before = None
    found: bytes | str
    try:
        descriptor, before = descriptor_of(path)
        try:
            size = before.st_size
            if size > limit:
                found = f"{shortened(name)} has {size} bytes, the limit is {limit}"
            else:
                found = os.read(descriptor, size)
                while len(found) < size and (more := os.read(descriptor, size - len(found))):
                    found += more
        finally:
            os.close(descriptor)
    except (BadInput, OSError) as error:
        cause = error.__cause__ or error
        found = f"{shortened(name)} is not a regular file"
        found = unreadable(shortened(name), cause) if isinstance(cause, OSError) else found
    if log is not None:
        log.add(name, before or _state_of(path), found if isinstance(found, bytes) else None)
    return found


def _state_of(path: Path | str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 - no path object for each of a million files
    except (OSError, ValueError):
        return None


@dataclass(frozen=True)
class Wants:
    """What a reader is asked for: columns, images, and a log of further files that it reads."""

    names: tuple[str, ...] = ()
    images: bool = True
    log: FileLog | None = None


class Start(NamedTuple):
    """What is known of a source before its pairs are read; a sample has no columns."""

    names: list[str]  # of the columns
    first: Sequence[Record] = ()  # the first records, if they were read for the names
    rows: int | None = None  # their number, if it is known without reading them


Reader = Callable[[Path, Wants], Iterator[Row]]


@dataclass(frozen=True)
class Source:
    """One file or directory with pairs.

    `kind` is "table" (typed rows, whose images are in it or files), "task" (a table of ours),
    "list" (consecutive rows with the same image are one pair) or "samples" (files that share a
    name).
    """

    path: Path
    kind: str
    read: Reader
    begin: Callable[[Path], Start] | None = None  # None for samples
    split: str | None = None  # that its name or its directory says
    is_folder: bool = False  # whether it is the metadata of an `imagefolder`

    @cached_property
    def start(self) -> Start:
        """What is known before pairs are read. Raises BadInput if the source is damaged."""
        return self.begin(self.path) if self.begin else Start([])

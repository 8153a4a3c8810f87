"""What every format of pairs has in common: a source is read as records, which are plain values.

To add a format, write a function that yields its records (`Reader`), and name it in `find`.

Fixed limits, and why none needs to be larger:

  RECORD_LENGTH     characters of one JSON value, text row or line: a record describes one image
  TEXT_BYTES        bytes of a .txt, .cls or .json member
  GROUP_BYTES       bytes to which a row group of a Parquet file decompresses, if that is more than
                    `GROUP_RATIO` times the size of the file
  ROW_BYTES         bytes of one row of an Arrow stream besides its image
  MOST_COLUMNS      columns of a table
  and those of an image (`images.header`): every later command decodes it with the same bounds
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from vlcpctl.data.sources.reading import FileLog

RECORD_LENGTH = 1 << 24
TEXT_BYTES = 1 << 22
GROUP_BYTES = 1 << 26
GROUP_RATIO = 20  # text compresses less; zeros compress a thousandfold
ROW_BYTES = 1 << 28
MOST_COLUMNS = 10_000
FIRST_ROWS = 100  # that tell what a column holds

IMAGES = ("webp", "png", "jpg", "jpeg")  # in the order in which CLIP_benchmark tries them
# Images in these formats are reported as skipped; other files are ignored.
OTHER_IMAGES = ("gif", "bmp", "tif", "tiff", "heic", "heif", "avif", "jxl")
TEXTS = ("txt", "json", "cls")

# In a record beside its columns: why it cannot be used, as (reason, detail); and, of a sample of
# files, what its members hold, such as the bytes of the image, or why they cannot be used.
FLAW, IMAGE, OFFSET, TXT, CLS = ".flaw", ".image", ".offset", ".txt", ".cls"

Record = dict[str, Any]
Row = tuple[int | str, Record]  # the number of the row or the name of the sample, and its values


class Typed(NamedTuple):
    """A value of a typed table that is neither text nor integer: a number, date or truth value."""

    value: str | int | float  # that decides the task
    text: str
    kept: str


@dataclass(frozen=True)
class Wants:
    """What a reader is asked for: columns, images, and a log of further files that it reads."""

    names: tuple[str, ...] = ()
    images: bool = True
    log: FileLog | None = None


Reader = Callable[[Path, Wants], Iterator[Row]]


@dataclass(frozen=True)
class Source:
    """One file or directory with pairs.

    `kind` is "table" (typed rows, whose images are in it or files), "list" (consecutive rows with
    the same image are one pair) or "samples" (files that share a name).
    """

    path: Path
    kind: str
    read: Reader
    # The names of the columns, and the first records if they were read for them; None for samples.
    begin: Callable[[Path], tuple[list[str], list[Record]]] | None = None
    rows: Callable[[Path], int] | None = None  # their number, if it is known without reading them
    split: str | None = None  # that its name or its directory says
    is_folder: bool = False  # whether it is the metadata of an `imagefolder`

    @cached_property
    def start(self) -> tuple[list[str], list[Record]]:
        """The names of the columns, and the first records if they were read for them.

        Raises BadInput if the source is damaged.
        """
        return self.begin(self.path) if self.begin else ([], [])

    def count(self) -> int | None:
        """The number of pairs; None if it is not known without reading them."""
        return self.rows(self.path) if self.rows else None

"""Caps on sources of unknown origin: what a reader accepts before it refuses or skips.

Caps that `vlcpctl split --cap NAME=N` changes, because a user's own data may need more:

  captions          captions of one image; the image is skipped
  caption-length    characters in all captions of one image; the image is skipped
  name-length       characters of a key, label, task, split or kept value of one image; the image
                    is skipped
  kept-values       distinct values of a kept column (--keep-columns) of one image, whose rows
                    may be many; the image is skipped, or the split refused if they are duplicates
  columns           columns of a table or Parquet file; the file is refused
  group-bytes       bytes to which a row group of a Parquet file decompresses, if that is more
                    than `GROUP_RATIO` times the size of the file; the file is refused

Fixed caps, and why none needs to be larger:

  RECORD_LENGTH     characters of one JSON value, text row or line: a record describes one image
  TEXT_BYTES        bytes of a .txt, .cls or .json member
  EXTENDED_HEADER   bytes of a tar's extended header, which contains a name
  CAPTIONS_HELD     characters of the captions of one COCO list, which are all held in memory
  BATCH_BYTES       bytes of one row of a saved data set besides its image
  MAX_BYTES, MAX_PIXELS   of an image (`images.header`): every later command decodes the image
                    with the same bounds, and models see a few hundred pixels
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.data.tasks.samples import KeptValues, Pair

RECORD_LENGTH = 1 << 24
TEXT_BYTES = 1 << 22
EXTENDED_HEADER = 1 << 20
CAPTIONS_HELD = 1 << 30
BATCH_BYTES = 1 << 28
GROUP_RATIO = 20  # text compresses less; zeros compress a thousandfold
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


@dataclass(frozen=True, kw_only=True)
class Caps:
    """The caps that --cap changes; the module's docstring explains each."""

    captions: int = 10_000
    caption_length: int = 1_000_000
    name_length: int = 4096
    kept_values: int = 10_000
    columns: int = 10_000
    group_bytes: int = 1 << 26

    def exceeded(self, pair: Pair) -> str | None:
        """The cap that a pair exceeds, as a phrase for messages, or None."""
        captions = pair.captions
        if len(captions) > self.captions:
            return over("captions", len(captions), self.captions)
        if (length := sum(map(len, captions))) > self.caption_length:
            return over("caption-length", length, self.caption_length)
        for name in (pair.source_key, pair.label, pair.value, pair.split):
            if isinstance(name, str) and len(name) > self.name_length:
                return over("name-length", len(name), self.name_length)
        return self.exceeded_by(pair.kept) if pair.kept else None

    def exceeded_by(self, kept: KeptValues) -> str | None:
        """The cap that the values of an image's kept columns exceed, as `exceeded`."""
        for values in kept:
            if len(values) > self.kept_values:
                return over("kept-values", len(values), self.kept_values)
            longest = max(map(len, values), default=0)
            if longest > self.name_length:
                what, cap = f"{longest} characters in a kept column", self.name_length
                return f"{what}, the limit is {cap} (--cap name-length=N)"
        return None


def over(name: str, found: int, cap: int) -> str:
    """The phrase for something that exceeds a cap, with the option that raises it.

    >>> over("captions", 20, 10)
    '20 captions, the limit is 10 (--cap captions=N)'
    """
    return f"{found} {_NOUNS[name]}, the limit is {cap} (--cap {name}=N)"


_NOUNS = {
    "captions": "captions",
    "caption-length": "characters in its captions",
    "name-length": "characters in its key, label, task or split",
    "kept-values": "values in a kept column",
    "columns": "columns",
    "group-bytes": "bytes in a row group",
}


def parse_caps(words: Iterable[str]) -> Caps:
    """The caps with those of --cap NAME=N changed. Raises UsageError for a malformed one.

    >>> parse_caps(["captions=50", "group-bytes=1GiB"]).group_bytes
    1073741824
    """
    given: dict[str, int] = {}
    known = [field.name.replace("_", "-") for field in fields(Caps)]
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"--cap {word!r}: write it as NAME=N, such as captions=50")
        if name not in known:
            raise UsageError(f"--cap: {unknown_name('cap', name, known)}")
        given[name.replace("-", "_")] = _number(word, text)
    return Caps(**given)


def _number(word: str, text: str) -> int:
    """A positive number such as 300, 2MB or 1GiB."""
    digits = text.rstrip("KMGIBkmgib")
    unit = text[len(digits) :].upper().removesuffix("B")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 16) or unit not in _UNITS:
        raise UsageError(f"--cap {word!r}: {text!r} is not a number; write it as 300 or 64MiB")
    if not int(digits):
        raise UsageError(f"--cap {word!r}: a cap must be at least 1")
    return int(digits) * _UNITS[unit]

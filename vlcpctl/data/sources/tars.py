"""Read tars from any source, whose headers are not trusted: WebDataset, img2dataset, vlcpctl's own.

Archives that were joined end to end are read as one, as by GNU `tar --ignore-zeros`: an end mark is
followed by zeros up to the next archive or the end of the file.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import shortened
from vlcpctl.data.images.header import MAX_BYTES
from vlcpctl.data.sources.source import (
    CAPTIONS,
    CLS,
    FLAW,
    IMAGE,
    IMAGES,
    KEY,
    LABEL,
    OTHER_IMAGES,
    TEXT_BYTES,
    TEXTS,
    TXT,
    USUAL,
    WHERE,
    WHY,
    Record,
    Row,
    Wants,
)
from vlcpctl.data.sources.values import text_of
from vlcpctl.data.tasks.samples import FAILED_DOWNLOAD, NO_IMAGE
from vlcpctl.data.tasks.tars import BLOCK
from vlcpctl.files.inputs import open_regular

# Fields of img2dataset: whether an image was downloaded, and why not.
STATUS, ERROR, SUCCESS = "status", "error_message", "success"
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"(\xb5": "zstd"}
_REGULAR = (b"0", b"\0", b"7")
_EXTENDED_HEADER = 1 << 20  # bytes: it contains a name
_MAX_DIGITS = 20
_SPARSE = "GNU.sparse"
_ZEROS = bytes(BLOCK)
_ADLER = 65521  # the modulus of a checksum whose lower half is one more than the sum of all bytes
_LOOK_LIKE_IMAGES = frozenset(IMAGES + OTHER_IMAGES)


class Member(NamedTuple):
    """A member of a tar, whose data are not read."""

    name: str
    sample: str  # the name up to the first dot of its last part
    extension: str  # the rest, in lower case
    offset: int  # of its first byte in the tar
    size: int
    is_regular: bool
    archive: int  # which of the archives in the tar it is in


class Tar:
    """The members of an open tar in order, but hidden ones, and the bytes of the latest.

    Raises BadInput, with the position in the file, if the tar is compressed or damaged.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self._file = path, file
        self._length = os.fstat(file.fileno()).st_size
        self._at = self._archive = 0  # where the file is read next
        self._overrides: dict[str, str] = {}
        start = file.read(2)
        file.seek(0)
        if start in _COMPRESSED:
            raise BadInput(f"{path} is compressed with {_COMPRESSED[start]}; unpack it first")

    def __iter__(self) -> Iterator[Member]:
        while block := self._header():
            kind, size = block[156:157], self._number(block[124:136])
            if kind in (b"x", b"L"):
                self._extend(kind, size)
            elif kind in (b"g", b"K"):
                self._skip_to(self._end(size))
            else:
                member = self._member(block, kind, size)
                end = self._end(member.size)
                if not _is_hidden(member.name):
                    yield member
                if end != self._at:
                    self._skip_to(end)

    def data(self, member: Member) -> bytes:
        """The bytes of the member that was yielded last."""
        data = self._file.read(member.size)
        self._at += len(data)
        if len(data) < member.size:
            raise self._error("the file was cut short while it was being read")
        return data

    def _member(self, block: bytes, kind: bytes, size: int) -> Member:
        name = block[: block.index(0) if 0 in block[:100] else 100]
        if block[345] and block[257:263] == b"ustar\0":
            name = b"%b/%b" % (block[345:500].split(b"\0", 1)[0], name)
        text = name.decode(errors="replace")
        if overrides := self._overrides:
            text, size = overrides.get("path") or text, int(overrides.get("size", size))
            self._overrides = {}
        if kind == b"S" or _SPARSE in overrides:
            raise self._error(
                f"member {shortened(text)} is a sparse file; write the tar without --sparse"
            )
        is_regular = kind in _REGULAR
        if not is_regular:
            if kind in b"123456":  # links, devices and directories have no data, whatever they say
                size = 0
            is_regular = kind == b"5"
        directory, slash, base = text.rpartition("/")
        start, _, extension = base.partition(".")
        sample = directory + slash + start if slash else start
        return Member(text, sample, extension.lower(), self._at, size, is_regular, self._archive)

    def _header(self) -> bytes | None:
        block = self._file.read(BLOCK)
        if block == _ZEROS:
            block = self._next_archive()
            if not block:
                return None
        if len(block) < BLOCK:
            raise self._error("the end-of-archive mark is missing: the tar is truncated")
        # The checksum counts its own field as eight spaces.
        field = block[148:156]
        if (self._number(field) + sum(field) - 8 * 32 + 1 - zlib.adler32(block) % 65536) % _ADLER:
            raise self._error("header with a wrong checksum: the file is damaged or not a tar")
        self._at += BLOCK
        return block

    def _next_archive(self) -> bytes:
        """The first block after an end mark and zeros; empty at the end of the file."""
        self._archive += 1
        self._overrides = {}
        block = _ZEROS
        while block == _ZEROS:
            self._at += BLOCK
            block = self._file.read(BLOCK)
        if len(block) < BLOCK and any(block):
            raise self._error("bytes after the end-of-archive mark that are not a tar")
        return block if len(block) == BLOCK else b""

    def _extend(self, kind: bytes, size: int) -> None:
        if size > _EXTENDED_HEADER:
            raise self._error(f"extended header of {size} bytes, the limit is {_EXTENDED_HEADER}")
        end = self._end(size)
        data = self._file.read(size)
        self._at += size
        self._skip_to(end)
        if kind == b"L":
            self._overrides["path"] = data.split(b"\0", 1)[0].decode(errors="replace")
            return
        for name, value in self._pax(data):
            if name == b"size" and not (value.isdigit() and len(value) <= _MAX_DIGITS):
                raise self._error("extended header with a size that is not a number")
            # Only what is used is kept, so that memory does not grow with the headers.
            if name in (b"path", b"size"):
                self._overrides[name.decode()] = value.decode(errors="replace")
            elif name.startswith(_SPARSE.encode()):
                self._overrides[_SPARSE] = ""

    def _pax(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The names and values in a PAX header; its records are LENGTH NAME=VALUE, one per line."""
        at = 0
        while at < len(data) and data[at]:
            length, space, _ = data[at : at + _MAX_DIGITS].partition(b" ")
            end = at + int(length) if space and length.isdigit() else 0  # ASCII digits only
            name, equals, value = data[at + len(length) + 1 : end].partition(b"=")
            if not equals or end > len(data) or not value.endswith(b"\n"):
                raise self._error("malformed extended header")
            yield name, value[:-1]
            at = end

    def _end(self, size: int) -> int:
        """Where the header after `size` bytes is. Raises BadInput beyond the end of the file."""
        if size < 0:
            raise self._error(f"a member of {size} bytes: the file is damaged")
        if self._at + size > self._length:
            raise self._error(
                f"a member of {size} bytes extends past the end of the file: the tar is truncated"
            )
        return self._at + size + -size % BLOCK

    def _skip_to(self, end: int) -> None:
        self._file.seek(end - self._at, os.SEEK_CUR)
        self._at = end

    def _number(self, digits: bytes) -> int:
        if digits[0] & 0x80:  # GNU's way to write sizes above 8 GB: two's complement
            return -1 if digits[0] & 0x40 else int.from_bytes(digits[1:], "big")
        octal = digits.strip(b" \0") or b"0"
        try:
            if not octal.isdigit():  # int() also accepts signs, underscores and 0o
                raise ValueError
            return int(octal, 8)
        except ValueError as error:
            raise self._error(
                "header field that is not a number: the file is damaged or not a tar"
            ) from error

    def _error(self, what: str) -> BadInput:
        return BadInput(f"{self.path}, byte {self._at}: {what}")


def _is_hidden(name: str) -> bool:
    """Whether a member is hidden, or of the directory of its own that macOS adds to archives."""
    base = name.rpartition("/")[2]
    return base.startswith(".") or ("__MACOSX" in name and "__MACOSX" in name.split("/")[:-1])


def tar(path: Path, wants: Wants) -> Iterator[Row]:
    """The samples of a tar: members that share a name up to the first dot.

    Raises BadInput if the tar is damaged or a sample has two members with the same extension.
    """
    most = dict.fromkeys(TEXTS, TEXT_BYTES)
    most |= dict.fromkeys(IMAGES, MAX_BYTES if wants.images else -1)
    place = Path(os.path.abspath(path))
    with open_regular(path, buffering=2**20) as file:
        walk = Tar(path, file)
        for (_, key), members in groupby(walk, key=attrgetter("archive", "sample")):
            parts: dict[str, tuple[Member, bytes | None]] = {}
            others: list[str] = []
            for member in members:
                extension = member.extension
                if extension in most:
                    if extension in parts:
                        raise BadInput(f"{path} has two members named {shortened(member.name)!r}")
                    wanted = member.is_regular and member.size <= most[extension]
                    parts[extension] = member, walk.data(member) if wanted else None
                elif extension.rpartition(".")[2] in _LOOK_LIKE_IMAGES:
                    others.append(member.name)
            yield from _sample(place, key, parts, others)


def _sample(
    path: Path, key: str, parts: dict[str, tuple[Member, bytes | None]], others: list[str]
) -> Iterator[Row]:
    """The record of a sample; or, without an image in it, one for each member that looks so."""
    kind = next((kind for kind in IMAGES if kind in parts), None)
    if others and kind is None:
        for name in others[:1] if parts else others:
            yield key if parts else name, {FLAW: (NO_IMAGE, _why_not(name))}
    elif parts:  # else a directory, or a file that is not part of a pair
        found = {one: _content(one, *part) for one, part in parts.items()}
        record = record_of(key, found, found.get(kind or "", "the sample has no image"))
        if kind is not None:
            record[WHERE] = path, parts[kind][0].offset
        yield key, record


def _content(kind: str, member: Member, data: bytes | None) -> bytes | str:
    """The bytes of a member, or why they were not read."""
    if data is not None:
        return data
    if kind in TEXTS and not member.is_regular:
        return f"its .{kind} is not a file"
    if not member.is_regular:
        return f"{shortened(member.name)} is a link or a device, not a file"
    limit = TEXT_BYTES if kind in TEXTS else MAX_BYTES
    return f"{shortened(member.name)} has {member.size} bytes, the limit is {limit}"


def record_of(key: str, parts: Mapping[str, bytes | str], image: bytes | str) -> Record:
    """The record of a sample: the fields of its .json, and what its other members mean.

    `parts` has by extension the bytes of its texts; as text, there or as `image`, why they were not
    read.
    """
    read: dict[str, str] = {}
    try:
        for kind in TEXTS:
            data = parts.get(kind)
            if isinstance(data, bytes) and data:
                read[kind] = data.decode()
        if unread := [why for kind in TEXTS if isinstance(why := parts.get(kind), str)]:
            raise ValueError(unread[0])
        record = _parsed(read.get("json"))
    except (ValueError, RecursionError) as error:
        return {FLAW: (NO_IMAGE, f"cannot read its .txt, .cls or .json: {error}")}
    # The two fields together are img2dataset's: others have a status as well.
    if ERROR in record and (why := failed_download(record.get(STATUS), record[ERROR])):
        return {FLAW: (FAILED_DOWNLOAD, why)}
    text, label, listed = read.get("txt"), read.get("cls"), record.get("captions")
    if text is None:
        found: Any = _usual(record, "caption")
    else:
        # CLIP_benchmark writes one caption per line. img2dataset writes a single caption, line
        # breaks included, and repeats it in the .json.
        found = text if isinstance(record.get("caption"), str) else text.split("\n")
    record[TXT], record[CAPTIONS] = found, listed if isinstance(listed, list) else found
    record[CLS] = record.get("cls") if label is None else label
    record[LABEL] = _usual(record, "label") if label is None else label.strip()
    record[KEY] = text_of(record.get("source_key")) or key
    record[IMAGE], record[WHY] = (None, image) if isinstance(image, str) else (image, None)
    return record


def _usual(record: Record, part: str) -> Any:
    return next((record[name] for name in USUAL[part] if name in record), None)


def failed_download(status: object, error: object) -> str | None:
    """Why img2dataset did not download the image of a sample, or None if it did.

    Its own writer leaves such a sample out of tars and folders; programs that turn its tables into
    tars may not.
    """
    if status in (None, SUCCESS):
        return None
    return shortened(f"{status}: {error}" if error else str(status))


def _parsed(text: str | None) -> dict[str, Any]:
    described = json.loads(text) if text else {}
    if text and "\\ud" in text.lower():
        # Raises UnicodeEncodeError for a lone surrogate, which could not be written to the index.
        json.dumps(described, ensure_ascii=False).encode()
    return described if isinstance(described, dict) else {}


def _why_not(name: str) -> str:
    """Why a member that looks like an image is not that of a sample."""
    extension = name.rpartition("/")[2].partition(".")[2].lower()
    if extension in OTHER_IMAGES:
        return f"{shortened(name)} is not one of JPEG, PNG and WebP"
    return (
        f"{shortened(name)} has the extension {shortened(extension)}: the name of a sample ends at "
        "its first dot; rename it"
    )

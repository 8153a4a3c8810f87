"""Walk the members of a tar from any source; its headers are not trusted.

Archives that were joined end to end are read as one, as by GNU `tar --ignore-zeros`: an end mark is
followed by zeros up to the next archive or the end of the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import shortened
from vlcpctl.data.sources.limits import EXTENDED_HEADER
from vlcpctl.data.tasks.tar import BLOCK
from vlcpctl.files.inputs import open_regular

_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"(\xb5": "zstd"}
_REGULAR = (b"0", b"\0", b"7")
_MAX_DIGITS = 20
_SPARSE = "GNU.sparse"


@dataclass
class TarMember:
    """A member of a tar; `data` is None if it was not wanted or it is not a regular file."""

    name: str
    offset: int  # of its first byte in the tar
    size: int
    is_regular: bool
    data: bytes | None
    why: str = ""  # the reason, if a file could not be read
    archive: int = 0  # which of the archives in the tar it is in


@dataclass
class _TarWalk:
    path: Path
    file: BinaryIO
    wants: Callable[[str, int], bool]
    length: int = 0
    at: int = 0
    archive: int = 0
    overrides: dict[str, str] = field(default_factory=dict)

    def members(self) -> Iterator[TarMember]:
        while block := self._header():
            kind, size = block[156:157], self._number(block[124:136])
            if kind in (b"x", b"L"):
                self._extend(kind, size)
            elif kind in (b"g", b"K"):
                self._take(size, wanted=False)
            else:
                yield self._member(block, kind, size)

    def _member(self, block: bytes, kind: bytes, size: int) -> TarMember:
        name = self.overrides.get("path") or _name(block)
        size = int(self.overrides.get("size", size))
        if kind == b"S" or _SPARSE in self.overrides:
            raise self._error(
                f"member {shortened(name)} is a sparse file; write the tar without --sparse"
            )
        self.overrides = {}
        is_regular, offset = kind in _REGULAR, self.at
        if not is_regular and kind in b"123456":
            size = 0  # links, devices and directories have no data, whatever their header claims
        data = self._take(size, wanted=is_regular and self.wants(name, size))
        is_regular = is_regular or kind == b"5"
        return TarMember(name, offset, size, is_regular, data, archive=self.archive)

    def _header(self) -> bytes | None:
        block = self.file.read(BLOCK)
        if block == bytes(BLOCK):
            block = self._next_archive()
            if not block:
                return None
        if len(block) < BLOCK:
            raise self._error("the end-of-archive mark is missing: the tar is truncated")
        # The checksum counts its own field as eight spaces.
        total = sum(block[:148]) + sum(block[156:]) + 8 * 32
        if self._number(block[148:156]) != total:
            raise self._error("header with a wrong checksum: the file is damaged or not a tar")
        self.at += BLOCK
        return block

    def _next_archive(self) -> bytes:
        """The first block after an end mark and zeros; empty at the end of the file."""
        self.archive += 1
        self.overrides = {}
        block = bytes(BLOCK)
        while block == bytes(BLOCK):
            self.at += BLOCK
            block = self.file.read(BLOCK)
        if len(block) < BLOCK and any(block):
            raise self._error("bytes after the end-of-archive mark that are not a tar")
        return block if len(block) == BLOCK else b""

    def _extend(self, kind: bytes, size: int) -> None:
        if size > EXTENDED_HEADER:
            raise self._error(f"extended header of {size} bytes, the limit is {EXTENDED_HEADER}")
        data = self._take(size, wanted=True) or b""
        if kind == b"L":
            self.overrides["path"] = data.split(b"\0", 1)[0].decode(errors="replace")
            return
        for name, value in self._records(data):
            if name == b"size" and not (value.isdigit() and len(value) <= _MAX_DIGITS):
                raise self._error("extended header with a size that is not a number")
            # Only what is used is kept, so that memory does not grow with the headers.
            if name in (b"path", b"size"):
                self.overrides[name.decode()] = value.decode(errors="replace")
            elif name.startswith(_SPARSE.encode()):
                self.overrides[_SPARSE] = ""

    def _records(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
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

    def _take(self, size: int, *, wanted: bool) -> bytes | None:
        padded = size + -size % BLOCK
        if size < 0:
            raise self._error(f"a member of {size} bytes: the file is damaged")
        if self.at + size > self.length:
            raise self._error(
                f"a member of {size} bytes extends past the end of the file: the tar is truncated"
            )
        self.at += padded
        if not wanted:
            self.file.seek(padded, os.SEEK_CUR)
            return None
        data = self.file.read(padded)[:size]
        if len(data) < size:
            raise self._error("the file was cut short while it was being read")
        return data

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
        return BadInput(f"{self.path}, byte {self.at}: {what}")


def members(
    path: Path, wants: Callable[[str, int], bool], *, reads_ahead: int = 2**20
) -> Iterator[TarMember]:
    """Yield the members in order but hidden ones; `wants(name, size)` decides whose bytes are read.

    `reads_ahead` is the size of the read buffer in bytes; make it small to read few members.
    Raises BadInput, with the position in the file, if the tar is compressed or damaged.
    """
    with open_regular(path, buffering=reads_ahead) as file:
        start = file.read(2)
        file.seek(0)
        if start in _COMPRESSED:
            raise BadInput(f"{path} is compressed with {_COMPRESSED[start]}; unpack it first")
        walk = _TarWalk(path, file, wants, os.fstat(file.fileno()).st_size)
        yield from (member for member in walk.members() if not _is_hidden(member.name))


def _is_hidden(name: str) -> bool:
    """Whether a member is hidden, or of the directory of its own that macOS adds to archives."""
    directory, _, base = name.rpartition("/")
    return base.startswith(".") or "__MACOSX" in directory.split("/")


def _name(block: bytes) -> str:
    name = block[:100].split(b"\0", 1)[0]
    prefix = block[345:500].split(b"\0", 1)[0] if block[257:263] == b"ustar\0" else b""
    return (prefix + b"/" + name if prefix else name).decode(errors="replace")

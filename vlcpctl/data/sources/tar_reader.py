"""Walk the members of a tar from any source; its headers are not trusted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from vlcpctl.core.errors import BadInput
from vlcpctl.data.tasks.tar import BLOCK

_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"(\xb5": "zstd"}
_REGULAR = (b"0", b"\0", b"7")
_MAX_EXTENSION_HEADER = 2**20
_MAX_DIGITS = 20


@dataclass
class TarMember:
    """A member of a tar; `data` is None if it was not wanted or it is not a regular file."""

    name: str
    offset: int  # of its first byte in the tar
    size: int
    is_regular: bool
    data: bytes | None


@dataclass
class _TarWalk:
    path: Path
    file: BinaryIO
    wants: Callable[[str, int], bool]
    length: int = 0
    at: int = 0
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
        if any(key.startswith("GNU.sparse") for key in self.overrides):
            raise self._error(f"member {name!r} is a sparse file; write the tar without --sparse")
        self.overrides = {}
        is_regular, offset = kind in _REGULAR, self.at
        if not is_regular and kind in b"123456":
            size = 0  # links, devices and directories have no data, whatever their header claims
        data = self._take(size, wanted=is_regular and self.wants(name, size))
        return TarMember(name, offset, size, is_regular or kind == b"5", data)

    def _header(self) -> bytes | None:
        block = self.file.read(BLOCK)
        if block == bytes(BLOCK):
            return None
        if len(block) < BLOCK:
            raise self._error("the end-of-archive mark is missing: the tar is truncated")
        # The checksum counts its own field as eight spaces.
        total = sum(block[:148]) + sum(block[156:]) + 8 * 32
        if self._number(block[148:156]) != total:
            raise self._error("header with a wrong checksum: the file is damaged or not a tar")
        self.at += BLOCK
        return block

    def _extend(self, kind: bytes, size: int) -> None:
        if size > _MAX_EXTENSION_HEADER:
            raise self._error(
                f"extended header of {size} bytes, the limit is {_MAX_EXTENSION_HEADER}"
            )
        data = self._take(size, wanted=True) or b""
        if kind == b"L":
            self.overrides["path"] = data.rstrip(b"\0").decode(errors="replace")
            return
        while data:
            length = data[:_MAX_DIGITS].partition(b" ")[0]
            if not length.isdigit() or not 0 < int(length) <= len(data):
                raise self._error("malformed extended header")
            name, _, value = data[len(length) + 1 : int(length)].rstrip(b"\n").partition(b"=")
            self.overrides[name.decode(errors="replace")] = value.decode(errors="replace")
            data = data[int(length) :]
        size_text = self.overrides.get("size", "0")
        if not size_text.isdigit() or len(size_text) > _MAX_DIGITS:
            raise self._error("extended header with a size that is not a number")

    def _take(self, size: int, *, wanted: bool) -> bytes | None:
        padded = size + -size % BLOCK
        if self.at + size > self.length:
            raise self._error(
                f"a member of {size} bytes extends past the end of the file: the tar is truncated"
            )
        self.at += padded
        if not wanted:
            self.file.seek(padded, os.SEEK_CUR)
            return None
        return self.file.read(padded)[:size]

    def _number(self, digits: bytes) -> int:
        if digits[0] & 0x80:  # GNU's way to write sizes above 8 GB
            return int.from_bytes(digits[1:], "big")
        try:
            return int(digits.strip(b" \0") or b"0", 8)
        except ValueError as error:
            raise self._error(
                "header field that is not a number: the file is damaged or not a tar"
            ) from error

    def _error(self, what: str) -> BadInput:
        return BadInput(f"{self.path}, byte {self.at}: {what}")


def members(
    path: Path, wants: Callable[[str, int], bool], *, reads_ahead: int = 2**20
) -> Iterator[TarMember]:
    """Yield the members in order; `wants(name, size)` decides whose bytes are read.

    `reads_ahead` is the size of the read buffer in bytes; make it small to read few members.
    Raises BadInput, with the position in the file, if the tar is compressed or damaged.
    """
    with path.open("rb", buffering=reads_ahead) as file:
        start = file.read(2)
        file.seek(0)
        if start in _COMPRESSED:
            raise BadInput(f"{path} is compressed with {_COMPRESSED[start]}; unpack it first")
        yield from _TarWalk(path, file, wants, os.fstat(file.fileno()).st_size).members()


def _name(block: bytes) -> str:
    name = block[:100].split(b"\0", 1)[0]
    prefix = block[345:500].split(b"\0", 1)[0] if block[257:263] == b"ustar\0" else b""
    return (prefix + b"/" + name if prefix else name).decode(errors="replace")

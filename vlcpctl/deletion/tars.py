"""Samples in tars, found by the names of their members, and tars rewritten without some of them.

Buffers hard-link the tars of earlier buffers, and keep the samples that they evicted in them: what
a tar contains is known from the tar alone.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.data.tasks.tars import BLOCK, END, header
from vlcpctl.files.inputs import open_regular, parse_json
from vlcpctl.files.outputs import link_or_copy

Inode = tuple[int, int]
_MOST_JSON_BYTES = 1 << 26
_AT_ONCE = 1 << 20


class TarSample(NamedTuple):
    """The members of one sample, which follow each other, and where its .json member is."""

    key: str
    start: int  # of the first header
    end: int  # of the padding after the last member
    json_start: int = 0
    json_size: int = 0


def inode_of(path: Path) -> Inode:
    """The device and inode of a file. Raises OSError if there is none."""
    found = path.stat()
    return found.st_dev, found.st_ino


@dataclass
class Tars:
    """Tars by inode: each is read once, and written once for all its hard links."""

    _samples: dict[Inode, list[TarSample]] = field(default_factory=dict)
    _written: dict[Inode, tuple[Path, dict[str, int]]] = field(default_factory=dict)

    def samples(self, path: Path) -> list[TarSample]:
        """The samples in a tar, in order. Raises BadInput if it cannot be read."""
        inode = inode_of(path)
        if inode not in self._samples:
            self._samples[inode] = _samples(path)
        return self._samples[inode]

    def description(self, path: Path, sample: TarSample) -> dict[str, Any]:
        """The .json member of a sample; {} if it has none. Raises BadInput if it is not JSON."""
        if not 0 < sample.json_size <= _MOST_JSON_BYTES:
            return {}
        with open_regular(path) as file:
            data = os.pread(file.fileno(), sample.json_size, sample.json_start)
        try:
            found = parse_json(data)
        except ValueError as error:
            raise BadInput(
                f"{path}: the description of {sample.key} is damaged: {error}"
            ) from error
        return found if isinstance(found, dict) else {}

    def rewrite(
        self, path: Path, target: Path, final: Path, drop: Collection[str]
    ) -> dict[str, int]:
        """Write a tar without the samples `drop` to `target`, which will be renamed to `final`.

        Returns how many bytes earlier each sample is that is left. Nothing is written if none is. A
        tar of the same inode that was written before is linked. Raises BadInput if the tar cannot
        be read.
        """
        inode = inode_of(path)
        if inode in self._written:
            earlier, moves = self._written[inode]
            if moves:
                link_or_copy(earlier, target)
            return moves
        kept = [one for one in self.samples(path) if one.key not in drop]
        ends = accumulate(one.end - one.start for one in kept)
        moves = {one.key: one.end - end for one, end in zip(kept, ends, strict=True)}
        if moves:
            _copy(path, target, kept)
        self._written[inode] = final, moves
        return moves


def _samples(path: Path) -> list[TarSample]:
    found: list[TarSample] = []
    try:
        with open_regular(path) as file:
            at, size = 0, os.fstat(file.fileno()).st_size
            while (block := os.pread(file.fileno(), len(END), at)) != END:
                key, extension, length = _member(block[:BLOCK], path)
                end = at + BLOCK + -(-length // BLOCK) * BLOCK
                if not found or found[-1].key != key:
                    found.append(TarSample(key, at, end))
                json = (at + BLOCK, length) if extension == "json" else found[-1][3:]
                found[-1] = TarSample(key, found[-1].start, end, *json)
                at = end
    except OSError as error:
        raise BadInput(unreadable(path, error)) from error
    if at + len(END) != size:
        raise BadInput(f"{path} has more than its samples; run 'vlcpctl check --deep'")
    return found


def _member(block: bytes, path: Path) -> tuple[str, str, int]:
    """Key, extension and size of a member; only headers as `tar.header` writes them are accepted.

    Not by the tar reader of Python, which takes a damaged header for the end of the file.
    """
    try:
        key, _, extension = block[:100].rstrip(b"\0").decode("ascii").partition(".")
        size = int(block[124:135], 8)
        if block == header(key, extension, size):
            return key, extension, size
    except ValueError:
        pass
    raise BadInput(f"{path} is damaged: it has a header of no sample; run 'vlcpctl check --deep'")


def _copy(path: Path, target: Path, samples: list[TarSample]) -> None:
    with open_regular(path) as source, target.open("xb") as file:
        for sample in samples:
            source.seek(sample.start)
            left = sample.end - sample.start
            while left > 0:
                data = source.read(min(left, _AT_ONCE))
                if not data:
                    raise BadInput(f"cannot read {path}: it is truncated")
                file.write(data)
                left -= len(data)
        file.write(END)

"""Files that no honest program writes, and the promise that every reader of them keeps."""

from __future__ import annotations

import contextlib
import resource
import signal
import tarfile
from collections.abc import Callable
from pathlib import Path

from support.processes import exit_code_of, start_child

from vlcpctl.core.errors import VlcpError


def refusal(read: Callable[[], object], path: Path) -> str | None:
    """None if the reader comes to an end, else its error: one printable line naming the file."""
    try:
        read()
    except VlcpError as error:
        said = str(error)
        assert path.name in said, said
        assert "\n" not in said, said
        assert len(said) < 4000, f"{len(said)} characters"
        return said
    return None


def check_memory(read: Callable[[], object], most_mib: int) -> None:
    """Fail if the reader, in a process of its own, needs more memory than this beyond the start."""

    def act(_: int) -> None:
        signal.alarm(60)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with contextlib.suppress(VlcpError):
            read()
        used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        assert used < most_mib, f"{used:.0f} MiB"

    assert exit_code_of(start_child(act)) == 0


def block(name: bytes = b"a.png", size: bytes = b"%011o\0" % 0, kind: bytes = b"0") -> bytes:
    """The header of a tar member with any bytes for its size, and a checksum that is right."""
    head = bytearray(tarfile.TarInfo("x").tobuf(tarfile.USTAR_FORMAT)[:512])
    head[:100] = name.ljust(100, b"\0")[:100]
    head[124:136] = size.ljust(12, b"\0")[:12]
    head[156:157] = kind
    total = sum(head[:148]) + sum(head[156:]) + 8 * 32
    head[148:156] = b"%06o\0 " % total
    return bytes(head)


def member(name: bytes, data: bytes, kind: bytes = b"0") -> bytes:
    """A whole member of a tar."""
    return block(name, b"%011o\0" % len(data), kind) + data + bytes(-len(data) % 512)


def pax(*records: bytes) -> bytes:
    """An extended header; a record is NAME=VALUE, or with its length and line end as it is."""
    texts = []
    for record in records:
        length = len(record) + 3
        while len(b"%d %s\n" % (length, record)) != length:
            length += 1
        texts.append(b"%d %s\n" % (length, record))
    return member(b"pax", b"".join(texts), b"x")


def tar_file(path: Path, *parts: bytes, end: bool = True) -> Path:
    """A tar of these blocks."""
    path.write_bytes(b"".join(parts) + bytes(1024) * end)
    return path


def mutated(data: bytes, draw: object) -> bytes:
    """The bytes with a few of them changed, inserted, removed or repeated, or cut off."""
    out = bytearray(data)
    integers = draw.integers  # type: ignore[attr-defined]
    for _ in range(int(integers(1, 5))):
        at = int(integers(0, max(1, len(out))))
        length = int(integers(1, 9))
        how = int(integers(0, 5))
        if how == 0 and out:
            out[at % len(out)] = int(integers(0, 256))
        elif how == 1:
            out[at:at] = bytes(integers(0, 256, length, dtype="uint8"))
        elif how == 2:
            del out[at : at + length]
        elif how == 3:
            out[at:at] = out[at : at + 64]
        else:
            del out[at:]
    return bytes(out)

"""The USTAR blocks of a sample, written so that equal samples are equal bytes."""

from __future__ import annotations

import json
from functools import lru_cache

from vlcpctl.data.pairs import Sample

BLOCK = 512
END = bytes(2 * BLOCK)

# Fields of a header that never change: mode, owner and group; time; then type to the end of the block.
_OWNER = b"0000644\0" + 2 * b"0000000\0"
_TIME = b"\0" + b"00000000000\0"
_TAIL = b"0" + bytes(100) + b"ustar\0" + b"00" + bytes(64) + 2 * b"0000000\0" + bytes(155 + 12)
# The checksum counts its own field as eight spaces.
_FIXED_SUM = sum(_OWNER) + sum(_TIME) + sum(_TAIL) + 8 * ord(" ")
_ENCODE = json.JSONEncoder(ensure_ascii=False).encode


def frame(sample: Sample, task: str) -> tuple[bytes, bytes]:
    """What stands before and after the image of a sample in its tar; before is one block long."""
    name = sample.key.encode()
    name_sum = sum(name)
    size = len(sample.image)
    text = caption_text(sample.captions)
    described = description(sample, task)
    before = _header(name, name_sum, sample.kind, size)
    after = b"".join(
        (
            bytes(-size % BLOCK),
            _header(name, name_sum, "txt", len(text)),
            text,
            bytes(-len(text) % BLOCK),
            _header(name, name_sum, "json", len(described)),
            described,
            bytes(-len(described) % BLOCK),
        )
    )
    return before, after


def caption_text(captions: list[str]) -> bytes:
    """The .txt member: one caption a line, a newline inside a caption as a backslash and an n.

    >>> caption_text(["a cat", "two\\nlines"]).decode()
    'a cat\\ntwo\\\\nlines'
    """
    return "\n".join([caption.replace("\n", "\\n") for caption in captions]).encode()


def description(sample: Sample, task: str) -> bytes:
    """The .json member: what the index says of the sample, for readers that have only the tar."""
    return _ENCODE(
        {
            "key": sample.key,
            "source_key": sample.source_key,
            "label": sample.label,
            "task": task,
            "captions": sample.captions,
            "width": sample.width,
            "height": sample.height,
            "sha256": sample.sha256,
        }
    ).encode()


def header(key: str, extension: str, size: int) -> bytes:
    """The header block of one member."""
    name = key.encode()
    return _header(name, sum(name), extension, size)


def _header(name: bytes, name_sum: int, extension: str, size: int) -> bytes:
    suffix, suffix_sum = _suffix(extension)
    digits, digits_sum = _octal(size)
    checksum = b"%06o\0 " % (_FIXED_SUM + name_sum + suffix_sum + digits_sum)
    return (name + suffix).ljust(100, b"\0") + _OWNER + digits + _TIME + checksum + _TAIL


@lru_cache(maxsize=16)
def _suffix(extension: str) -> tuple[bytes, int]:
    text = b"." + extension.encode()
    return text, sum(text)


@lru_cache(maxsize=4096)
def _octal(size: int) -> tuple[bytes, int]:
    digits = b"%011o" % size
    return digits, sum(digits)

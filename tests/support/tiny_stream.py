"""The tiny tasks and streams of vlcpctl.testing."""

from __future__ import annotations

from vlcpctl.testing.tiny_stream import (
    COLOURS,
    make_image,
    make_pair,
    make_stream,
    make_task,
    repeating_pair,
    without_digests,
)

__all__ = [
    "COLOURS",
    "make_image",
    "make_pair",
    "make_stream",
    "make_task",
    "repeating_pair",
    "without_digests",
]

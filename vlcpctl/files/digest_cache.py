"""Digests of files already read, in the user's cache directory, so that they are not read again.

An entry is about a file in one state: its device, inode, size and times. A cache that cannot be
written only costs time, so that is not an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import BadInput
from vlcpctl.files.input_files import read_text
from vlcpctl.files.outputs import unfinished
from vlcpctl.files.safe_json import parse_json

_CACHED_FROM = 1 << 22  # bytes; hashing a smaller file is faster than opening its cache entry
_SETTLED_SECONDS = 2  # a file changed more recently could change again within the clock's tick
# No home, or an entry that is damaged or no file.
_NO_CACHE = (OSError, RuntimeError, LookupError, TypeError, ValueError, BadInput)
_FILES = "\0files"  # of a source; not the end of any path
_DIGEST_AT = 5  # among the words of `_state`


def digest_of(path: Path, found: os.stat_result) -> str | None:
    """The digest that `remember` kept for a file in the state `found`, or None."""
    if found.st_size < _CACHED_FROM:
        return None
    with suppress(*_NO_CACHE):
        text = read_text(_entry(path))
        digest = text.split(" ")[_DIGEST_AT]
        if text == _state(path, found, digest):
            return digest
    return None


def remember(path: Path, found: os.stat_result, digest: str) -> None:
    """Keep the digest of a large file that was in the state `found` when it was hashed."""
    if found.st_size >= _CACHED_FROM and is_settled(found):
        _write_entry(path, _state(path, found, digest))


def recall(source: Path, state: str) -> dict[str, Any] | None:
    """What `record` kept for a source that was in this state, or None."""
    with suppress(*_NO_CACHE):
        kept = parse_json(read_text(_entry(source, _FILES)))
        if kept["state"] == state and isinstance(kept["facts"], dict):
            return dict(kept["facts"])
    return None


def record(source: Path, state: str, facts: Mapping[str, Any]) -> None:
    """Keep facts about the files of a source for `recall`; all must have been settled.

    `state` stands for the names, sizes, times and inodes of the files.
    """
    _write_entry(source, json.dumps({"state": state, "facts": facts}), _FILES)


def is_settled(found: os.stat_result) -> bool:
    """Whether the next change of a file will change its times, whatever the clock's tick."""
    return time.time() - max(found.st_mtime, found.st_ctime) >= _SETTLED_SECONDS


def _write_entry(path: Path, text: str, what: str = "") -> None:
    with suppress(*_NO_CACHE):
        entry = _entry(path, what)
        entry.parent.mkdir(parents=True, exist_ok=True)
        temporary = unfinished(entry)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(entry)


def _entry(path: Path, what: str = "") -> Path:
    """The cache entry of a path, or of `what` about it, in the user's cache directory."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    key = os.fsencode(os.path.realpath(path)) + what.encode()
    name = hashlib.blake2b(key, digest_size=16).hexdigest()
    return cache / "vlcpctl" / "verified" / name


def _state(path: Path, found: os.stat_result, digest: str) -> str:
    # ctime as well as mtime: programs that edit a file in place can set mtime back, not ctime.
    parts = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return " ".join([*map(str, parts), digest, ascii(os.path.realpath(path))])

"""Digests that find changed files, and a cache that spares hashing a large file again.

xxh3_128 reads ten times as fast as sha256. It finds faults and edits, not attackers: ids that
stand for content keep their cryptographic hashes (see `core.hashing`).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

import xxhash

from vlcpctl.core.errors import BadInput, VlcpError, unreadable
from vlcpctl.core.safe_json import parse_json

ALGORITHM = "xxh3_128"
_EARLIER = "sha256"  # without a size: how earlier versions recorded the files of a checkpoint
_HASHES: dict[str, Callable[[], Any]] = {ALGORITHM: xxhash.xxh3_128, _EARLIER: hashlib.sha256}
_CACHED_FROM = 1 << 22  # bytes; a smaller file is hashed sooner than its cache entry is opened
_BLOCK = 1 << 20
_SETTLED_SECONDS = 2  # a file changed more recently could change again within the clock's tick

FileDigest = Mapping[str, Any]  # {"bytes": size, "xxh3_128": hex digits}, or only "sha256"


def file_digest(path: Path, name: str = ALGORITHM) -> str:
    """The digest of a file's bytes in hex: 32 digits of xxh3_128, or another one by its name.

    Raises OSError if it cannot be read or is not a regular file (a pipe would block forever).
    """
    with _regular(path) as file:
        return hashlib.file_digest(file, _HASHES[name]).hexdigest()


def prefix_digest(path: Path, size: int) -> str:
    """The xxh3_128 of the first `size` bytes of a file. Raises OSError as `file_digest` does."""
    digest = xxhash.xxh3_128()
    with _regular(path) as file:
        while size > 0 and (block := file.read(min(size, _BLOCK))):
            digest.update(block)
            size -= len(block)
    return digest.hexdigest()


@contextmanager
def _regular(path: Path) -> Iterator[BufferedReader]:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is not a regular file")
        yield file


def cached_digest(path: Path) -> str:
    """The xxh3_128 of a file, from the cache if it has not been touched since it was hashed.

    Raises OSError as `file_digest` does.
    """
    found = path.stat()
    with suppress(OSError, ValueError, IndexError):
        text = _entry(path).read_text(encoding="utf-8")
        digest = text.split(" ")[_DIGEST_AT]
        if text == _state(path, found, digest):
            return digest
    digest = file_digest(path)
    _remember(path, found, digest)
    return digest


def digests_of(directory: Path, names: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
    """Size and digest of files below a directory, keyed and sorted by relative path.

    `names` are their relative paths; without them, all files are meant.
    """
    if names is None:
        found = (path for path in directory.rglob("*") if path.is_file())
        names = [path.relative_to(directory).as_posix() for path in found]
    return {
        name: {
            "bytes": (directory / name).stat().st_size,
            ALGORITHM: file_digest(directory / name),
        }
        for name in sorted(names)
    }


def verify_files(
    directory: Path,
    recorded: Mapping[str, FileDigest],
    *,
    error: type[VlcpError] = BadInput,
    advice: str = "",
    use_cache: bool = True,
) -> None:
    """Raise `error`, naming the first file that is missing or is not what was recorded.

    `advice` is appended to the message, such as "; --force starts over".
    """
    for problem in changed_files(directory, recorded, use_cache=use_cache):
        raise error(problem + advice)


def changed_files(
    directory: Path, recorded: Mapping[str, FileDigest], *, use_cache: bool = True
) -> Iterator[str]:
    """A phrase for each file that is missing or is not what was recorded, with its path.

    With `use_cache`, a large file that was verified before, and that has not been touched since
    by its size, times and inode, is not hashed again.
    """
    for name, entry in recorded.items():
        problem = _problem(directory / name, entry, use_cache) if _inside(name) else None
        if problem or not _inside(name):
            yield problem or f"{directory} records a file outside of it: {name!r}"


def changed_prefix(path: Path, entry: FileDigest) -> str | None:
    """A phrase if a file no longer starts with the recorded bytes, which may have grown since."""
    try:
        size, found = entry["bytes"], path.stat().st_size
        if found < size:
            return f"{path} has changed since it was written: it has {found} bytes and had {size}"
        if prefix_digest(path, size) != entry[ALGORITHM]:
            return f"{path} has changed since it was written: its {ALGORITHM} differs"
    except OSError as error:
        return f"{path} is missing" if not path.exists() else unreadable(path, error)
    except (KeyError, TypeError):
        return f"{path} has no valid size and {ALGORITHM} on record"
    return None


def unlisted_files(directory: Path, names: Collection[str]) -> list[str]:
    """The relative paths of files below a directory that are not among these, sorted."""
    found = (path for path in directory.rglob("*") if not path.is_dir())
    return sorted({path.relative_to(directory).as_posix() for path in found} - set(names))


def _inside(name: str) -> bool:
    path = Path(name)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name


def _problem(path: Path, entry: FileDigest, use_cache: bool) -> str | None:
    changed = f"{path} has changed since it was written"
    try:
        found = path.stat()
        name = ALGORITHM if ALGORITHM in entry else _EARLIER
        size, wanted = entry["bytes"] if name == ALGORITHM else found.st_size, entry[name]
        if found.st_size != size:
            return f"{changed}: it has {found.st_size} bytes and had {size}"
        if use_cache and _is_cached(path, found, wanted):
            return None
        if file_digest(path, name) != wanted:
            return f"{changed}: its {name} differs"
    except OSError as error:
        return f"{path} is missing" if not path.exists() else unreadable(path, error)
    except (KeyError, TypeError):
        return f"{path} has no valid size and {ALGORITHM} on record"
    if use_cache:
        _remember(path, found, wanted)
    return None


def recall(source: Path, state: str) -> dict[str, Any] | None:
    """What `record` kept for a source that was in this state, or None."""
    with suppress(OSError, ValueError):
        kept = parse_json(_entry(source, _FILES).read_bytes())
        if kept["state"] == state and isinstance(kept["facts"], dict):
            return dict(kept["facts"])
    return None


def record(source: Path, state: str, facts: Mapping[str, Any]) -> None:
    """Keep facts about the files of a source for `recall`; all must have been settled.

    `state` stands for the names, sizes, times and inodes of the files.
    """
    _write_entry(_entry(source, _FILES), json.dumps({"state": state, "facts": facts}))


def is_settled(found: os.stat_result) -> bool:
    """Whether the next change of a file will change its times, whatever the clock's tick."""
    return time.time() - max(found.st_mtime, found.st_ctime) >= _SETTLED_SECONDS


def _is_cached(path: Path, found: os.stat_result, digest: str) -> bool:
    if found.st_size < _CACHED_FROM:
        return False
    try:
        return _entry(path).read_text(encoding="utf-8") == _state(path, found, digest)
    except (OSError, ValueError):
        return False


def _remember(path: Path, found: os.stat_result, digest: str) -> None:
    """Record a verified file; a cache that cannot be written costs time, so it is no error."""
    if found.st_size < _CACHED_FROM or not is_settled(found):
        return
    _write_entry(_entry(path), _state(path, found, digest))


def _write_entry(entry: Path, text: str) -> None:
    with suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        temporary = entry.with_name(f"{entry.name}.{os.getpid()}")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(entry)


def _entry(path: Path, what: str = "") -> Path:
    """The cache entry of a path, or of `what` depends on it, in the user's cache directory."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    name = hashlib.blake2b(
        os.fsencode(f"{os.path.realpath(path)}{what and chr(0)}{what}"), digest_size=16
    ).hexdigest()
    return cache / "vlcpctl" / "verified" / name


_FILES = "\0files"  # of a source; not the end of any path
_DIGEST_AT = 5  # among the words of `_state`


def _state(path: Path, found: os.stat_result, digest: str) -> str:
    # ctime as well as mtime: programs that edit a file in place can set mtime back, not ctime.
    parts = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return " ".join([*map(str, parts), digest, ascii(os.path.realpath(path))])

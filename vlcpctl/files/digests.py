"""Digests that find changed files, recorded at writing; large files are not hashed again.

xxh3_128 reads ten times as fast as sha256. It finds faults and edits, not attackers: ids that
stand for content keep their cryptographic hashes.

What was read of a file in one state (device, inode, size and times) is kept in the user's cache
directory. A cache that cannot be written only costs time, so that is not an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, cast

import xxhash

from vlcpctl.core.errors import BadInput, VlcpError, unreadable
from vlcpctl.files.inputs import open_regular, read_json_object
from vlcpctl.files.stores import is_stored

ALGORITHM = "xxh3_128"
RESTORE = "; restore it, or make it again"  # the advice for a file that has changed
_BLOCK = 1 << 20
_CACHED_FROM = 1 << 22  # bytes; hashing a smaller file is faster than opening its cache entry
_SETTLED_SECONDS = 2  # a file changed more recently could change again within the clock's tick

FileDigest = Mapping[str, Any]  # {"bytes": size, "xxh3_128": hex digits}


def file_digest(path: Path) -> str:
    """The xxh3_128 of a file's bytes, 32 hex digits. Raises as `open_regular`, and OSError."""
    with open_regular(path) as file:
        return hashlib.file_digest(cast("BufferedReader", file), xxhash.xxh3_128).hexdigest()


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes, in hex. Raises as `open_regular`, and OSError."""
    with open_regular(path) as file:
        return hashlib.file_digest(cast("BufferedReader", file), "sha256").hexdigest()


def prefix_digest(path: Path, size: int) -> str:
    """The xxh3_128 of the first `size` bytes of a file. Raises as `file_digest` does."""
    digest = xxhash.xxh3_128()
    with open_regular(path) as file:
        while size > 0 and (block := file.read(min(size, _BLOCK))):
            digest.update(block)
            size -= len(block)
    return digest.hexdigest()


def cached_digest(path: Path) -> str:
    """The xxh3_128 of a file, from the cache if it has not been touched since it was hashed.

    Raises as `file_digest` does.
    """
    found = path.stat()
    if found.st_size < _CACHED_FROM:
        return file_digest(path)
    # ctime as well as mtime: programs that edit a file in place can set mtime back, not ctime.
    parts = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    name, state = os.path.realpath(path), " ".join(map(str, parts))
    digest = (recall(name, state) or {}).get(ALGORITHM)
    if not isinstance(digest, str):
        digest = file_digest(path)
        if is_settled(max(found.st_mtime_ns, found.st_ctime_ns), time.time()):
            record(name, state, {ALGORITHM: digest})
    return digest


def digests_of(directory: Path, names: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
    """Size and digest of files below a directory, keyed and sorted by relative path.

    `names` are their relative paths; without them, all files are meant.
    """
    found = {}
    for name in sorted(_files_below(directory) if names is None else names):
        path = directory / name
        found[name] = {"bytes": path.stat().st_size, ALGORITHM: file_digest(path)}
    return found


def _files_below(directory: Path) -> Iterator[str]:
    """The relative paths of all files: as text and one by one, which takes little memory."""
    for at, _, names in os.walk(directory):
        files = (Path(at) / name for name in names)
        yield from (path.relative_to(directory).as_posix() for path in files if path.is_file())


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
        if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
            yield f"{directory} records a file outside of it: {name!r}"
        elif problem := _problem(directory / name, entry, use_cache=use_cache):
            yield problem


def changed_prefix(path: Path, entry: FileDigest) -> str | None:
    """A phrase if a file no longer starts with the recorded bytes, which may have grown since."""
    return _problem(path, entry, may_grow=True)


def _problem(
    path: Path, entry: FileDigest, *, use_cache: bool = False, may_grow: bool = False
) -> str | None:
    try:
        found, size = path.stat().st_size, entry["bytes"]
        if found < size or (found > size and not may_grow):
            return f"{path} has changed since it was written: it has {found} bytes and had {size}"
        if may_grow:
            digest = prefix_digest(path, size)
        else:  # the copy of a stored file may be damaged, or a new one
            is_known = use_cache and not is_stored(path)
            digest = cached_digest(path) if is_known else file_digest(path)
        is_same = digest == entry[ALGORITHM]
    except BadInput as error:
        return str(error)
    except OSError as error:
        return f"{path} is missing" if not path.exists() else unreadable(path, error)
    except (KeyError, TypeError):
        return f"{path} has no valid size and {ALGORITHM} on record"
    return None if is_same else f"{path} has changed since it was written: its {ALGORITHM} differs"


def unlisted_files(directory: Path, names: Collection[str]) -> list[str]:
    """The relative paths of files below a directory that are not among these, sorted."""
    found = (path for path in directory.rglob("*") if not path.is_dir())
    return sorted({path.relative_to(directory).as_posix() for path in found} - set(names))


def recall(name: str, state: str) -> dict[str, Any] | None:
    """What `record` kept under a name, if it was of this state; else None."""
    # No home, no entry, or one that is damaged.
    with suppress(OSError, RuntimeError, KeyError, BadInput):
        kept = read_json_object(_entry(name))
        if kept["state"] == state and isinstance(kept["facts"], dict):
            return dict(kept["facts"])
    return None


def record(name: str, state: str, facts: Mapping[str, Any]) -> None:
    """Keep facts about files in the cache; all must have been settled.

    `state` stands for their sizes, times and inodes.
    """
    with suppress(OSError, RuntimeError):
        entry = _entry(name)
        entry.parent.mkdir(parents=True, exist_ok=True)
        temporary = entry.with_name(f"{entry.name}.{secrets.token_hex(8)}")
        temporary.write_text(json.dumps({"state": state, "facts": facts}), encoding="utf-8")
        temporary.replace(entry)


def is_settled(times_ns: int, now: float) -> bool:
    """Whether the next change of a file of this time will change it, whatever the clock's tick."""
    return now - times_ns / 1e9 >= _SETTLED_SECONDS


def _entry(name: str) -> Path:
    """The place of a cache entry, in the user's cache directory."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return cache / "vlcpctl" / "verified" / hashlib.blake2b(os.fsencode(name)).hexdigest()[:32]

"""Digests that find changed files; large files are not hashed again unless they were touched.

xxh3_128 reads ten times as fast as sha256. It finds faults and edits, not attackers: ids that
stand for content keep their cryptographic hashes (see `core.hashing`).
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, cast

import xxhash

from vlcpctl.core.errors import BadInput, VlcpError, unreadable
from vlcpctl.files import digest_cache
from vlcpctl.files.input_files import naming_input, open_regular
from vlcpctl.files.stores import is_stored

ALGORITHM = "xxh3_128"
_BLOCK = 1 << 20

FileDigest = Mapping[str, Any]  # {"bytes": size, "xxh3_128": hex digits}


def file_digest(path: Path) -> str:
    """The xxh3_128 of a file's bytes, 32 hex digits.

    Raises OSError if it cannot be read or is not a regular file (a pipe would block forever).
    """
    with _regular(path) as file:
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()


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
    if is_stored(path):
        with open_regular(path) as stored:
            yield cast("BufferedReader", stored)
        return
    with naming_input(path), open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        yield file


def cached_digest(path: Path) -> str:
    """The xxh3_128 of a file, from the cache if it has not been touched since it was hashed.

    Raises OSError as `file_digest` does.
    """
    found = path.stat()
    digest = digest_cache.digest_of(path, found)
    if digest is None:
        digest = file_digest(path)
        digest_cache.remember(path, found, digest)
    return digest


def digests_of(directory: Path, names: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
    """Size and digest of files below a directory, keyed and sorted by relative path.

    `names` are their relative paths; without them, all files are meant.
    """
    if names is None:
        names = _files_below(directory)
    return {
        name: {
            "bytes": (directory / name).stat().st_size,
            ALGORITHM: file_digest(directory / name),
        }
        for name in sorted(names)
    }


def _files_below(directory: Path) -> Iterator[str]:
    """The relative paths of all files: as text and one by one, which takes little memory."""
    for at, _, names in os.walk(directory):
        here = Path(at)
        files = (here / name for name in names)
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
        size, wanted = entry["bytes"], entry[ALGORITHM]
        if found.st_size != size:
            return f"{changed}: it has {found.st_size} bytes and had {size}"
        use_cache &= not is_stored(path)  # the cache's copy may be damaged, or a new one
        if use_cache and digest_cache.digest_of(path, found) == wanted:
            return None
        if file_digest(path) != wanted:
            return f"{changed}: its {ALGORITHM} differs"
    except OSError as error:
        return f"{path} is missing" if not path.exists() else unreadable(path, error)
    except (KeyError, TypeError):
        return f"{path} has no valid size and {ALGORITHM} on record"
    if use_cache:
        digest_cache.remember(path, found, wanted)
    return None

"""Files of an object store as local paths: what is read of them is kept in a cache directory.

DIR/tree has a file for every object that was listed: of its size, without its bytes and, being
sparse, without taking room. So paths, sizes and directories are found as those of local files are.
The functions that open input files ask `open_stored`, which fetches the bytes in chunks. DIR/data
has the bytes, under a name that depends on the URL and the version of the object:

- NAME.bytes and NAME.map: a file, and one byte for each of its chunks that is there. Who reads it
  holds a shared lock, also through a mapping; it is evicted only where nobody does.
- NAME.images: images in the tar of a task. Nothing is recorded of what is there: a reader knows by
  the sha256 in the index. So it may be emptied at any time.

Processes share the cache: they write the same bytes at the same places. This module imports no
fsspec, as long as nothing is in a store.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, final

from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import CACHE_SETTING, shown
from vlcpctl.files.object_stores import StoredObject, find, protocol_of, read_ranges

CHUNK: Final = 1 << 22
_AHEAD = 4  # chunks that are fetched at once when a file is read from start to end
_GAP = 1 << 14  # bytes between two images that are fetched with them rather than left out
_MOST_MERGED = 1 << 23  # bytes of one request for several images
_TAG = "CACHEDIR.TAG"  # by which programs for backups know a cache: https://bford.info/cachedir/
_SIGNATURE = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n"
    b"# What vlcpctl has read of object stores; it may be removed while no command runs.\n"
)
_WHOLE = ".arrow"  # files that are mapped into memory, which needs all of their bytes

Image = tuple[Path, int, int]  # the path of a tar, and where an image starts and its size

_written = [0]  # bytes since this process last looked how large the cache is
_held: list[io.FileIO] = []  # files that another library has opened by their paths


def use_cache(directory: Path, most_bytes: int) -> Path:
    """Keep what this process and its children read from now on in a directory; its real path.

    `most_bytes` may be exceeded by the files that are open. Raises BadInput if nothing can be
    written there, if it has files of others, which would be removed as old ones, and for *, ? or [
    in its path, which globs below it would take for theirs.
    """
    root = os.path.realpath(directory)
    if glob.has_magic(root):
        raise BadInput(f"--cache: {root} has *, ? or [ in its path; give another directory")
    try:
        _refuse_others(Path(root), directory)
        for name in ("tree", "data"):
            (Path(root) / name).mkdir(parents=True, exist_ok=True)
        if not is_cache(Path(root)):
            (Path(root) / _TAG).write_bytes(_SIGNATURE)
    except OSError as error:
        raise BadInput(f"--cache: cannot write to {directory}: {error.strerror}") from error
    os.environ[CACHE_SETTING] = json.dumps([root, most_bytes])
    _evict()
    return Path(root)


def _refuse_others(root: Path, given: Path) -> None:
    """Raise BadInput for a directory that another program or a user has files in."""
    if not root.is_dir() or is_cache(root):
        return
    # Another process may be making the cache: its tag may be missing, or still be empty.
    tag, known = root / _TAG, {_TAG, "tree", "data"}
    if {one.name for one in root.iterdir()} - known or (tag.exists() and tag.read_bytes()):
        raise BadInput(f"--cache: {given} has other files; give a new directory, or an empty one")


def is_cache(directory: Path) -> bool:
    """Whether a directory is a cache that `use_cache` made."""
    path = directory / _TAG
    return path.is_file() and path.read_bytes() == _SIGNATURE


def empty_cache(directory: Path) -> bool:
    """Remove what a cache has of the bytes in stores; False if another process reads some of it."""
    files = [path for path in (directory / "data").iterdir() if path.suffix != ".map"]
    return not [path for path in files if not _dropped(path)]


def stored(url: str) -> Path:
    """The local path of a URL, after the objects there were listed; of a glob, a local glob.

    Raises as `object_stores.find` does, and BadInput for names that cannot be paths.
    """
    place = place_of(url)
    listed = {place_of(one.url): one for one in find(url)}
    for path in _files_at(place):
        if path not in listed:
            path.unlink(missing_ok=True)
    for path, one in listed.items():
        _list(path, one)
    return place


def _files_at(place: Path) -> Iterator[Path]:
    """The files at a path, which may be a directory or a glob."""
    for name in glob.glob(str(place)):  # noqa: PTH207 - Path.glob takes no absolute pattern
        if Path(name).is_file():
            yield Path(name)
        for at, _, names in os.walk(name):
            yield from (Path(at) / one for one in names)


def is_stored(path: Path | str) -> bool:
    """Whether a path is one that `stored` returned, or below it."""
    setting = os.environ.get(CACHE_SETTING)
    return setting is not None and str(path).startswith(f"{json.loads(setting)[0]}/tree/")


def open_stored(path: Path | str) -> io.FileIO:
    """A stored file, which fetches what is read of it. Raises OSError if there is none."""
    file = _CachedFile(Path(path))
    if Path(path).suffix == _WHOLE:
        file.fetch(0, file.size)
    return file


def whole(path: Path) -> Path:
    """A path at which all bytes of a stored file are until this process ends; of others, theirs."""
    if not is_stored(path):
        return path
    file = _CachedFile(path)
    file.fetch(0, file.size)
    _held.append(file)
    return file.data


def images_file(tar: Path) -> Path:
    """The file in which the images of a tar are at their offsets, as far as they are there.

    For a tar that is not stored, it is the tar.
    """
    if not is_stored(tar):
        return tar
    data = _data_of(tar).with_suffix(".images")
    data.touch()
    return data


def fetch_images(images: Sequence[Image]) -> list[bytes]:
    """Fetch images in stored tars, several at once, and keep them in the cache.

    Raises VlcpError as `object_stores.read_ranges` does.
    """
    order = sorted(range(len(images)), key=lambda number: images[number])
    groups = list(_neighbours([images[number] for number in order]))
    ranges = [
        (_url(group[0][0]), group[0][1], max(at + size for _, at, size in group))
        for group in groups
    ]
    found = []
    for group, (_, start, _), data in zip(groups, ranges, read_ranges(ranges), strict=True):
        with suppress(OSError):  # a full disk: the bytes are here all the same
            _write(images_file(group[0][0]), start, data)
        found += [data[at - start :][:size] for _, at, size in group]
    _made_room(sum(end - start for _, start, end in ranges))
    return [data for _, data in sorted(zip(order, found, strict=True))]


def _neighbours(images: Sequence[Image]) -> Iterator[list[Image]]:
    """Sorted images in groups that one request fetches."""
    group: list[Image] = []
    for tar, at, size in images:
        if group:
            end = group[-1][1] + group[-1][2]
            is_near = group[0][0] == tar and at - end <= _GAP
            if not is_near or at + size - group[0][1] > _MOST_MERGED:
                yield group
                group = []
        group.append((tar, at, size))
    if group:
        yield group


@final
class _CachedFile(io.FileIO):
    """A file of a store, of which the chunks are fetched that are read."""

    def __init__(self, path: Path) -> None:
        found = path.stat()
        self.path, self.size, self.data = path, found.st_size, _data_of(path).with_suffix(".bytes")
        super().__init__(_locked(self.data, self.size))
        self._map = _map_of(self.data)
        self._end = 0  # of what was read last

    def __del__(self) -> None:
        self.close()  # pyarrow does not close what it is given, which would be warned of

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            return self.readall()
        self._prepare(size)
        return super().read(size) or b""

    def readall(self) -> bytes:
        self._prepare(self.size)
        return super().readall()

    def readinto(self, buffer: Any, /) -> int:
        self._prepare(len(memoryview(buffer).cast("B")))
        return super().readinto(buffer) or 0

    def _prepare(self, size: int) -> None:
        start = self.tell()
        stop = min(start + size, self.size)
        self.fetch(start, stop, ahead=_AHEAD if 0 < start == self._end else 1)
        self._end = stop

    def fetch(self, start: int, stop: int, *, ahead: int = 1) -> None:
        """Fetch the chunks with these bytes that are not there, and what is `ahead` of them."""
        if stop <= start:
            return
        first, count = start // CHUNK, -(-self.size // CHUNK)
        last = (stop - 1) // CHUNK
        descriptor = os.open(self._map, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            there = os.pread(descriptor, count, 0).ljust(count, b"\0")
            if all(there[first : last + 1]):
                return
            wanted = [one for one in range(first, min(last + ahead, count)) if not there[one]]
            ranges = [
                (_url(self.path), one * CHUNK, min((one + 1) * CHUNK, self.size)) for one in wanted
            ]
            for one, data in zip(wanted, read_ranges(ranges), strict=True):
                _write(self.data, one * CHUNK, data, is_safe=True)
                os.pwrite(descriptor, b"\1", one)
        finally:
            os.close(descriptor)
        _made_room(sum(end - begin for _, begin, end in ranges))


def _locked(data: Path, size: int) -> int:
    """The descriptor of a file of chunks, which nobody evicts until it is closed."""
    while True:
        descriptor = os.open(data, os.O_RDWR | os.O_CREAT, 0o666)
        with suppress(OSError):  # a file system without locks evicts nothing
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        if os.fstat(descriptor).st_nlink:  # else it was evicted between
            os.truncate(descriptor, size)
            os.utime(descriptor)
            return descriptor
        os.close(descriptor)


def _write(path: Path, at: int, data: bytes, *, is_safe: bool = False) -> None:
    """Write bytes at their place; with `is_safe` they are on the disk when this returns."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        left = memoryview(data)
        while left:
            count = os.pwrite(descriptor, left, at)
            at, left = at + count, left[count:]
        if is_safe:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _made_room(count: int) -> None:
    """Evict, if `count` bytes more may be too many."""
    _written[0] += count
    if _written[0] > _most_bytes() // 16:
        _written[0] = 0
        _evict()


def _evict() -> None:
    """Remove what was used longest ago, until the cache is not larger than it may be."""
    files = []
    for entry in os.scandir(_root() / "data"):
        with suppress(FileNotFoundError):
            state = entry.stat()
            files.append((state.st_mtime_ns, state.st_blocks * 512, Path(entry.path)))
    total, most = sum(size for _, size, _ in files), _most_bytes()
    for _, size, path in sorted(files):
        if total <= most:
            return
        if path.suffix != ".map" and _dropped(path):
            total -= size


def _dropped(path: Path) -> bool:
    """Remove a file of the cache; False if somebody reads it."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        if path.suffix == ".images":
            os.truncate(descriptor, 0)
            return True
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _map_of(path).unlink(missing_ok=True)  # first: what the map lists must be there
        path.unlink(missing_ok=True)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def _list(path: Path, one: StoredObject) -> None:
    """Make the file that stands for an object, unless it stands for this version of it.

    Its time of change stands for the version: a digest, as a time within 30 years from 1970.
    """
    digest = hashlib.blake2b(one.version.encode(), digest_size=6).digest()
    time_ns = int.from_bytes(digest) % 10**15 * 1000
    with suppress(OSError):
        found = path.stat()
        if (found.st_size, found.st_mtime_ns) == (one.size, time_ns) and path.is_file():
            return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{os.getpid()}")
        with temporary.open("wb") as file:
            file.truncate(one.size)
        os.utime(temporary, ns=(time_ns, time_ns))
        temporary.replace(path)
    except OSError as error:
        raise BadInput(f"--cache: cannot keep a file for {one.url}: {error.strerror}") from error


def place_of(url: str) -> Path:
    """Where `stored` keeps what is at a URL, listed or not. Raises BadInput as it does."""
    protocol = str(protocol_of(url))
    key = url.removeprefix(f"{protocol}://").strip("/")
    if any(part in {"", ".", ".."} for part in key.split("/")) or "\0" in key:
        raise BadInput(f"{url} has a part that no path has; copy the object to another key")
    return _root() / "tree" / protocol / key


def _url(path: Path) -> str:
    return shown(str(path))


def _data_of(path: Path) -> Path:
    found = path.stat()
    name = f"{_url(path)}\0{found.st_size}\0{found.st_mtime_ns}".encode()
    return _root() / "data" / hashlib.blake2b(name, digest_size=16).hexdigest()


def _map_of(data: Path) -> Path:
    return data.with_suffix(".map")


def _root() -> Path:
    return Path(json.loads(os.environ[CACHE_SETTING])[0])


def _most_bytes() -> int:
    return int(json.loads(os.environ[CACHE_SETTING])[1])

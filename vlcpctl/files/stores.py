"""Objects of a store, such as S3, as local files whose bytes are kept in a cache directory.

DIR/tree of the cache has a sparse file for every object that was listed, so that paths, sizes and
directories are found as those of local files are; its time of change stands for the object's
version (ETag). DIR/data has the bytes, by URL, version and size: NAME is a whole object, NAME.xxh3
its digest, NAME.lock is locked by who fetches it, and NAME.images has the images of a task's tar
that were read, at their offsets; a reader knows them by the sha256 in the index.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import xxhash

from vlcpctl.core.errors import BadInput, UsageError, VlcpError, first_line
from vlcpctl.core.words import CACHE_SETTING, shown, without_secrets

_PIECE: Final = 1 << 22  # bytes of a request, unless an image is larger
_AT_ONCE: Final = 16  # requests
_GAP: Final = 1 << 14  # bytes between two images that are fetched with them rather than left out
_DEADLINE = 30.0  # seconds after which nothing is asked again
_LISTING: Final = 600.0  # seconds of a listing, which may take many requests
_TAG = "CACHEDIR.TAG"  # by which programs for backups know a cache: https://bford.info/cachedir/
# The first line is that of any program; by the second `forget` knows which caches it may empty.
_SIGNATURE = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n"
    b"# What vlcpctl has read of object stores; it may be removed while no command runs.\n"
)
_LOCAL = ("file", "local", "http", "https")  # read as paths, or without a way to list a directory
_OF_HOSTS = ("ftp", "sftp", "ssh", "smb", "webhdfs", "webdav")  # names in fsspec lack the host
# What stores say of one version of an object; the first that is there is taken.
_VERSIONS = ("ETag", "etag", "md5Hash", "generation", "blob_id", "LastModified", "mtime", "created")

_checked: set[Path] = set()  # whole objects whose bytes this process has found undamaged


def protocol_of(text: str) -> str | None:
    """The protocol of a URL in an object store, one of fsspec; None for any other text.

    >>> protocol_of("s3://bucket/x"), protocol_of("https://host/x"), protocol_of("stream/00")
    ('s3', None, None)
    """
    protocol, found, _ = text.partition("://")
    is_word = protocol.isascii() and protocol.isalnum()
    is_store = found and is_word and protocol.lower() not in _LOCAL + _OF_HOSTS
    return protocol if is_store else None


def use_cache(directory: Path) -> Path:
    """Keep what this process and its children read from now on in a directory; its real path.

    Raises BadInput if nothing can be written there, or if it has files of others: `forget` does not
    search a cache.
    """
    root = Path(os.path.realpath(directory))
    with _writing(root):
        root.mkdir(parents=True, exist_ok=True)
        if not is_cache(root):
            # Another process may be making it: its tag may be missing, or still be empty.
            tag, known = root / _TAG, {_TAG, "tree", "data"}
            has_tag = tag.exists() and tag.read_bytes() != b""
            if has_tag or {one.name for one in root.iterdir()} - known:
                raise BadInput(f"--cache: {root} has other files; give a new or empty directory")
            tag.write_bytes(_SIGNATURE)
        for name in ("tree", "data"):
            (root / name).mkdir(exist_ok=True)
    os.environ[CACHE_SETTING] = str(root)
    return root


def is_cache(directory: Path) -> bool:
    """Whether a directory is a cache that `use_cache` made."""
    path = directory / _TAG
    return path.is_file() and path.read_bytes() == _SIGNATURE


def empty_cache(directory: Path) -> None:
    """Remove what a cache has of the bytes in stores; who reads it fetches them again."""
    for path in (directory / "data").iterdir():
        if path.suffix in {".images", ".lock"}:
            os.truncate(path, 0)  # not removed: who has it open would miss what is fetched again
        else:
            path.unlink(missing_ok=True)


@contextmanager
def _writing(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        said = f"cannot write to {root}: {error.strerror}; make room, or give another directory"
        raise BadInput(f"--cache: {said}") from error


def stored(url: str) -> Path:
    """The local path of a URL, after the objects there were listed; of a glob, a local glob.

    Raises UsageError if the URL has a password, or there is no file system of its protocol,
    BadInput if nothing is there or a name cannot be a path, and VlcpError if the store cannot be
    asked.
    """
    if without_secrets(url) != url:
        said = f"{url} has a password; give it as the store's own variables or files do, such as"
        raise UsageError(f"{said} AWS_SECRET_ACCESS_KEY")
    store, place, tree = _store(url), place_of(url), _root() / "tree"
    store.invalidate_cache()
    found: dict[str, Any] = {url: {"type": "directory"}}
    if glob.has_magic(url):
        found = _asked(store, "glob", url, _LISTING, detail=True)
    for name in [name for name, entry in found.items() if entry["type"] == "directory"]:
        found |= _asked(store, "find", name, _LISTING, detail=True)
    listed = {
        place_of(f"{protocol_of(url)}://{name.lstrip('/')}"): _stamp(entry)
        for name, entry in found.items()
        if entry["type"] == "file" and not name.endswith("/")  # a mark of an empty directory
    }
    if not listed:
        raise BadInput(f"{url} does not exist in the store, or nothing is in it")
    pattern = str(place.relative_to(tree))
    with _writing(_root()):
        for path in {*tree.glob(pattern), *tree.glob(f"{pattern}/**/*")} - listed.keys():
            if path.is_file():
                path.unlink(missing_ok=True)
        for path, stamp in listed.items():
            _list(path, *stamp)
    return place


def _stamp(entry: dict[str, Any]) -> tuple[int, int]:
    """The size of an object, and a time within 30 years from 1970 that stands for its version."""
    version = next((str(entry[name]) for name in _VERSIONS if entry.get(name)), "")
    digest = hashlib.blake2b(version.encode(), digest_size=6).digest()
    return entry.get("size", -1), int.from_bytes(digest) % 10**15 * 1000


def _stamp_at(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _list(path: Path, size: int, time_ns: int) -> None:
    """Make the file that stands for an object, unless it stands for this version of it."""
    with suppress(FileNotFoundError):
        if _stamp_at(path) == (size, time_ns):
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Hosts that share the cache may have processes of the same number.
    temporary = path.with_name(f".{secrets.token_hex(8)}")
    temporary.touch()
    os.truncate(temporary, size)
    os.utime(temporary, ns=(time_ns, time_ns))
    temporary.replace(path)


def place_of(url: str) -> Path:
    """Where `stored` keeps what is at a URL, listed or not. Raises BadInput as it does."""
    protocol = str(protocol_of(url))
    key = url.removeprefix(f"{protocol}://").strip("/")
    if any(part in {"", ".", ".."} for part in key.split("/")) or "\0" in key:
        raise BadInput(f"{url} has a part that no path has; copy the object to another key")
    return _root() / "tree" / protocol / key


def is_stored(path: Path | str) -> bool:
    """Whether a path is one that `stored` returned, or below it."""
    root = os.environ.get(CACHE_SETTING)
    return root is not None and str(path).startswith(f"{root}/tree/")


def whole(path: Path) -> Path:
    """The path in the cache of all bytes of a stored file; of any other file, its own.

    Bytes that are not there or are damaged are fetched. Raises OSError if the path does not exist,
    VlcpError if the store does not give the object or has another version, and BadInput if the
    cache cannot be written to.
    """
    if not is_stored(path):
        return path
    data = _data_of(path)
    # Not the listed file, which another process that lists it may replace.
    with _writing(_root()), data.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be fetching it
        if not (data in _checked and data.exists()) and not _is_undamaged(data):
            _fetch(path, data)
    _checked.add(data)
    return data


def _is_undamaged(data: Path) -> bool:
    with suppress(FileNotFoundError), data.open("rb") as file:
        found = hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()
        return data.with_suffix(".xxh3").read_text() == found
    return False


def _fetch(path: Path, data: Path) -> None:
    """Fetch the object that was listed at `path` into the file `data`."""
    url, listed, part = shown(str(path)), _stamp_at(path), data.with_suffix(".part")
    store, digest, size = _store(url), xxhash.xxh3_128(), listed[0]
    if is_s3 := hasattr(store, "call_s3"):
        entry = _asked(store, "info", url)
        store.s3_additional_kwargs["IfMatch"] = entry["ETag"]  # of every piece
    ranges = [(url, at, min(at + _PIECE, size)) for at in range(0, size, _PIECE)]
    with part.open("wb") as file:
        for piece in _read(store, ranges):
            digest.update(piece)
            file.write(piece)
    if not is_s3:
        store.invalidate_cache()
        found = _asked(store, "find", url, detail=True)  # an entry of the form of the listed one
        entry = next(iter(found.values()), {})
    if _stamp(entry) != listed or part.stat().st_size != size:
        raise VlcpError(f"{url} was replaced while the command ran; run the command again")
    data.with_suffix(".xxh3").write_text(digest.hexdigest())
    part.replace(data)


def images_file(tar: Path) -> Path:
    """The file that has the images of a tar at their offsets: of a stored one, those fetched."""
    if not is_stored(tar):
        return tar
    data = _data_of(tar).with_suffix(".images")
    data.touch()
    return data


def fetch_images(images: Sequence[tuple[Path, int, int]]) -> None:
    """Fetch images, by stored tar, offset and size, into the `images_file` of each tar.

    Several requests are made at once, and one for neighbours. Raises VlcpError if the store does
    not give them, and BadInput if the cache cannot be written to.
    """
    tars, starts = [str(tar) for tar, _, _ in images], [at for _, at, _ in images]
    ends = [at + size for _, at, size in images]
    merge = import_module("fsspec.utils").merge_offset_ranges
    merged = [*zip(*merge(tars, starts, ends, _GAP, _PIECE), strict=True)]
    ranges = [(shown(tar), start, end) for tar, start, end in merged]
    for (tar, start, _), data in zip(merged, _read(_store(ranges[0][0]), ranges), strict=True):
        with _writing(_root()), images_file(Path(tar)).open("r+b") as file:
            file.seek(start)
            file.write(data)


def _read(store: Any, ranges: Sequence[tuple[str, int, int]]) -> Iterator[bytes]:
    """The bytes of each range of a URL, in order; some are asked for at once."""
    from multiprocessing.pool import ThreadPool  # takes 12 ms to import

    with ThreadPool(_AT_ONCE) as pool:
        for first in range(0, len(ranges), _AT_ONCE):
            yield from pool.starmap(
                lambda url, start, end: _asked(store, "cat_file", url, start=start, end=end),
                ranges[first : first + _AT_ONCE],
            )


def _asked(store: Any, ask: str, url: str, limit: float = _DEADLINE, **given: Any) -> Any:
    """What a method of a file system returns, which is called again while it fails.

    Of an asynchronous file system, all calls together last no longer than the limit.
    """
    began, wait = time.monotonic(), 0.1
    while True:
        if store.async_impl:
            given["timeout"] = limit - (time.monotonic() - began)
        try:
            return getattr(store, ask)(url, **given)
        except Exception as error:  # every file system of fsspec has errors of its own
            seconds = time.monotonic() - began
            if seconds + wait > _DEADLINE:
                raise VlcpError(
                    f"cannot read {url}: {type(error).__name__}: {first_line(error)} (asked for "
                    f"{seconds:.0f} s); check the connection and your credentials, and run the "
                    f"command again: the cache {_root()} has what was read"
                ) from error
        time.sleep(wait)
        wait *= 4


def _store(url: str) -> Any:
    """The file system of a URL, which asks once.

    It is never kept here: fsspec has one for each thread, and a new one in a forked process, where
    the old one would hang.
    """
    try:
        store = import_module("fsspec").filesystem(protocol_of(url))
    except (ImportError, ValueError) as error:
        said = f"{url}: {first_line(error)}; a store needs its package, such as s3fs for S3:"
        raise UsageError(f"{said} pip install fsspec s3fs") from error
    if hasattr(store, "call_s3"):
        store.retries = 1  # attempts
        once = {"retries": {"max_attempts": 0}, "max_pool_connections": _AT_ONCE}
        store.config_kwargs = {**store.config_kwargs, **once}
        store.s3_additional_kwargs = {**store.s3_additional_kwargs}
        store.s3_additional_kwargs.pop("IfMatch", None)
    return store


def _data_of(path: Path) -> Path:
    name = f"{shown(str(path))}\0{_stamp_at(path)}".encode()
    return _root() / "data" / hashlib.blake2b(name, digest_size=16).hexdigest()


def _root() -> Path:
    return Path(os.environ[CACHE_SETTING])

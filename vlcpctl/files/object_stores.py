"""Read objects of a store, such as S3, through fsspec; what fails is asked for again.

A URL here has a protocol of fsspec: `s3://bucket/key`. fsspec is imported where it is used. A file
system is never kept here: fsspec makes a new one in a forked process, where the old one would hang.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from vlcpctl.core.errors import BadInput, UsageError, VlcpError, first_line
from vlcpctl.core.words import without_secrets

_WAITS = (0.1, 0.4, 1.6, 6.4)  # seconds between attempts
_ATTEMPTS = len(_WAITS) + 1
_LOCAL = ("file", "local", "http", "https")  # read as paths, or without a way to list a directory
_OF_HOSTS = ("ftp", "sftp", "ssh", "smb", "webhdfs", "webdav")  # names in fsspec lack the host
# What stores say of one version of an object; the first that is there is taken.
_VERSIONS = ("ETag", "etag", "md5Hash", "generation", "blob_id", "LastModified", "mtime", "created")
_MOST_BYTES = 1 << 26  # that are asked for at once, which bounds memory

Range = tuple[str, int, int]  # the URL of an object, and where its bytes start and end


@dataclass(frozen=True)
class StoredObject:
    """An object, its size in bytes, and a text that is another one when the object changes."""

    url: str
    size: int
    version: str


def protocol_of(text: str) -> str | None:
    """The protocol of a URL in an object store; None for any other text.

    >>> protocol_of("s3://bucket/x"), protocol_of("https://host/x"), protocol_of("stream/00")
    ('s3', None, None)
    """
    protocol, found, _ = text.partition("://")
    is_word = protocol.isascii() and protocol.isalnum()
    is_store = found and is_word and protocol.lower() not in _LOCAL + _OF_HOSTS
    return protocol if is_store else None


def find(url: str) -> list[StoredObject]:
    """The objects at a URL: one object, all below a directory, or those that match a glob.

    Raises UsageError if it has a password, or there is no file system of its protocol, BadInput if
    nothing is there, and VlcpError if the store cannot be asked.
    """
    if without_secrets(url) != url:
        raise UsageError(
            f"{url} has a password; give it as the store's own variables or files do, such as "
            "AWS_SECRET_ACCESS_KEY"
        )
    answer = _asked(url, lambda: _entries(url))
    objects = [
        StoredObject(f"{protocol_of(url)}://{name.lstrip('/')}", entry["size"], _version(entry))
        for name, entry in sorted(answer.items())
        if entry["type"] == "file" and not name.endswith("/")  # a mark of an empty directory
    ]
    if not objects:
        raise BadInput(f"{url} does not exist in the store, or nothing is in it")
    return objects


def read_ranges(ranges: Sequence[Range]) -> Iterator[bytes]:
    """The bytes of each range, in order; those of a few are asked for at once.

    Raises VlcpError if one is missing, cannot be read or is short, after several attempts.
    """
    first = 0
    while first < len(ranges):
        last, count = first, 0
        while last < len(ranges) and (last == first or count < _MOST_BYTES):
            count += ranges[last][2] - ranges[last][1]
            last += 1
        yield from _read_at_once(ranges[first:last])
        first = last


def _read_at_once(ranges: Sequence[Range]) -> list[bytes]:
    found: dict[int, bytes] = {}
    for wait in (*_WAITS, None):
        left = [number for number in range(len(ranges)) if number not in found]
        answers = _answers([ranges[number] for number in left])
        for number, answer in zip(left, answers, strict=True):
            _, start, end = ranges[number]
            if isinstance(answer, bytes) and len(answer) == end - start:
                found[number] = answer
            else:
                failed = ranges[number], answer
        if len(found) == len(ranges):
            break
        if wait is None:
            (url, start, end), answer = failed
            raise VlcpError(_in_words(url, answer, end - start))
        time.sleep(wait)
    return [found[number] for number in range(len(ranges))]


def _answers(ranges: Sequence[Range]) -> list[Any]:
    """The bytes of each range, or the error that its request ended with."""
    urls, starts, ends = zip(*ranges, strict=True)
    store = _store(urls[0])
    try:
        return list(store.cat_ranges(list(urls), list(starts), list(ends), on_error="return"))
    except Exception as error:  # noqa: BLE001 - every file system of fsspec has errors of its own
        return [error] * len(ranges)


def _entries(url: str) -> Mapping[str, Any]:
    store = _store(url)
    store.invalidate_cache()
    if not _is_glob(url):
        return dict(store.find(url, detail=True))
    entries = dict(store.glob(url, detail=True))
    for name, entry in [*entries.items()]:
        if entry["type"] == "directory":
            entries.update(store.find(name, detail=True))
    return entries


def _is_glob(url: str) -> bool:
    return any(sign in url for sign in "*?[")


def _asked(url: str, ask: Any) -> Any:
    for wait in (*_WAITS, None):
        try:
            return ask()
        except UsageError:
            raise
        except Exception as error:
            if wait is None:
                raise VlcpError(_in_words(url, error)) from error
            time.sleep(wait)
    raise AssertionError("the last attempt returns or raises")


def _store(url: str) -> Any:
    """The file system of a URL: fsspec keeps one for each process."""
    protocol = str(protocol_of(url))
    try:
        return import_module("fsspec").filesystem(protocol)
    except ImportError as error:
        # fsspec names the package, but for S3 not all that it needs.
        advice = "; pip install fsspec s3fs" if protocol == "s3" else ""
        raise UsageError(
            f"{url}: {protocol}:// needs a package that is missing ({first_line(error)}){advice}"
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{url}: {protocol}:// is not a protocol of fsspec; use one such as s3, gs or hf"
        ) from error


def _version(entry: Mapping[str, Any]) -> str:
    return next((str(entry[name]) for name in _VERSIONS if entry.get(name)), "")


def _in_words(url: str, answer: Any, size: int = 0) -> str:
    """One line about a request that failed every time, with what to do."""
    asked = f"(asked {_ATTEMPTS} times)"
    if isinstance(answer, bytes):
        return (
            f"the store gives {len(answer)} of {size} bytes of {url} {asked}; if the object was "
            "replaced meanwhile, run the command again"
        )
    if isinstance(answer, FileNotFoundError):
        return (
            f"{url} is missing from the store {asked}; upload it again, and run the command again"
        )
    if isinstance(answer, PermissionError):
        return (
            f"the store does not allow reading {url} {asked}; check its permissions and your "
            "credentials"
        )
    reason = first_line(answer) or type(answer).__name__
    return (
        f"cannot read {url}: {reason} {asked}; check the connection and your credentials, and run "
        "the command again: what was read is in the cache"
    )

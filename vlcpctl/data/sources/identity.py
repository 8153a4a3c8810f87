"""What identifies one version of a source: name, size and digest of every file that is read.

Names are relative to the source, so that an identical copy elsewhere is the same source.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vlcpctl.data.sources.find import NamedSource
from vlcpctl.data.sources.pairs import Columns, names_files, pairs
from vlcpctl.data.sources.source import FileLog, Source
from vlcpctl.files.digests import ALGORITHM, cached_digest


def size_of(file: Source) -> int:
    """The size in bytes of a source's file, or of all files in its directory."""
    if not file.path.is_dir():
        return file.path.stat().st_size
    places = os.walk(file.path)
    paths = (Path(place) / name for place, _, names in places for name in names)
    return sum(path.stat().st_size for path in paths if path.is_file())


def fingerprint(file: Source, columns: Columns, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies a file that has been read; `facts` are those of its `FileLog`.

    A file is hashed after it was read, when it is often still in memory, and not again until it
    is touched.
    """
    if file.path.is_dir():
        return dict(facts)
    own = {"bytes": file.path.stat().st_size, ALGORITHM: cached_digest(file.path)}
    return {**own, "images": dict(facts)} if names_files(file, columns) else own


def identify(
    inputs: Sequence[NamedSource], columns: Columns, limit: int | None
) -> dict[Source, dict[str, Any]]:
    """The fingerprint of each file that a split of these sources reads, up to the limit.

    Raises BadInput as reading does.
    """
    found: dict[Source, dict[str, Any]] = {}
    left = limit
    for file in (file for one in inputs for file in one.files):
        facts: Mapping[str, Any] = {}
        if left is not None:
            if left <= 0:
                break
            log = FileLog(file.path)
            left -= _walk(file, columns, log, left)
            facts = log.facts()
        elif file.path.is_dir() or names_files(file, columns):
            facts = _facts_of(file, columns)
        found[file] = fingerprint(file, columns, facts)
    return found


def _facts_of(file: Source, columns: Columns) -> Mapping[str, Any]:
    """The facts of the files that a source refers to, from the cache if none was touched."""
    looked = FileLog(file.path, reads=False)
    _walk(file, columns, looked)
    known = looked.recalled()
    if known is None:
        log = FileLog(file.path)
        _walk(file, columns, log)
        known = log.finished()
    return known


def _walk(file: Source, columns: Columns, log: FileLog, limit: int | None = None) -> int:
    """Read the pairs of a file as a split does, up to the batch with the last; returns how many."""
    count = 0
    for batch in pairs(file, replace(columns, log=log)):
        count += len(batch)
        if limit is not None and count >= limit:
            break
    return count


def identity_of(
    inputs: Sequence[NamedSource], found: Mapping[Source, Mapping[str, Any]]
) -> dict[str, dict[str, dict[str, Any]]]:
    """The fingerprints of the files read, by source and name; of other files, the size.

    Names are relative to the directory that contains all files of the source.
    """
    identity = {}
    for one in inputs:
        paths = [os.path.abspath(file.path) for file in one.files]
        base = os.path.commonpath([Path(path).parent for path in paths])
        # A name that is not UTF-8 cannot be written to JSON.
        names = [
            os.fsencode(os.path.relpath(path, base)).decode(errors="backslashreplace")
            for path in paths
        ]
        identity[one.name] = {
            name: dict(found.get(file) or {"bytes": size_of(file)})
            for name, file in zip(names, one.files, strict=True)
        }
    return identity

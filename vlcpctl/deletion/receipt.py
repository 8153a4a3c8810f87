"""The receipt of a deletion: what was removed where and when, and what is known to depend on it.

It is written before the first removal, as pending: with its keys, the same request finds the rest
of the pairs if it was interrupted, even where their columns are gone. It names pairs by their keys
and images by their sha256; of texts that select pairs it only has the sha256.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from vlcpctl.core.errors import BadInput, OutputExists, UsageError
from vlcpctl.core.words import Shown, as_given, counted
from vlcpctl.data.splitting.stop_lists import RECEIPT as SCHEMA
from vlcpctl.data.splitting.stop_lists import is_stop_list
from vlcpctl.deletion.places import Places, around
from vlcpctl.deletion.selectors import Condition
from vlcpctl.files.inputs import converted, read_json_object
from vlcpctl.files.manifest import kind_of
from vlcpctl.files.outputs import new_part, refuse_foreign, sync

PENDING: Final = "pending"
_DIRECTORY = "receipts"
_NUMBERED = re.compile(r"(\d{4,})\.json")
_TEXTS = frozenset({".csv", ".html", ".json", ".jsonl", ".log", ".md", ".ndjson", ".tsv", ".txt"})
_MOST_TEXT_BYTES = 1 << 26
_HEX = re.compile(rb"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{32})(?![0-9a-f])")
_KEYS_SHOWN = 3


@dataclass
class Entry:
    """An artifact or file that contained the pairs.

    `before` and `after` have its content id, and size and digest of its files with the pairs, by
    name; a file that is not in a directory has an empty name.
    """

    path: str
    kind: str
    action: Literal["deleted", "rewritten"]
    removed: dict[str, int]  # how many, by split or by what they are
    before: dict[str, Any]
    after: dict[str, Any] | None = None
    again: str | None = None  # the command line that makes it again, if it was deleted


@dataclass(kw_only=True)
class Receipt:
    """A receipt; `path` is its file, and not a part of it.

    `selectors` are the conditions and how many pairs each selects, `not_found` the keys of the
    request that were found nowhere, `unknown` the checkpoints with data that was not searched.
    """

    path: Path
    schema: str = SCHEMA
    state: Literal["pending", "finished", "not removed from foreign tars"] = PENDING
    ticket: str | None = None
    request: str  # the id of the conditions
    started: str
    finished: str | None = None
    paths: list[str]
    selectors: list[dict[str, Any]]
    keys: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)  # sha256
    not_found: list[str] = field(default_factory=list)
    stop_lists: list[str] = field(default_factory=list)
    artifacts: list[Entry] = field(default_factory=list)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    evicted: int = 0
    foreign: dict[str, int] = field(default_factory=dict)  # pairs that stay, by tar
    without_column: int = 0
    same_image: int = 0
    caches: list[str] = field(default_factory=list)  # of object stores, which were emptied
    not_searched: dict[str, int] = field(default_factory=dict)
    unknown: list[dict[str, Any]] = field(default_factory=list)
    second_search: dict[str, Any] | None = None
    mentions: list[str] | None = None  # texts that still name the pairs

    @property
    def is_pending(self) -> bool:
        """Whether the deletion was begun and not finished."""
        return self.state == PENDING

    @property
    def is_begun(self) -> bool:
        """Whether it was written before: the deletion was interrupted."""
        written = read(self.path) if self.is_pending else None
        return written is not None and written.is_pending

    def as_json(self) -> dict[str, Any]:
        """The receipt as a JSON object, without what is only known at its end."""
        # Copied, since msgspec does not set fields that a file lacks, and would leave them out.
        found: dict[str, Any] = msgspec.to_builtins(replace(self), enc_hook=str)
        left_out = {name for name in ("second_search", "mentions") if found[name] is None}
        left_out |= {"path", *(name for name in ("foreign", "caches") if not found[name])}
        return {name: value for name, value in found.items() if name not in left_out}

    def write(self) -> None:
        """Write the file, which is on disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        sync(self.path.parent.parent)
        with new_part(self.path) as temporary:
            temporary.write_text(json.dumps(self.as_json(), indent=1) + "\n", encoding="utf-8")


def now() -> str:
    """The time, as receipts have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def read(path: Path) -> Receipt | None:
    """The receipt in a file; None if it is not one."""
    try:
        found = read_json_object(path)
        is_ours = found.get("schema") == SCHEMA
        return converted({**found, "path": path}, Receipt, path) if is_ours else None
    except BadInput:
        return None


def earlier_receipts(given: Path | None, top: Path) -> list[Receipt]:
    """The receipts that exist: the one given, or all in the usual directory, oldest first.

    The usual directory of an artifact is beside it; those of a path that has been one come first.
    Raises OutputExists if the file given is something else or a link, and UsageError if it is
    inside an artifact or no file can be written there.
    """
    if given is not None:
        refuse_foreign(given, lambda _: True, is_file=True)
        artifact = around(Path(os.path.realpath(given)))
        if artifact is not None:
            shown = as_given(artifact, [given])
            raise UsageError(f"--receipt {given} is inside {shown}; give a path outside of it")
        found = read(given)
        if found is None and os.path.lexists(given):
            raise OutputExists(
                f"{given} already exists and is not a receipt; choose another --receipt"
            )
        return [] if found is None else [found]
    inside, beside = _directory(top), top.parent / _DIRECTORY
    earlier = [] if inside == beside else _all_in(beside)
    return [*(one for one in earlier if str(top) in one.paths), *_all_in(inside)]


def was_searched(path: Path, given: Path | None) -> bool:
    """Whether a receipt is of a deletion in a path, which may have deleted all of it.

    Looked at are the receipts beside it, and the file that is given for the receipt.
    """
    found = [*_all_in(path.parent / _DIRECTORY), given and read(given)]
    return any(str(path) in one.paths for one in found if one)


def unfinished_under(root: Path) -> Path | None:
    """The receipt of an unfinished deletion that is to search this directory, or None.

    It is looked for where receipts are written without --receipt: in the directory or in one that
    contains it.
    """
    real = Path(os.path.realpath(root))
    around_it = {str(at) for at in (real, *real.parents)}
    for at in map(Path, sorted(around_it, key=len, reverse=True)):
        with suppress(PermissionError):  # it is another user's
            for found in earlier_receipts(None, at):
                if found.is_pending and not around_it.isdisjoint(found.paths):
                    return found.path
    return None


def next_path(given: Path | None, top: Path) -> Path:
    """Where to write a new receipt: the path given, or the next number."""
    directory = _directory(top)
    numbers = map(_number, directory.iterdir()) if directory.is_dir() else ()
    return given or directory / f"{max(numbers, default=0) + 1:04d}.json"


def _directory(top: Path) -> Path:
    """Where receipts about a path are: inside of it, or beside the artifact or file that it is."""
    is_plain = top.is_dir() and kind_of(top) is None
    return (top if is_plain else top.parent) / _DIRECTORY


def _all_in(directory: Path) -> list[Receipt]:
    """The receipts in a directory, oldest first."""
    paths = sorted(directory.iterdir(), key=_number) if directory.is_dir() else []
    return [found for path in paths if _number(path) and (found := read(path)) is not None]


def _number(path: Path) -> int:
    found = _NUMBERED.fullmatch(path.name)
    return int(found[1]) if found else 0


def mentions(tops: Iterable[Path], names: Iterable[str]) -> list[str]:
    """Text files under the paths that name a key or an image, except receipts and stop lists."""
    wanted, found = {one.encode() for one in names}, []
    for directory, _, files in (one for top in tops for one in os.walk(top)):
        for path in (Path(directory) / name for name in files if Path(name).suffix in _TEXTS):
            if path.is_symlink() or not path.is_file() or path.stat().st_size > _MOST_TEXT_BYTES:
                continue
            if wanted & set(_HEX.findall(path.read_bytes())) and not is_stop_list(path):
                found.append(str(path))
    return sorted(found)


def matches(receipt: Receipt, conditions: Sequence[Condition]) -> Iterator[str]:
    """What each condition but those on keys selects, as a receipt counts it, in lines of text."""
    for condition, entry in zip(conditions, receipt.selectors, strict=True):
        if condition.by != "key":
            yield f"{condition}: {counted(entry['pairs'], 'pair')}"


def lines(receipt: Receipt, conditions: Sequence[Condition], shown: Shown) -> Iterator[str]:
    """The content of a receipt, or of the plan of a dry run, as lines of text."""
    keys = receipt.keys
    more = ", ..." if len(keys) > _KEYS_SHOWN else ""
    yield f"{counted(len(keys), 'pair')}: {', '.join(keys[:_KEYS_SHOWN])}{more}"
    yield from (f"  {one}" for one in matches(receipt, conditions))
    for entry in receipt.artifacts:
        counts = ", ".join(f"{count} {name}" for name, count in entry.removed.items())
        said = f": {counts}" if counts else ""
        again = f"; '{entry.again}' makes it again" if entry.again else ""
        what = {"deleted": "delete", "rewritten": "rewrite"}[entry.action]
        yield f"  {what} {entry.kind} {shown(entry.path)}{said}{again}"
    for path in receipt.caches:
        yield f"  empty the cache {shown(path)}"
    for one in receipt.checkpoints:
        yield f"  depends on them: checkpoint {shown(one['path'])} (content {one['content']})"
    for one in receipt.unknown:
        kind = "checkpoint" if "run" in one else "export"
        made = "was made of data that is not under the given paths"
        yield f"  not known: {kind} {shown(one['path'])} {made}"


def warnings(receipt: Receipt, places: Places, shown: Shown) -> Iterator[str]:
    """Warnings about what the deletion does not cover, or covers unexpectedly."""
    if receipt.same_image:
        yield (
            f"the same image is also in {counted(receipt.same_image, 'other pair')}, which stay; "
            "--sha256 selects all pairs of an image"
        )
    if receipt.foreign:
        pairs, tars = sum(receipt.foreign.values()), len(receipt.foreign)
        yield (
            f"{counted(pairs, 'pair')} of tasks that were made in place: not removed from "
            f"{counted(tars, 'tar')} of others, such as {shown(min(receipt.foreign))}; write those "
            "again without them"
        )
    if receipt.caches:
        yield (
            f"not searched: the object stores that {shown(receipt.caches[0])} is a cache of; write "
            "what has the pairs there again without them"
        )
    yield from _not_compared(receipt)
    exports = [one["path"] for one in receipt.unknown if "run" not in one]
    for paths, noun, what in (
        (exports, "export", " of data that is not under the given paths"),
        (places.others, "file", " that vlcpctl did not write"),
        (places.skipped, "symbolic link", ""),
    ):
        if paths:
            found = f"{counted(len(paths), noun)}{what}, such as {shown(paths[0])}"
            yield f"not searched: {found}"
    if receipt.mentions:
        files = counted(len(receipt.mentions), "file")
        yield f"a key is still named in {files}, such as {shown(receipt.mentions[0])}"


def _not_compared(receipt: Receipt) -> Iterator[str]:
    if receipt.evicted:
        yield (
            f"{counted(receipt.evicted, 'sample')} that buffers evicted and no index lists "
            "cannot be compared with --where; removed, too"
        )
    if receipt.without_column:
        yield (
            f"{counted(receipt.without_column, 'pair')} without a value in a column of --where: "
            "whether they belong to the request is not known; they stay"
        )
    if receipt.not_found:
        yield f"{counted(len(receipt.not_found), 'key')} of the request found nowhere"
    others = [entry for entry in receipt.selectors if not (entry["pairs"] or "key" in entry)]
    if others:
        yield f"no pair matches {counted(len(others), 'other condition')} of the request"

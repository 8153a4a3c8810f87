"""The receipt of a deletion: what was removed where and when, and what is known to depend on it.

It is written before the first removal, as pending: with its keys, the same request finds the rest
of the pairs if it was interrupted, even where their columns are gone. It names pairs by their keys
and images by their sha256; of texts that select pairs it only has the sha256.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

import vlcpctl
from vlcpctl.core.atomic import check_output_path, new_part, refuse_link
from vlcpctl.core.digests import FileDigest
from vlcpctl.core.errors import BadInput, OutputExists, UsageError
from vlcpctl.core.manifest import kind_of
from vlcpctl.core.safe_json import read_json_object
from vlcpctl.core.shown_paths import as_given
from vlcpctl.core.staging import sync
from vlcpctl.core.structs import converted
from vlcpctl.data.splitting.stop_lists import RECEIPT as SCHEMA
from vlcpctl.deletion.places import around
from vlcpctl.deletion.selectors import Selectors

PENDING: Final = "pending"
FINISHED: Final = "finished"
FOREIGN: Final = "not removed from foreign tars"
DIRECTORY = "receipts"
_NUMBERED = re.compile(r"(\d{4,})\.json")


@dataclass
class Files:
    """An artifact's content id, and size and digest of its files with the pairs, by name.

    A file that is not in a directory has an empty name; None stands for digests not computed.
    """

    content: str | None = None
    files: dict[str, FileDigest | None] = field(default_factory=dict)


@dataclass
class Entry:
    """An artifact or file that contained the pairs, before and after the deletion."""

    path: str
    kind: str
    action: Literal["deleted", "rewritten"]
    removed: dict[str, int]  # how many, by split or by what they are
    before: Files
    after: Files | None = None
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
        written = read(self.path) if self.is_pending and self.path.exists() else None
        return written is not None and written.is_pending

    def searched(self, path: Path) -> bool:
        """Whether this very path was given to be searched."""
        return str(path) in self.paths

    def as_json(self) -> dict[str, Any]:
        """The receipt as a JSON object, without what is only known at its end."""
        # Copied, since msgspec does not set fields that a file lacks, and would leave them out.
        found: dict[str, Any] = msgspec.to_builtins(replace(self), enc_hook=str)
        at_the_end = ("second_search", "mentions")
        left_out = {"path", *(name for name in at_the_end if found[name] is None)}
        left_out |= {name for name in ("foreign", "caches") if not found[name]}
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


def directory_for(top: Path) -> Path:
    """Where receipts about a path are: inside of it, or beside the artifact or file that it is."""
    is_plain = top.is_dir() and kind_of(top) is None
    return (top if is_plain else top.parent) / DIRECTORY


def earlier_receipts(given: Path | None, top: Path) -> list[Receipt]:
    """The receipts that exist: the one given, or all in the usual directory, oldest first.

    The usual directory of an artifact is beside it; those of a path that has been one come first.
    Raises OutputExists if the file given is something else or a link, and UsageError if it is
    inside an artifact or no file can be written there.
    """
    if given is not None:
        check_output_path(given)
        refuse_link(given)
        artifact = around(Path(os.path.realpath(given)))
        if artifact is not None:
            shown = as_given(artifact, [given])
            raise UsageError(f"--receipt {given} is inside {shown}; give a path outside of it")
        found = read(given) if os.path.lexists(given) else None
        if found is None and os.path.lexists(given):
            raise OutputExists(
                f"{given} already exists and is not a receipt; choose another --receipt"
            )
        return [] if found is None else [found]
    inside, beside = directory_for(top), top.parent / DIRECTORY
    earlier = [] if inside == beside else [one for one in _all_in(beside) if one.searched(top)]
    return [*earlier, *_all_in(inside)]


def was_searched(path: Path, given: Path | None) -> bool:
    """Whether a receipt is of a deletion in a path, which may have deleted all of it.

    Looked at are the receipts beside it, and the file that is given for the receipt.
    """
    found = [*_all_in(path.parent / DIRECTORY), given and read(given)]
    return any(one.searched(path) for one in found if one)


def _all_in(directory: Path) -> list[Receipt]:
    """The receipts in a directory, oldest first."""
    paths = sorted(directory.iterdir(), key=_number) if directory.is_dir() else []
    return [found for path in paths if _number(path) and (found := read(path)) is not None]


def unfinished_under(root: Path) -> Path | None:
    """The receipt of an unfinished deletion that is to search this directory, or None.

    It is looked for where receipts are written without --receipt: in the directory or in one that
    contains it.
    """
    real = Path(os.path.realpath(root))
    around_it = {str(at) for at in (real, *real.parents)}
    for at in (real, *real.parents):
        with suppress(PermissionError):  # it is another user's
            for found in earlier_receipts(None, at):
                if found.is_pending and not around_it.isdisjoint(found.paths):
                    return found.path
    return None


def next_path(given: Path | None, top: Path) -> Path:
    """Where to write a new receipt: the path given, or the next number."""
    if given is not None:
        return given
    directory = directory_for(top)
    numbers = map(_number, directory.iterdir()) if directory.is_dir() else ()
    return directory / f"{max(numbers, default=0) + 1:04d}.json"


def read(path: Path) -> Receipt | None:
    """The receipt in a file; None if it is not one."""
    try:
        found = read_json_object(path)
        is_ours = found.get("schema") == SCHEMA
        return converted({**found, "path": path}, Receipt, path) if is_ours else None
    except BadInput:
        return None


def new_receipt(
    path: Path, selectors: Selectors, tops: Iterable[Path], ticket: str | None = None
) -> Receipt:
    """A receipt without findings, which is not written yet."""
    return Receipt(
        path=path,
        ticket=ticket,
        request=selectors.request(),
        started=now(),
        paths=[str(top) for top in tops],
        selectors=selectors.described(),
        versions={"vlcpctl": vlcpctl.__version__, "python": platform.python_version()},
    )


def _number(path: Path) -> int:
    found = _NUMBERED.fullmatch(path.name)
    return int(found[1]) if found else 0

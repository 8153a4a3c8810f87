"""The receipt of a deletion: what was removed where and when, and what is known to depend on it.

It is written before the first removal, as pending: with its keys, the same request finds the rest
of the pairs if it was interrupted, even where their columns are gone. It names pairs by their keys
and images by their sha256; of texts that select pairs it only has the sha256.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from vlcpctl.core.errors import BadInput, OutputExists, UsageError, some_names
from vlcpctl.core.words import Shown, as_given, counted
from vlcpctl.data.splitting.leaving_out import RECEIPT as SCHEMA
from vlcpctl.deletion.places import Places, around
from vlcpctl.deletion.selectors import Condition, Selected
from vlcpctl.files.inputs import converted, read_json_object
from vlcpctl.files.manifest import kind_of
from vlcpctl.files.outputs import new_part, refuse_foreign, sync

PENDING: Final = "pending"
_DIRECTORY = "receipts"
_NUMBERED = re.compile(r"(\d{4,})\.json")


@dataclass(kw_only=True)
class Receipt:
    """A receipt; `path` is its file, and not a part of it.

    `selectors` are the conditions and how many pairs each selects, `artifacts` what contained the
    pairs and was rewritten or deleted, with its content id `before` and `after`. `unknown` are the
    checkpoints and exports of data that was not searched; `notes` say what else is not covered.
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
    stop_lists: list[str] = field(default_factory=list)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    unknown: list[dict[str, Any]] = field(default_factory=list)
    foreign: dict[str, int] = field(default_factory=dict)  # pairs that stay, by tar
    caches: list[str] = field(default_factory=list)  # of object stores, which were emptied
    notes: list[str] | None = None
    second_search: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """The receipt as a JSON object."""
        return {name: value for name, value in asdict(self).items() if name != "path"}

    def write(self) -> None:
        """Write the file, which is on disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        sync(self.path.parent.parent)
        for left in self.path.parent.glob(f".{self.path.name}.tmp-*"):  # of one that was killed
            left.unlink()
        with new_part(self.path) as temporary:
            temporary.write_text(json.dumps(self.as_json(), indent=1) + "\n", encoding="utf-8")


def now() -> str:
    """The time, as receipts have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def receipts_about(top: Path, given: Path | None) -> list[Receipt]:
    """The receipts of deletions in a path: in it and beside it, or that in the file given for it.

    Raises OutputExists if this file is something else or a link, and UsageError if it is inside an
    artifact or no file can be written there.
    """
    if given is None:
        return [*_receipts_in(top.parent), *_receipts_in(top)]
    refuse_foreign(given, lambda _: True, is_file=True, option="--receipt")
    if (artifact := around(Path(os.path.realpath(given)))) is not None:
        shown = as_given(artifact, [given])
        raise UsageError(f"--receipt {given} is inside {shown}; give a path outside of it")
    found = _read(given)
    if not found and os.path.lexists(given):
        raise OutputExists(f"{given} already exists and is not a receipt; choose another --receipt")
    return found


def next_path(top: Path) -> Path:
    """Where to write a new receipt about a path: inside of it, or beside an artifact or file."""
    is_plain = top.is_dir() and kind_of(top) is None
    directory = (top if is_plain else top.parent) / _DIRECTORY
    numbers = (int(path.stem) for path in _numbered(directory))
    return directory / f"{max(numbers, default=0) + 1:04d}.json"


def unfinished_under(root: Path) -> Path | None:
    """The receipt of an unfinished deletion that is to search this directory, or None.

    It is looked for where receipts are written without --receipt: in the directory or in one that
    contains it.
    """
    real = Path(os.path.realpath(root))
    for at in (real, *real.parents):
        with suppress(PermissionError):  # it is another user's
            for one in _receipts_in(at):
                is_about = any(real.is_relative_to(path) for path in one.paths)
                if one.state == PENDING and is_about:
                    return one.path
    return None


def _receipts_in(directory: Path) -> list[Receipt]:
    """The receipts about a directory, oldest first."""
    return [found for path in _numbered(directory / _DIRECTORY) for found in _read(path)]


def _numbered(directory: Path) -> list[Path]:
    paths = directory.iterdir() if directory.is_dir() else ()
    found = [path for path in paths if _NUMBERED.fullmatch(path.name)]
    return sorted(found, key=lambda path: int(path.stem))


def _read(path: Path) -> list[Receipt]:
    """The receipt in a file; none if it is something else."""
    with suppress(BadInput):
        found = read_json_object(path)
        if found.get("schema") == SCHEMA:
            return [converted({**found, "path": path}, Receipt, path)]
    return []


def lines(receipt: Receipt, conditions: Sequence[Condition], shown: Shown) -> Iterator[str]:
    """The plan of a dry run, as lines of text."""
    yield f"{counted(len(receipt.keys), 'pair')}: {some_names(receipt.keys, 3)}"
    for condition, entry in zip(conditions, receipt.selectors, strict=True):
        if condition.by != "key":
            yield f"  {condition}: {counted(entry['pairs'], 'pair')}"
    for entry in receipt.artifacts:
        what = {"deleted": "delete", "rewritten": "rewrite"}[entry["action"]]
        removed = entry["removed"].items()
        counts = ", ".join(counted(count, name.removesuffix("s"), name) for name, count in removed)
        again = f"; '{entry['again']}' makes it again" if entry.get("again") else ""
        yield f"  {what} {entry['kind']} {shown(entry['path'])}: {counts}{again}"
    for path in receipt.caches:
        yield f"  empty the cache {shown(path)}"
    for said, models in (("depends on them", receipt.checkpoints), ("not known", receipt.unknown)):
        for one in models:
            kind = one.get("kind", "checkpoint")  # version 0.3 did not say
            yield f"  {said}: {kind} {shown(one['path'])} (content {one['content']})"


def notes(receipt: Receipt, places: Places, selected: Selected) -> Iterator[str]:
    """What a deletion does not cover, or covers unexpectedly, in lines of text."""
    foreign, unknown = receipt.foreign, [one["path"] for one in receipt.unknown]
    empty = sum(not one["pairs"] for one in receipt.selectors)
    compared, searched = "not compared with --where", "not searched"
    for what, count, noun, which, paths in (
        ("found nowhere", empty, "condition", " of the request", ()),
        ("not removed", len(selected.same_image), "other pair", " with the same image", ()),
        ("not removed", sum(foreign.values()), "pair", " in tars of others", foreign),
        (compared, len(selected.unlabelled), "pair", " without the column; not removed", ()),
        (compared, len(selected.evicted), "evicted sample", "; removed, too", ()),
        ("not known", len(unknown), "artifact", " of data that is elsewhere", unknown),
        (searched, len(places.caches), "object store", " behind a cache", places.caches),
        (searched, len(places.skipped), "symbolic link", "", places.skipped),
        (searched, len(places.others), "file", " that vlcpctl did not write", places.others),
    ):
        if count:
            such = f", such as {min(map(str, paths))}" if paths else ""
            yield f"{what}: {counted(count, noun)}{which}{such}"

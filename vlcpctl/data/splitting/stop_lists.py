"""Stop lists: what a deletion named, so that no later split takes these pairs in again.

`vlcpctl forget` writes one into each state directory that it searches, and its receipt is one, too.
Pairs are named by key; by the sha256 of their image where that selected them; and by the sha256 of
a value in a kept column, which also finds copies with other bytes, whose keys differ.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from vlcpctl.core.errors import BadInput
from vlcpctl.data.tasks.index import is_own_column
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import converted, read_json_object
from vlcpctl.files.manifest import SEAL, check_seal, seal_of
from vlcpctl.files.outputs import new_part, sync

SCHEMA = "vlcpctl.stop-list/1"
RECEIPT = "vlcpctl.receipt/1"
_DIRECTORY = "deleted"  # of a state directory


class _Key(msgspec.Struct, tag_field="by", tag="key"):
    key: str


class _SourceKey(msgspec.Struct, tag_field="by", tag="source-key"):
    sha256: str


class _Image(msgspec.Struct, tag_field="by", tag="sha256"):
    sha256: str


class _Where(msgspec.Struct, tag_field="by", tag="where"):
    column: str
    sha256: str


class _Listed(msgspec.Struct):
    """What is read of a stop list or a receipt; only a receipt has a state."""

    request: str
    selectors: list[_Key | _SourceKey | _Image | _Where]
    keys: list[str]
    state: str = ""


@dataclass(frozen=True)
class StopList:
    """The pairs of one deletion; `request` is the id of its conditions, `values` are by column."""

    request: str
    keys: frozenset[str]
    images: frozenset[str]  # sha256
    values: Mapping[str, frozenset[str]]  # sha256

    @property
    def content(self) -> str:
        """An id of what is listed."""
        values = {name: sorted(digests) for name, digests in self.values.items()}
        return content_id([sorted(self.keys), sorted(self.images), values])


def read_stop_list(path: Path) -> StopList:
    """The stop list in a file, or that of a receipt.

    Raises BadInput if the file is neither, has changed, or is of a deletion that has not finished.
    """
    found = read_json_object(path)
    if found.get("schema") not in {SCHEMA, RECEIPT}:
        raise BadInput(f"{path} is neither a receipt of 'vlcpctl forget' nor a stop list")
    listed = converted(found, _Listed, path)
    if found["schema"] == RECEIPT and listed.state in {"", "pending"}:
        raise BadInput(
            f"{path} is of a deletion that was interrupted; run its 'vlcpctl forget' again"
        )
    if found["schema"] == SCHEMA:
        check_seal(path, found, "; restore it from a backup")
    keys, images = set(listed.keys), set()
    values: dict[str, set[str]] = {}
    for one in listed.selectors:
        if isinstance(one, _Key):
            keys.add(one.key)
        elif isinstance(one, _Image):
            images.add(one.sha256)
        elif isinstance(one, _Where) and not is_own_column(one.column):
            values.setdefault(one.column, set()).add(one.sha256)
    return StopList(
        request=listed.request,
        keys=frozenset(keys),
        images=frozenset(images),
        values={name: frozenset(digests) for name, digests in values.items()},
    )


def stop_lists_in(state: Path) -> list[Path]:
    """The stop lists of a state directory, in order."""
    return sorted((state / _DIRECTORY).glob("*.json"))


def stop_list_path(state: Path, request: str) -> Path:
    """Where a state directory has the stop list of a request."""
    return state / _DIRECTORY / f"{request}.json"


def add_to_stop_list(
    path: Path, request: str, selectors: Iterable[Mapping[str, Any]], keys: Collection[str]
) -> None:
    """Write the stop list of a request, and wait until it is on the disk.

    Keys that an earlier deletion with the same conditions found stay in it. Only for the holder of
    the receipt's lock. Raises BadInput if the list is there and cannot be read.
    """
    earlier = read_stop_list(path).keys if path.exists() else frozenset()
    listed = [one for one in selectors if one["by"] != "source-key"]
    body = {"request": request, "selectors": listed, "keys": sorted(earlier.union(keys))}
    path.parent.mkdir(exist_ok=True)
    sync(path.parent.parent)
    for left in path.parent.glob(f".{path.name}.tmp-*"):  # of a writer that was killed
        left.unlink()
    with new_part(path) as temporary:
        text = json.dumps({"schema": SCHEMA, **body, SEAL: seal_of(body)}, indent=1)
        temporary.write_text(f"{text}\n", encoding="utf-8")

"""Pairs that a split leaves out: those of a deletion, those that other tasks have, and leaks.

A deletion is given by its receipt or by a stop list, which `vlcpctl forget` writes into each state
directory that it searches. It names pairs by key; by the sha256 of their image where that selected
them; and by the sha256 of a value in a kept column, which also finds copies with other bytes, whose
keys differ. Of a task whose pairs were removed, a Parquet file of known keys is left, which has
what later requests ask for them by. A leak is a pair for training whose image is in a test split.
Shapes: N keys on all lists, B samples of a batch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.errors import BadInput, missing, some_names
from vlcpctl.data.tasks.index import SCHEMA, is_own_column
from vlcpctl.data.tasks.keys import KEY_BYTES, Keys, rows_in
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.data.tasks.task import Task, open_stream, open_task
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import converted, decoded, read_json_object
from vlcpctl.files.manifest import SEAL, check_seal, kind_of, seal_of
from vlcpctl.files.outputs import new_part, sync
from vlcpctl.files.parquet_files import read_about, read_columns, table_writer, write_about

DELETED, KNOWN, LEAKED = "deleted", "known", "leaked"
SELF = "self"  # the stream that is being made, of --not-test-images
STOP_LIST, RECEIPT = "vlcpctl.stop-list/1", "vlcpctl.receipt/1"
KNOWN_KEYS, KNOWN_METADATA = "vlcpctl.known-keys/2", b"vlcpctl.known-keys"
KNOWN_SPLIT = "trimmed_split"  # not "split": a source may have a column of that name
_STOP_LISTS = "deleted"  # the directory in a state directory
_NOT_KNOWN = {field.name for field in SCHEMA} - {"key", "source_key", "label", "task", "sha256"}
Counts = dict[str, dict[str, int]]  # by reason, then by the name of the list


@dataclass(frozen=True)
class LeftOutList:
    """Pairs to leave out and why; `name` is that of a task, or the id of a deletion request."""

    reason: str
    name: str
    content: str  # an id of what is listed
    keys: Keys = field(default_factory=lambda: Keys.of([]))
    images: Keys = field(default_factory=lambda: Keys.of([]))  # the first 16 bytes of sha256
    values: Mapping[str, Collection[str]] = field(default_factory=dict)  # sha256, by column


def read_lists(paths: Iterable[Path]) -> list[LeftOutList]:
    """The lists that --not names: of receipts and stop lists, tasks, and all tasks of streams.

    Raises BadInput if a path is nothing of these, or is damaged.
    """
    found: list[LeftOutList] = []
    for path in paths:
        if kind_of(path) in {"task", "stream"}:
            for task in _tasks(path):
                keys = Keys.joined([task.split(name).keys for name in task.manifest.splits])
                # By its id, so that a split stays the same one after `forget` in the task.
                found.append(LeftOutList(KNOWN, task.name, task.id, keys))
        elif not path.exists():
            raise BadInput(f"--not {missing(path)}")
        elif is_known_keys(path):
            known = read_known(path)
            found.append(LeftOutList(KNOWN, known.name, known.content, known.keys))
        else:
            found.append(read_stop_list(path))
    return found


def read_test_images(paths: Iterable[Path]) -> list[LeftOutList]:
    """The test images of the tasks that --not-test-images names, and of all tasks of streams.

    Raises BadInput if a path is neither, is damaged, or has no test split.
    """
    found: list[LeftOutList] = []
    for path in paths:
        tasks = _tasks(path)
        if not any("test" in task.manifest.splits for task in tasks):
            raise BadInput(f"--not-test-images {path} has no test split; give a task that has one")
        found += [
            LeftOutList(LEAKED, one.name, one.id, images=images_of(one, "test")) for one in tasks
        ]
    return found


def _tasks(path: Path) -> list[Task]:
    return open_stream(path) if kind_of(path) == "stream" else [open_task(path)]


def images_of(task: Task, split: str) -> Keys:
    """The first 16 bytes of the sha256 of the images of a split; none if the task lacks it.

    Raises BadInput as `Task.split` does.
    """
    if split not in task.manifest.splits:
        return Keys.of([])
    return Keys(np.ascontiguousarray(task.split(split).digests()[:, :KEY_BYTES]))


# -- looking pairs up


class _ListedKeys:
    """The keys on some lists, in 20 bytes of memory each; those on several count for the first."""

    def __init__(self, parts: Sequence[Keys]) -> None:
        keys = Keys.joined(parts)
        order = keys.order()
        self._sorted_N = keys.sortable()[order]
        places = np.repeat(np.arange(len(parts), dtype=np.int32), [len(one) for one in parts])
        # The last for a key that is not there.
        self._place_N = np.append(places[order], np.int32(-1))

    def __len__(self) -> int:
        return len(self._sorted_N)

    def places(self, texts: Sequence[str]) -> np.ndarray:
        """(B,) int32: the first list that has each key; -1 if none has it."""
        if not len(self):
            return np.full(len(texts), -1, np.int32)
        places: np.ndarray = self._place_N[rows_in(self._sorted_N, Keys.of(texts).sortable())]
        return places


class LeftOut:
    """The pairs on some lists. A pair on several lists counts for the first.

    `kept` are the kept columns of the split. Two images are the same if the first 16 bytes of
    their sha256 are.
    """

    def __init__(self, lists: Sequence[LeftOutList], kept: Sequence[str] = ()) -> None:
        self.lists, self._kept = lists, kept
        self._keys = _ListedKeys([one.keys for one in lists])
        self._images = _ListedKeys([one.images for one in lists])
        self._values: dict[tuple[str, str], int] = {}  # by column and sha256
        for place, one in enumerate(lists):
            for name, digests in one.values.items():
                for digest in digests:
                    self._values.setdefault((name, digest), place)

    @property
    def identity(self) -> list[str]:
        """The ids of the lists, sorted: their order does not decide which pairs are left out."""
        return sorted({one.content for one in self.lists})

    @property
    def columns_not_kept(self) -> list[str]:
        """The columns whose values are listed and cannot be compared: the split does not keep them.

        Copies with other bytes of a pair that they selected are not found.
        """
        return sorted({name for name, _ in self._values} - set(self._kept))

    def places(self, samples: Sequence[Pair]) -> np.ndarray:
        """(B,) int32: the first list that names each sample; -1 for those to keep."""
        found = self._keys.places([sample.key for sample in samples])
        if len(self._images) or self._values:
            of_image = self._images.places([one.sha256[: 2 * KEY_BYTES] for one in samples])
            for row in np.flatnonzero(found < 0).tolist():
                places = [int(of_image[row]), *self._places_of_values(samples[row])]
                found[row] = min((place for place in places if place >= 0), default=-1)
        return found

    def _places_of_values(self, sample: Pair) -> Iterator[int]:
        for name, values in zip(self._kept, sample.kept, strict=False) if self._values else ():
            for value in values:
                digest = hashlib.sha256(value.encode()).hexdigest()
                yield self._values.get((name, digest), -1)


def counts_of(lists: Sequence[LeftOutList], of_places: Mapping[int, int]) -> Counts:
    """Numbers of pairs by place in the lists, as numbers by reason and name."""
    found: Counts = {}
    for place, count in sorted(of_places.items()):
        of_reason = found.setdefault(lists[place].reason, {})
        name = lists[place].name
        of_reason[name] = of_reason.get(name, 0) + count
    return found


def sentence(counts: Counts, read: int) -> str:
    """What was left out, for people; "" if nothing was.

    >>> sentence({"known": {"week-0001": 10}, "deleted": {"ab": 3}}, 106)
    '13 of 106 pairs left out: 3 deleted, 10 known from week-0001'
    """
    deleted = sum(counts.get(DELETED, {}).values())
    parts = [f"{deleted} deleted"] if deleted else []
    parts += [f"{count} known from {name}" for name, count in counts.get(KNOWN, {}).items()]
    parts += [
        f"{count} with test images of {'this stream' if name == SELF else name}"
        for name, count in counts.get(LEAKED, {}).items()
    ]
    total = sum(count for names in counts.values() for count in names.values())
    return f"{total} of {read} pairs left out: {some_names(parts)}" if total else ""


# -- stop lists


class _Key(msgspec.Struct, tag_field="by", tag="key"):
    key: str


class _SourceKey(msgspec.Struct, tag_field="by", tag="source-key"):
    sha256: str


class _Image(_SourceKey, tag_field="by", tag="sha256"):
    pass


class _Where(_SourceKey, tag_field="by", tag="where"):
    column: str


class _Listed(msgspec.Struct):
    """What is read of a stop list or a receipt; only a receipt has a state."""

    request: str
    selectors: list[_Key | _SourceKey | _Image | _Where]
    keys: list[str]
    state: str = ""


def read_stop_list(path: Path) -> LeftOutList:
    """The stop list in a file, or that of a receipt; its name is the id of the conditions.

    Raises BadInput if the file is neither, has changed, or is of a deletion that has not finished.
    """
    found = read_json_object(path)
    schema = found.get("schema")
    if schema not in {STOP_LIST, RECEIPT}:
        raise BadInput(f"{path} is neither a receipt of 'vlcpctl forget' nor a stop list")
    listed = converted(found, _Listed, path)
    if schema == RECEIPT and listed.state in {"", "pending"}:
        raise BadInput(
            f"{path} is of a deletion that was interrupted; run its 'vlcpctl forget' again"
        )
    if schema == STOP_LIST:
        check_seal(path, found, "; restore it from a backup")
    try:
        return _left_out(listed)
    except ValueError as error:
        raise BadInput(f"{path}: {error}") from error


def _left_out(listed: _Listed) -> LeftOutList:
    keys, images, values = set(listed.keys), set[str](), dict[str, set[str]]()
    for one in listed.selectors:
        if isinstance(one, _Key):
            keys.add(one.key)
        elif isinstance(one, _Image):
            images.add(one.sha256)
        elif isinstance(one, _Where) and not is_own_column(one.column):
            values.setdefault(one.column, set()).add(one.sha256)
    of_values = {name: sorted(digests) for name, digests in values.items()}
    content = content_id([sorted(keys), sorted(images), of_values])
    of_images = Keys.of(sorted(one[: 2 * KEY_BYTES] for one in images))
    return LeftOutList(
        DELETED, listed.request, content, Keys.of(sorted(keys)), of_images, of_values
    )


def stop_lists_in(state: Path) -> list[Path]:
    """The stop lists of a state directory, in order."""
    return sorted((state / _STOP_LISTS).glob("*.json"))


def stop_list_path(state: Path, request: str) -> Path:
    """Where a state directory has the stop list of a request."""
    return state / _STOP_LISTS / f"{request}.json"


def add_to_stop_list(
    path: Path, request: str, selectors: Iterable[Mapping[str, Any]], keys: Collection[str]
) -> None:
    """Write the stop list of a request, and wait until it is on the disk.

    Keys that an earlier deletion with the same conditions found stay in it. Only for the holder of
    the receipt's lock. Raises BadInput if the list is there and cannot be read.
    """
    earlier = read_stop_list(path).keys if path.exists() else ()
    listed = [one for one in selectors if one["by"] != "source-key"]
    body = {"request": request, "selectors": listed, "keys": sorted({*earlier, *keys})}
    path.parent.mkdir(exist_ok=True)
    sync(path.parent.parent)
    for left in path.parent.glob(f".{path.name}.tmp-*"):  # of a writer that was killed
        left.unlink()
    with new_part(path) as temporary:
        text = json.dumps({"schema": STOP_LIST, **body, SEAL: seal_of(body)}, indent=1)
        temporary.write_text(f"{text}\n", encoding="utf-8")


# -- known keys


class _About(msgspec.Struct):
    """What the footer says."""

    schema: str
    name: str
    content: str


@dataclass(frozen=True)
class KnownKeys:
    """The name and the first content id of a task whose pairs were removed, and a row for each.

    The columns are `key`, `source_key`, `label`, `task`, `sha256`, KNOWN_SPLIT, and kept ones.
    """

    name: str
    content: str
    table: pa.Table

    @classmethod
    def of(cls, task: Task) -> KnownKeys:
        """The pairs of all splits of a task."""
        tables = []
        for name in task.manifest.splits:
            table = task.split(name).table.drop_columns(_NOT_KNOWN)
            split = pa.array([name] * len(table), pa.string())
            tables.append(table.append_column(KNOWN_SPLIT, split))
        return cls(task.name, task.id, pa.concat_tables(tables))

    @property
    def keys(self) -> Keys:
        """The keys of the pairs."""
        return Keys.joined([Keys.of_array(chunk) for chunk in self.table["key"].chunks])

    def without(self, keys: Collection[str]) -> KnownKeys:
        """The pairs that do not have one of these keys."""
        drop_N = pc.is_in(self.table["key"], value_set=pa.array(sorted(keys), pa.string()))
        return KnownKeys(self.name, self.content, self.table.filter(pc.invert(drop_N)))

    def write(self, path: Path) -> None:
        """Write the file."""
        with table_writer(path, self.table.schema) as writer:
            writer.write_table(self.table)
            about = {"schema": KNOWN_KEYS, "name": self.name, "content": self.content}
            write_about(writer, KNOWN_METADATA, about)


def read_known(path: Path) -> KnownKeys:
    """What a file has.

    Raises BadInput if it cannot be read, or has changed since it was written.
    """
    stored, _ = read_about(path, KNOWN_METADATA)
    if stored is None:
        raise BadInput(f"{path} has no known keys")
    about = decoded(msgspec.json.Decoder(_About), stored, path)
    if about.schema != KNOWN_KEYS:
        raise BadInput(f"{path} has schema {about.schema!r:.80}; this version reads {KNOWN_KEYS}")
    table = read_columns(path, page_checksum_verification=True)
    return KnownKeys(about.name, about.content, table)


def is_known_keys(path: Path) -> bool:
    """Whether a file has known keys."""
    try:
        return read_about(path, KNOWN_METADATA)[0] is not None
    except BadInput:
        return False

"""What is left of a task whose pairs were removed: their keys, and what requests ask for them by.

A Parquet file with the columns `key`, `source_key`, `label`, `task`, `sha256`, SPLIT, and those
that --keep-columns kept: no later split takes these pairs in, and `vlcpctl forget` finds them.
Version 0.3.0 wrote a JSON file, and beside it the keys alone, (N, 16) uint8 in NumPy's format.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.data.tasks.index import FIELDS
from vlcpctl.data.tasks.keys import KEY_BYTES, Keys
from vlcpctl.data.tasks.task import Task
from vlcpctl.files.digests import ALGORITHM, RESTORE, cached_digest
from vlcpctl.files.inputs import converted, decoded, read_json_object
from vlcpctl.files.manifest import check_seal
from vlcpctl.files.parquet_files import read_about, read_columns, table_writer, write_about

SCHEMA, METADATA = "vlcpctl.known-keys/2", b"vlcpctl.known-keys"
SPLIT = "trimmed_split"  # not "split": a source may have a column of that name
FILES_0_3 = ("keys.npy", "trimmed.json")  # in the order in which they are deleted
_SCHEMA_0_3 = "vlcpctl.known-keys/1"
_FACTS = ("key", "source_key", "label", "task", "sha256")
_OF_IMAGES = {field.name for field in FIELDS} - set(_FACTS)


class _About(msgspec.Struct):
    """What the footer says."""

    schema: str
    name: str
    content: str


class _About03(msgspec.Struct):
    """What the JSON file of version 0.3.0 says."""

    name: str
    content: str
    digest: str


@dataclass(frozen=True)
class KnownKeys:
    """The name and the first content id of a task, and a row for each pair.

    Of what version 0.3.0 wrote, only the keys are known.
    """

    name: str
    content: str
    table: pa.Table

    @classmethod
    def of(cls, task: Task) -> KnownKeys:
        """The pairs of all splits of a task."""
        tables = []
        for name in task.manifest.splits:
            table = task.split(name).table
            table = table.drop_columns(_OF_IMAGES)
            tables.append(table.append_column(SPLIT, pa.array([name] * len(table), pa.string())))
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
            about = {"schema": SCHEMA, "name": self.name, "content": self.content}
            write_about(writer, METADATA, about)


def read_known(path: Path) -> KnownKeys:
    """What a file has; `path` may be the JSON file of version 0.3.0.

    Raises BadInput if it cannot be read, or has changed since it was written.
    """
    if path.suffix == ".json":
        return _read_0_3(path)
    stored, _ = read_about(path, METADATA)
    if stored is None:
        raise BadInput(f"{path} has no known keys")
    about = decoded(msgspec.json.Decoder(_About), stored, path)
    if about.schema != SCHEMA:
        raise BadInput(f"{path} has schema {about.schema!r:.80}; this version reads {SCHEMA}")
    table = read_columns(path, page_checksum_verification=True)
    return KnownKeys(about.name, about.content, table)


def _read_0_3(path: Path) -> KnownKeys:
    found = read_json_object(path)
    if found.get("schema") != _SCHEMA_0_3:
        raise BadInput(
            f"{path} has schema {found.get('schema')!r:.80}; this version reads {_SCHEMA_0_3}"
        )
    check_seal(path, found)
    about, keys = converted(found, _About03, path), path.with_name(FILES_0_3[0])
    try:
        raw = np.load(keys, allow_pickle=False)
        is_same = cached_digest(keys) == about.digest
    except (OSError, ValueError) as error:
        raise BadInput(unreadable(keys, error)) from error
    if not is_same or raw.dtype != np.uint8 or raw.shape != (len(raw), KEY_BYTES):
        raise BadInput(f"{keys} has changed since it was written ({ALGORITHM}){RESTORE}")
    texts = {name: pa.nulls(len(raw), pa.string()) for name in (*_FACTS, SPLIT)}
    table = pa.table({**texts, "key": pa.array(list(Keys(raw)), pa.string())})
    return KnownKeys(about.name, about.content, table)


def is_known_keys(path: Path) -> bool:
    """Whether a file has known keys."""
    try:
        if path.suffix == ".json":
            return read_json_object(path).get("schema") == _SCHEMA_0_3
        return read_about(path, METADATA)[0] is not None
    except BadInput:
        return False

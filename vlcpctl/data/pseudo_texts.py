"""The file of pseudo texts: a Parquet row for each, and what they were made from in its metadata.

A row holds the token embeddings in half precision, token after token. A row group is what was made
of one mini-batch of the memory. The same texts make the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.core.atomic import new_file, new_part
from vlcpctl.core.errors import BadInput
from vlcpctl.core.hashing import content_id

SCHEMA = "vlcpctl.pseudo-texts/1"
METADATA = b"vlcpctl.pseudo-texts"

PARENTS = ("first", "second")
# What a text reached when it was mixed, and when it was done.
REACHED = tuple(
    name + when for name in ("loss", "similarity", "within") for when in ("_before", "")
)

_IDENTIFIED = (*PARENTS, "end", "embeddings")  # what a text is; the rest tells how it went

Columns = Mapping[str, np.ndarray | Sequence[str]]


@dataclass(frozen=True)
class PseudoFile:
    """A file of pseudo texts; nothing but its footer is read until rows are asked for."""

    path: Path
    metadata: dict[str, Any]
    count: int

    @property
    def content(self) -> str:
        """The id of its data."""
        return str(self.metadata["content"])

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that made it."""
        identity: dict[str, Any] = self.metadata["identity"]
        return identity

    @property
    def shape(self) -> tuple[int, int]:
        """L tokens, and W channels of each."""
        return int(self.metadata["length"]), int(self.metadata["width"])

    @cached_property
    def embeddings(self) -> np.ndarray:
        """(N, L, W) in half precision; all of them are held in memory."""
        return _embeddings(self._table, self.shape)

    @cached_property
    def ends(self) -> np.ndarray:
        """(N,) places of the end-of-text tokens."""
        return np.asarray(self.column("end"), dtype=np.int64)

    def column(self, name: str) -> np.ndarray:
        """Any column but the embeddings."""
        values: np.ndarray = self._table[name].to_numpy()
        return values

    def computed_content(self) -> str:
        """The id of the data that is there; another one than `content` is damage."""
        content = _Content(self.shape, self.identity)
        content.add(self._table)
        return content.id()

    @cached_property
    def _table(self) -> pa.Table:
        return _read(self.path, self.shape)


def write_part(path: Path, columns: Columns) -> None:
    """Write some rows, the columns by name; `embeddings` is (n, L, W)."""
    embeddings = np.asarray(columns["embeddings"], dtype=np.float16)
    _, length, width = embeddings.shape
    flat = pa.array(embeddings.reshape(-1))
    lists = pa.FixedSizeListArray.from_arrays(flat, length * width)
    schema = _schema((length, width))
    arrays = [
        lists if field.name == "embeddings" else pa.array(columns[field.name], field.type)
        for field in schema
    ]
    with new_part(path) as temporary:
        pq.write_table(pa.table(arrays, schema=schema), temporary, compression="zstd")


def join_parts(out: Path, parts: Iterable[Path], facts: dict[str, Any]) -> None:
    """Write the file that the parts make; its metadata is `facts` and the id of it all."""
    shape = (int(facts["length"]), int(facts["width"]))
    content = _Content(shape, facts["identity"])
    with (
        new_file(out, holds_pseudo_texts) as temporary,
        pq.ParquetWriter(
            temporary, _schema(shape), compression="zstd", write_page_checksum=True
        ) as writer,
    ):
        for part in parts:
            table = _read(part, shape)
            content.add(table)
            writer.write_table(table)
        metadata = {"schema": SCHEMA, "content": content.id(), **facts}
        writer.add_key_value_metadata({METADATA: json.dumps(metadata, ensure_ascii=False)})


def open_pseudo_texts(path: Path) -> PseudoFile:
    """Open a file by its footer; an error that names it when it is something else."""
    try:
        found = pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"{path} is no file of pseudo texts: {reason}") from error
    stored = (found.metadata or {}).get(METADATA)
    if stored is None:
        raise BadInput(f"{path} is no file of pseudo texts; make one with 'vlcpctl invert-texts'")
    metadata: dict[str, Any] = json.loads(stored)
    if metadata.get("schema") != SCHEMA:
        raise BadInput(f"{path} has schema {metadata.get('schema')!r}; this version reads {SCHEMA}")
    return PseudoFile(path, metadata, found.num_rows)


def holds_pseudo_texts(path: Path) -> bool:
    """Whether a file is one of pseudo texts, which `--force` may replace."""
    try:
        open_pseudo_texts(path)
    except BadInput:
        return False
    return True


class _Content:
    """The id of the rows with the settings that made them, built part by part."""

    def __init__(self, shape: tuple[int, int], identity: dict[str, Any]) -> None:
        self._shape, self._identity = shape, identity
        self._digests = {name: hashlib.blake2b(digest_size=16) for name in _IDENTIFIED}

    def add(self, table: pa.Table) -> None:
        """Count the next rows in."""
        for name in PARENTS:
            self._digests[name].update(
                "".join(f"{key}\n" for key in table[name].to_pylist()).encode()
            )
        self._digests["end"].update(table["end"].to_numpy().tobytes())
        self._digests["embeddings"].update(_embeddings(table, self._shape).tobytes())

    def id(self) -> str:
        """Of the rows so far."""
        rows = {name: digest.hexdigest() for name, digest in self._digests.items()}
        return content_id({"identity": self._identity, "rows": rows})


def _schema(shape: tuple[int, int]) -> pa.Schema:
    length, width = shape
    return pa.schema(
        [
            *(pa.field(name, pa.string(), nullable=False) for name in PARENTS),
            pa.field("share", pa.float32(), nullable=False),
            pa.field("end", pa.int32(), nullable=False),
            *(pa.field(name, pa.float32(), nullable=False) for name in REACHED),
            pa.field("embeddings", pa.list_(pa.float16(), length * width), nullable=False),
        ]
    )


def _read(path: Path, shape: tuple[int, int]) -> pa.Table:
    """Every row, with the columns that there must be."""
    schema = _schema(shape)
    try:
        return pq.read_table(path, columns=schema.names).cast(schema)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadInput(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def _embeddings(table: pa.Table, shape: tuple[int, int]) -> np.ndarray:
    values: np.ndarray = table["embeddings"].combine_chunks().flatten().to_numpy()
    return values.reshape(-1, *shape)

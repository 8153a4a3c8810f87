"""Files of pseudo texts (IncCLIP, Yan et al., 2022): Parquet, one row per text.

A row has the text's token embeddings, flattened, in half precision. A row group contains the texts
generated from one mini-batch of the memory. The file's metadata records what they were generated
from. The same texts give the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from vlcpctl.core.errors import BadInput
from vlcpctl.files.digests import RESTORE
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import converted, decoded, reading
from vlcpctl.files.outputs import new_file
from vlcpctl.files.parquet_files import read_about, read_columns, table_writer, write_about

SCHEMA = "vlcpctl.pseudo-texts/1"
METADATA = b"vlcpctl.pseudo-texts"

PARENTS = ("first", "second")
# Measures of a text's fit to its images, right after mixing (_before) and after optimisation.
SCORES = tuple(name + when for name in ("loss", "similarity", "within") for when in ("_before", ""))

_MOST_NUMBERS = 2**26  # of one text
_MOST_COMPRESSED = 1000  # numbers per byte of a file; zeros are compressed less

_HASHED = (*PARENTS, "end", "embeddings")  # the columns hashed; the others are diagnostics


@dataclass(frozen=True)
class _Identity:
    """What readers need of the settings that texts were generated with."""

    checkpoint: str
    buffer: str
    count: int


@dataclass(frozen=True)
class _Metadata:
    """What readers need of the metadata."""

    content: str
    length: Annotated[int, msgspec.Meta(ge=1)]
    width: Annotated[int, msgspec.Meta(ge=1)]
    identity: _Identity


Columns = Mapping[str, np.ndarray | Sequence[str]]


@dataclass(frozen=True)
class PseudoTextFile:
    """A file of N pseudo texts; only its footer is read until rows are used."""

    path: Path
    metadata: dict[str, Any]
    count: int  # N

    @property
    def content(self) -> str:
        """The content id recorded in the file."""
        return str(self.metadata["content"])

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that the texts were generated with."""
        identity: dict[str, Any] = self.metadata["identity"]
        return identity

    @property
    def shape(self) -> tuple[int, int]:
        """(L, W): the number of tokens of a text, and the channels of a token embedding."""
        return int(self.metadata["length"]), int(self.metadata["width"])

    @cached_property
    def embeddings(self) -> np.ndarray:
        """(N, L, W) float16: the token embeddings of all texts, held in memory."""
        return _embeddings(self._table, self.shape)

    @cached_property
    def ends(self) -> np.ndarray:
        """(N,) int64: the position of each text's end-of-text token."""
        return np.asarray(self.column("end"), dtype=np.int64)

    def column(self, name: str) -> np.ndarray:
        """(N,) the values of any column except the embeddings."""
        values: np.ndarray = self._table[name].to_numpy()
        return values

    def column_of_texts(self, name: str) -> pa.ChunkedArray:
        """The column of the first or second parents' keys, read without the embeddings."""
        return read_columns(self.path, [name])[name].cast(pa.string())

    def computed_content(self) -> str:
        """The content id computed from the rows; if it differs from `content`, they are damaged."""
        content = _Content(self.shape, self.identity)
        content.add(self._table)
        return content.id()

    def verify(self) -> None:
        """Read the rows; raises BadInput if they were changed since they were written."""
        if self.computed_content() != self.content:
            raise BadInput(
                f"{self.path} has changed since it was written: its content id differs{RESTORE}"
            )

    @cached_property
    def _table(self) -> pa.Table:
        return _read(self.path, self.shape)


def write_pseudo_texts(
    out: Path, batches: Iterable[Columns], shape: tuple[int, int], identity: dict[str, Any]
) -> None:
    """Write a file of pseudo texts of this shape (L, W), with a content id, made with `identity`.

    A batch maps names to (n,) values, and "embeddings" to (n, L, W); those are stored as float16.
    """
    length, width = shape
    content, schema = _Content(shape, identity), _schema(shape)
    with (
        new_file(out, holds_pseudo_texts) as temporary,
        table_writer(temporary, schema) as writer,
    ):
        for columns in batches:
            flat = pa.array(np.asarray(columns["embeddings"], dtype=np.float16).reshape(-1))
            lists = pa.FixedSizeListArray.from_arrays(flat, length * width)
            arrays = [
                lists if field.name == "embeddings" else pa.array(columns[field.name], field.type)
                for field in schema
            ]
            table = pa.table(arrays, schema=schema)
            content.add(table)
            writer.write_table(table)
        facts = {"length": length, "width": width, "identity": identity}
        write_about(writer, METADATA, {"schema": SCHEMA, "content": content.id(), **facts})


def open_pseudo_texts(path: Path) -> PseudoTextFile:
    """Open a file of pseudo texts, reading only its footer. Raises BadInput if it is not one."""
    stored, count = read_about(path, METADATA, f"{path} is not a file of pseudo texts")
    if stored is None:
        raise BadInput(
            f"{path} is not a file of pseudo texts; make one with 'vlcpctl invert-texts'"
        )
    place = f"{path}, metadata"
    metadata = decoded(msgspec.json.Decoder(dict[str, Any]), stored, place)
    if metadata.get("schema") != SCHEMA:
        found = metadata.get("schema")
        raise BadInput(f"{path} has schema {found!r:.80}; this version reads {SCHEMA}")
    facts = converted(metadata, _Metadata, place)
    numbers = facts.length * facts.width
    if numbers > _MOST_NUMBERS or count * numbers > _MOST_COMPRESSED * path.stat().st_size:
        raise BadInput(
            f"{path} cannot contain {count} texts of {facts.length} x {facts.width} numbers: it is "
            f"damaged{RESTORE}"
        )
    return PseudoTextFile(path, metadata, count)


def holds_pseudo_texts(path: Path) -> bool:
    """Whether a file is one of pseudo texts, which `--force` may replace."""
    try:
        open_pseudo_texts(path)
    except BadInput:
        return False
    return True


class _Content:
    """The content id of rows and the settings that made them, computed incrementally."""

    def __init__(self, shape: tuple[int, int], identity: dict[str, Any]) -> None:
        self._shape, self._identity = shape, identity
        self._digests = {name: hashlib.blake2b(digest_size=16) for name in _HASHED}

    def add(self, table: pa.Table) -> None:
        """Hash the next rows."""
        for name in PARENTS:
            self._digests[name].update(
                "".join(f"{key}\n" for key in table[name].to_pylist()).encode()
            )
        self._digests["end"].update(table["end"].to_numpy().tobytes())
        self._digests["embeddings"].update(_embeddings(table, self._shape).tobytes())

    def id(self) -> str:
        """The content id of the rows added so far."""
        rows = {name: digest.hexdigest() for name, digest in self._digests.items()}
        return content_id({"identity": self._identity, "rows": rows})


def _schema(shape: tuple[int, int]) -> pa.Schema:
    length, width = shape
    return pa.schema(
        [
            *(pa.field(name, pa.string(), nullable=False) for name in PARENTS),
            pa.field("share", pa.float32(), nullable=False),
            pa.field("end", pa.int32(), nullable=False),
            *(pa.field(name, pa.float32(), nullable=False) for name in SCORES),
            pa.field("embeddings", pa.list_(pa.float16(), length * width), nullable=False),
        ]
    )


def _read(path: Path, shape: tuple[int, int]) -> pa.Table:
    """All rows, with the columns of the schema. Raises BadInput if they cannot be read."""
    schema = _schema(shape)
    table = read_columns(path, schema.names)
    with reading(path):
        return table.cast(schema)


def _embeddings(table: pa.Table, shape: tuple[int, int]) -> np.ndarray:
    values: np.ndarray = table["embeddings"].combine_chunks().flatten().to_numpy()
    return values.reshape(-1, *shape)


def check_pseudo_texts(path: Path, *, deep: bool) -> Iterator[str]:
    """Yield a line for each problem of the file; `deep` reads its rows.

    Raises BadInput if the file is not one of pseudo texts or cannot be read.
    """
    file = open_pseudo_texts(path)
    # Version 0.3.0 wrote files again without some of the texts.
    written = file.identity["count"] - file.metadata.get("removed", 0)
    if file.count != written:
        yield f"{path}: has {file.count} texts; its metadata says {written}"
    if not deep:
        return
    if file.computed_content() != file.content:
        yield f"{path} has changed since it was written: its content id differs"
    length, _ = file.shape
    if not ((file.ends >= 0) & (file.ends < length)).all():
        yield f"{path}: a text ends outside its {length} tokens"
    if not np.isfinite(file.embeddings).all():
        yield f"{path}: contains non-finite embeddings"

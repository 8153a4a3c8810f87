"""Pseudo texts (IncCLIP, Yan et al., 2022), generated from the pairs of a buffer.

embeddings.npy     token embeddings of each text, flattened, (N, L * W) float16
texts.parquet      for each text its parents' keys, their share, the position of its end-of-text
                   token, and how it fits its images
pseudo-texts.json  the model and the buffer that they were generated from, and how

The same texts give the same bytes. Shapes: N texts of L tokens, W channels of a token embedding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from vlcpctl.data.precomputed.store import Store, VectorFile, digest_of, write_vectors
from vlcpctl.files.digests import RESTORE, digests_of, verify_files
from vlcpctl.files.ids import content_id
from vlcpctl.files.manifest import is_artifact, read_manifest, write_manifest
from vlcpctl.files.outputs import new_directory

KIND = "pseudo-texts"
PARENTS = ("first", "second")
# Measures of a text's fit to its images, right after mixing (_before) and after optimisation.
SCORES = tuple(name + when for name in ("loss", "similarity", "within") for when in ("_before", ""))
EMBEDDINGS, TEXTS = "embeddings.npy", "texts.parquet"
_COLUMNS = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in PARENTS),
        pa.field("share", pa.float32(), nullable=False),
        pa.field("end", pa.int32(), nullable=False),
        *(pa.field(name, pa.float32(), nullable=False) for name in SCORES),
    ]
)

Columns = Mapping[str, np.ndarray | Sequence[str]]


@dataclass(frozen=True)
class PseudoTexts:
    """A directory of N pseudo texts; their embeddings are read when they are used."""

    path: Path
    manifest: dict[str, Any]

    def __len__(self) -> int:
        return int(self.manifest["texts"])

    @property
    def content(self) -> str:
        """The content id of the texts."""
        return str(self.manifest["content"])

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that the texts were generated with."""
        identity: dict[str, Any] = self.manifest["identity"]
        return identity

    @property
    def shape(self) -> tuple[int, int]:
        """(L, W): the number of tokens of a text, and the channels of a token embedding."""
        return int(self.manifest["length"]), int(self.manifest["width"])

    def embeddings(self, rows: np.ndarray) -> np.ndarray:
        """(n, L, W) float16: the token embeddings of the texts at these rows, (n,) int."""
        return self._vectors[rows].reshape(-1, *self.shape)

    @cached_property
    def ends(self) -> np.ndarray:
        """(N,) int64: the position of each text's end-of-text token."""
        return self.column("end").astype(np.int64)

    def column(self, name: str) -> np.ndarray:
        """(N,) the values of a column of the table. Raises BadInput if they cannot be read."""
        values: np.ndarray = self._store.rows([name])[name].to_numpy()
        return values

    def verify(self) -> None:
        """Raise BadInput if a file was changed since it was written."""
        verify_files(self.path, self.manifest["digests"], advice=RESTORE)

    @cached_property
    def _vectors(self) -> VectorFile:
        return self._store.vectors(EMBEDDINGS)

    @property
    def _store(self) -> Store:
        return _store(self.path)


def write_pseudo_texts(
    out: Path, batches: Iterable[Columns], shape: tuple[int, int], identity: dict[str, Any]
) -> None:
    """Write a directory of pseudo texts of this shape (L, W), made with `identity`.

    A batch maps names to (n,) values, and "embeddings" to (n, L, W); those are stored as float16.
    """
    (length, width), tables = shape, [_COLUMNS.empty_table()]

    def blocks() -> Iterator[np.ndarray]:
        for columns in batches:
            arrays = [pa.array(columns[field.name], field.type) for field in _COLUMNS]
            tables.append(pa.table(arrays, schema=_COLUMNS))
            found = np.asarray(columns["embeddings"], dtype=np.float16)
            yield found.reshape(len(found), length * width)

    with new_directory(out, is_artifact) as directory:
        rows = identity["count"], length * width
        write_vectors(directory / EMBEDDINGS, blocks(), rows, np.float16)
        table = pa.concat_tables(tables)
        _store(directory).write(table, {}, length * width)
        digests = digests_of(directory)
        made = {"identity": identity, "rows": digest_of(table), EMBEDDINGS: digests[EMBEDDINGS]}
        facts = {"length": length, "width": width, "texts": len(table), "digests": digests}
        write_manifest(directory, KIND, identity, content_id(made), facts)


def open_pseudo_texts(path: Path) -> PseudoTexts:
    """Open a directory of pseudo texts, reading only its manifest. Raises BadInput without one."""
    return PseudoTexts(path, read_manifest(path, KIND))


def _store(directory: Path) -> Store:
    return Store(directory, TEXTS, {EMBEDDINGS: 1}, np.float16, _COLUMNS, PARENTS[0])

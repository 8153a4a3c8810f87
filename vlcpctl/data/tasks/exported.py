"""The pairs in an exported directory: a Parquet file beside its manifest, so that they are found.

Both are in `.vlcpctl/` of the directory, where loaders of other programs do not look.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.core.digests import FileDigest, verify_files
from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.core.input_files import arrow_source
from vlcpctl.core.manifest import MANIFESTS, Manifest
from vlcpctl.core.recorded_files import RESTORE
from vlcpctl.core.seals import read_sealed

KIND = "export"
MANIFEST = MANIFESTS[KIND]
PAIRS = ".vlcpctl/pairs.parquet"
CARD = "README.md"  # of some forms; no change of it is damage, since people fill it in
CARD_DIGEST = "card"  # the field with its digest, by which `forget` sees that it was filled in

SPLIT = "exported_split"  # not "split": a source may have a column of that name
COLUMNS = ("key", SPLIT, "source_key", "label", "task", "sha256")
_GROUP_ROWS = 1 << 14  # of a row group, on which the digest of the file depends
_ROWS_AT_ONCE = 1 << 10  # held as Python objects, which take ten times the memory of Arrow's


@dataclass(frozen=True, kw_only=True)
class ExportedSplit:
    """How much of a split was exported."""

    images: int
    """Number of images."""
    captions: int
    """Number of captions."""


@dataclass(frozen=True, kw_only=True)
class ExportManifest(Manifest):
    """A data set or a model for other programs, made by `export`."""

    to: str
    """Its form: `clip-benchmark`, `img2dataset`, `hf`, `imagefolder`, `hf-model` or `onnx`."""
    inputs: tuple[str, ...]
    """Content ids of the tasks, or of the checkpoint."""
    splits: dict[str, ExportedSplit] = field(default_factory=dict)
    """What was exported of each split. Only of a data set."""
    run: str | None = None
    """Name of the run. Only of a model."""
    method: str | None = None
    """Name of the method. Only of a model."""
    step: int | None = None
    """Step of the last task in the run. Only of a model."""
    seed: int | None = None
    """Seed of the run. Only of a model."""
    tasks: tuple[str, ...] = ()
    """Content ids of the tasks that it was trained on. Only of a model."""
    card: FileDigest | None = None
    """Size and digest of `README.md` as it was written. Only of a data set."""
    digests: dict[str, FileDigest]
    """Size and digest of every file but `README.md`, which people fill in."""


class PairsWriter:
    """Writes one row for each exported image, with at most some rows in memory."""

    def __init__(self, directory: Path, kept: Sequence[str]) -> None:
        texts = [pa.field(name, pa.string()) for name in COLUMNS]
        lists = [pa.field(name, pa.list_(pa.string())) for name in kept]
        self._schema = pa.schema([*texts, *lists])
        (directory / PAIRS).parent.mkdir(parents=True, exist_ok=True)
        self._file = ParquetFile(directory / PAIRS, self._schema)
        self._rows: list[Mapping[str, Any]] = []
        self._group: list[pa.Table] = []  # the earlier rows of the row group

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row: its values by column."""
        self._rows.append(row)
        if len(self._rows) >= _ROWS_AT_ONCE:
            self._convert()
            if len(self._group) * _ROWS_AT_ONCE >= _GROUP_ROWS:
                self._flush()

    def close(self) -> None:
        """Write the remaining rows and the footer."""
        self._convert()
        self._flush()
        self._file.close()

    def abandon(self) -> None:
        """Close the file after an error; what it contains does not matter."""
        self._file.abandon()

    def _convert(self) -> None:
        self._group.append(pa.Table.from_pylist(self._rows, self._schema))
        self._rows = []

    def _flush(self) -> None:
        self._file.write(pa.concat_tables(self._group).combine_chunks())
        self._group = []


class ParquetFile:
    """A Parquet file to write, which is closed whatever becomes of it.

    pyarrow's own writer leaves a file open if its first bytes do not fit on the disk.
    """

    def __init__(self, path: Path, schema: pa.Schema, **options: Any) -> None:
        self._file = pa.OSFile(str(path), "wb")
        try:
            self._writer = pq.ParquetWriter(self._file, schema, **options)
        except BaseException:
            self._close_file()
            raise

    def write(self, table: pa.Table) -> None:
        """Append a row group."""
        self._writer.write_table(table)

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()
        self._file.close()

    def abandon(self) -> None:
        """Close the file after an error; what it contains does not matter. Raises nothing."""
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._writer.is_open = False  # its destructor would try again
        self._close_file()

    def _close_file(self) -> None:
        with suppress(OSError, pa.ArrowException):
            self._file.close()


def exported_pairs(directory: Path) -> pa.Table | None:
    """The pairs of an exported directory, one row for each image; None if it is a model.

    Raises BadInput if the manifest or the file cannot be read, or have changed.
    """
    recorded = read_sealed(directory, KIND, ExportManifest).digests
    if PAIRS not in recorded:
        return None
    verify_files(directory, {PAIRS: recorded[PAIRS]}, advice=RESTORE)
    try:
        return pq.read_table(arrow_source(directory / PAIRS))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadInput(unreadable(directory / PAIRS, error)) from error


def exported_counts(directory: Path, keys: Collection[str]) -> dict[str, dict[str, int]]:
    """How many images of each split have one of the keys, by key and split.

    Raises BadInput as `exported_pairs` does.
    """
    table = exported_pairs(directory)
    found: dict[str, dict[str, int]] = {}
    columns = () if table is None else (table["key"].to_pylist(), table[SPLIT].to_pylist())
    for key, split in zip(*columns, strict=True) if columns else ():
        if key in keys:
            counts = found.setdefault(key, {})
            counts[split] = counts.get(split, 0) + 1
    return found

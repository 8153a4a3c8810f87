"""Read pairs from data sets that the `datasets` library saved to disk (`save_to_disk`).

A directory has `state.json`, which names its files, `dataset_info.json`, and the files: each an
Arrow stream of record batches. The directory of a `DatasetDict` has `dataset_dict.json` and
one such directory per split. The library itself is not needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import shortened
from vlcpctl.data.sources.arrow import arrow_roles, names_files, pairs_of_batch, with_lists
from vlcpctl.data.sources.class_labels import class_names, named_schema, with_classes
from vlcpctl.data.sources.columns import ColumnOptions, Roles
from vlcpctl.data.sources.image_files import ImageFiles
from vlcpctl.data.sources.limits import BATCH_BYTES
from vlcpctl.data.sources.records import LISTS
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.files.inputs import open_regular, read_json_object, reading
from vlcpctl.files.stores import whole

_BATCH_BYTES = 8 * 2**20
_BATCH_ROWS = 500
_BATCH_PATHS = 64  # rows whose images may be files of their own, of unknown size
_SPLIT = "split"
_DICT, _STATE, _INFO = "dataset_dict.json", "state.json", "dataset_info.json"
_FILES = "_data_files"
# Fields of old versions for a data set that was shuffled or filtered, but not rewritten.
_INDICES = ("_indices_files", "_indices_data_files")
_END = b"\xff\xff\xff\xff\0\0\0\0"  # of a stream


def saved_files(directory: Path) -> list[ArrowFile] | None:
    """The files of a data set saved in this directory, or None if there is none.

    Raises BadInput if its description is malformed or names files that are not there.
    """
    if (directory / _DICT).is_file():
        names = read_json_object(directory / _DICT).get("splits")
        splits = _plain_names(directory / _DICT, names)
        files = [file for name in splits for file in _files_of_split(directory / name, name)]
    elif (directory / _STATE).is_file() and (directory / _INFO).is_file():
        files = _files_of_split(directory, None)
    else:
        return None
    if not files:
        raise BadInput(f"{directory} has no rows: it was saved without data files")
    return files


def _files_of_split(directory: Path, split: str | None) -> list[ArrowFile]:
    if not (directory / _STATE).is_file():
        raise BadInput(
            f"{directory} has no {_STATE}: save_to_disk has not finished; save the data set again"
        )
    state = read_json_object(directory / _STATE)
    if any(state.get(name) for name in _INDICES):
        raise BadInput(
            f"{directory} was saved by an old version of datasets, with an order of rows apart "
            "from the data; load it with datasets and save it again"
        )
    listed = state.get(_FILES)
    files = listed if isinstance(listed, list) else [None]
    names = [file.get("filename") if isinstance(file, dict) else None for file in files]
    own = state.get("_split")
    split = split or (own if isinstance(own, str) else None)
    found = [ArrowFile(directory / name, split) for name in _plain_names(directory / _STATE, names)]
    for file in found:
        if not file.path.exists():
            raise BadInput(f"{file.path} does not exist, but {_STATE} beside it lists it")
    return found


def _plain_names(path: Path, names: object) -> list[str]:
    """The names of files or directories beside `path`. Raises BadInput for anything else."""
    found: list[str] = []
    for name in names if isinstance(names, list) else [names]:
        if not isinstance(name, str) or name in ("", ".", "..") or {"/", "\0"} & set(name):
            raise BadInput(f"{path} is malformed: {shortened(repr(name))} is not a name beside it")
        found.append(name)
    return found


@dataclass(frozen=True)
class ArrowFile:
    """One file of a saved data set: an Arrow stream, with the split of its directory, if any."""

    path: Path
    split: str | None = None

    def rows(self) -> int:
        """The number of rows, from the headers of the batches. Raises BadInput if damaged."""
        with self._stream() as stream:
            return sum(batch.num_rows for batch in stream.batches())

    def check_columns(self, columns: ColumnOptions) -> None:
        """Raise BadInput if a column is missing or has the wrong type; print what it holds."""
        with self._stream() as stream:
            roles = self._roles(stream, columns, images=True)
        if self._with_lists(roles).lists:
            say(LISTS.format(path=self.path))

    def names_files(self, columns: ColumnOptions) -> bool:
        """Whether some images may be given by path."""
        with self._stream() as stream:
            return names_files(stream.schema, self._roles(stream, columns, images=True))

    def pairs(self, columns: ColumnOptions, *, images: bool = True) -> Iterator[list[Pair]]:
        """The rows in order, in batches; with `images=False`, image files are not read.

        Raises BadInput if the file is damaged.
        """
        files = ImageFiles(columns.image_roots or (self.path.parent,), columns.log)
        with self._stream() as stream:
            roles = self._with_lists(self._roles(stream, columns, images=images))
            most = _BATCH_PATHS if names_files(stream.schema, roles) else _BATCH_ROWS
            row = 0
            for batch in stream.checked(roles.names()):
                for piece in self._pieces(batch, roles, most):
                    yield pairs_of_batch(self.path, piece, roles, files, row, self.split)
                    row += piece.num_rows

    def _roles(self, stream: _Stream, columns: ColumnOptions, *, images: bool) -> Roles:
        schema = stream.schema
        if columns.split == _SPLIT and _SPLIT not in schema.names and self.split is not None:
            columns = replace(columns, split=None)  # the directory's name is the split
        return arrow_roles(self.path, schema, columns, images=images)

    def _with_lists(self, roles: Roles) -> Roles:
        if roles.caption is None:
            return roles
        with self._stream() as stream:
            return with_lists(roles, next(stream.checked([roles.caption]), None))

    def _pieces(self, batch: pa.RecordBatch, roles: Roles, most: int) -> Iterator[pa.RecordBatch]:
        """Slices of a batch of any size, which share its memory."""
        rows = batch.num_rows
        is_large = batch.nbytes > _BATCH_BYTES
        if rows > 1 and (is_large or rows > most):
            yield from self._pieces(batch.slice(0, rows // 2), roles, most)
            yield from self._pieces(batch.slice(rows // 2), roles, most)
            return
        texts = [name for name in batch.schema.names if name != roles.image]
        if is_large and (size := batch.select(texts).nbytes) > BATCH_BYTES:
            raise BadInput(f"{self.path} has a row with {size} bytes besides its image")
        if rows:
            yield batch

    @contextmanager
    def _stream(self) -> Iterator[_Stream]:
        """The stream, mapped into memory, so that a batch of any size takes none until it is used.

        Raises BadInput if the file is not an Arrow stream or is truncated.
        """
        with open_regular(self.path) as file:  # refuses what would block
            file.seek(-min(len(_END), os.fstat(file.fileno()).st_size), os.SEEK_END)
            end = file.read()
        if end == b"ARROW1" or end.endswith(b"ARROW1"):
            raise BadInput(
                f"{self.path} is an Arrow file for random access, not the stream that datasets "
                "writes; convert it to Parquet"
            )
        if end != _END:
            raise BadInput(
                f"{self.path} has no end-of-stream mark: it is truncated or not an Arrow stream"
            )
        with reading(self.path), pa.memory_map(str(whole(self.path))) as source:
            yield _Stream(self.path, source)


class _Stream:
    """The batches of a mapped Arrow stream."""

    def __init__(self, path: Path, source: pa.MemoryMappedFile) -> None:
        self._path, self._source = path, source
        self._reader = pa.ipc.open_stream(source)
        schema = self._reader.schema
        "".join(schema.names).encode()  # decodes the names, which may not be UTF-8
        self._classes = class_names(path, schema)
        self.schema = named_schema(schema, self._classes)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The record batches, whose values have not been checked."""
        row = 0
        while True:
            with self._reading(row):
                try:
                    batch = self._reader.read_next_batch()
                except StopIteration:
                    break
            yield batch
            row += batch.num_rows
        if self._source.tell() != self._source.size():
            raise BadInput(f"{self._path} is damaged after row {row}: it continues after its end")

    def checked(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        """The columns `names` of each batch, in which no offset points outside its buffer."""
        row = 0
        for batch in self.batches():
            with self._reading(row):
                part = batch.select(names)
                part.validate(full=True)
                part = with_classes(part, self._classes)
            yield part
            row += batch.num_rows

    def _reading(self, row: int) -> AbstractContextManager[None]:
        return reading(self._path, f"{self._path} is damaged after row {row}")

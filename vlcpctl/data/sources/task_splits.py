"""Read pairs from a task: with its index, in which their source keys and kept columns are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.data.sources.arrow import pairs_of_batch
from vlcpctl.data.sources.columns import ColumnOptions, Roles, pick
from vlcpctl.data.sources.image_files import ImageFiles
from vlcpctl.data.tasks.index import ROWS_PER_GROUP
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.data.tasks.task import open_task
from vlcpctl.files.inputs import arrow_source
from vlcpctl.files.manifest import MANIFESTS

_SPLIT = "split"


def splits_in(directory: Path) -> list[TaskSplit] | None:
    """The splits of the task in a directory, or None if there is no task.

    Raises BadInput if its manifest is damaged.
    """
    if not (directory / MANIFESTS["task"]).is_file():
        return None
    return [TaskSplit(directory, name) for name in open_task(directory).manifest.splits]


@dataclass(frozen=True)
class TaskSplit:
    """A split of a task, whose name is the column `split` of its pairs."""

    directory: Path
    name: str

    @property
    def path(self) -> Path:
        """The index of the split, which has the digest of every image."""
        return self.directory / f"{self.name}.parquet"

    def rows(self) -> int:
        """The number of images. Raises BadInput if the task is damaged."""
        return open_task(self.directory).manifest.splits[self.name].images

    def check_columns(self, columns: ColumnOptions) -> None:
        """Raise BadInput if a column is missing."""
        self._roles(columns, images=True)

    def names_files(self, columns: ColumnOptions) -> bool:
        """False: the images are in the task itself."""
        return False

    def pairs(self, columns: ColumnOptions, *, images: bool = True) -> Iterator[list[Pair]]:
        """The images in the order of the index, in batches; with `images=False` without them.

        Raises BadInput if the task is damaged.
        """
        roles = self._roles(columns, images=images)
        split = open_task(self.directory).split(self.name)
        row = 0
        with pq.ParquetFile(arrow_source(self.path), pre_buffer=False) as file:
            names = roles.names()
            for batch in file.iter_batches(ROWS_PER_GROUP, columns=names, use_threads=False):
                plain = _with_single_values(batch, (roles.value, roles.split))
                found = pairs_of_batch(self.path, plain, roles, ImageFiles(()), row, self.name)
                row += len(found)
                if images:
                    yield [pair._replace(image=split.image(int(pair.place))) for pair in found]
                else:
                    yield found

    def _roles(self, columns: ColumnOptions, *, images: bool) -> Roles:
        names = pq.read_schema(arrow_source(self.path)).names
        if columns.split == _SPLIT:
            columns = replace(columns, split=None)
        return Roles(
            image=None,
            caption=pick(self.path, names, columns.caption or "captions", ()) if images else None,
            label=pick(self.path, names, columns.label or "label", ()),
            value=pick(self.path, names, columns.value, ()),
            split=pick(self.path, names, columns.split, ()),
            key=pick(self.path, names, "source_key", ()) if images else None,
            keep=tuple(str(pick(self.path, names, one, ())) for one in columns.keep if images),
        )


def _with_single_values(batch: pa.RecordBatch, names: Sequence[str | None]) -> pa.RecordBatch:
    """The batch with texts in place of the lists of kept columns; null where there is not one."""
    for name in names:
        if name is not None and pa.types.is_list(batch.schema.field(name).type):
            values = [one[0] if len(one) == 1 else None for one in batch[name].to_pylist()]
            place = batch.schema.get_field_index(name)
            batch = batch.set_column(place, name, pa.array(values, pa.string()))
    return batch

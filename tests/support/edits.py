"""Edits of tasks and buffers as an editor, a failed copy or a stranger would make them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.core.errors import BadInput
from vlcpctl.data.tasks.facts import file_facts
from vlcpctl.data.tasks.index import index_batches, write_rows
from vlcpctl.files.manifest import seal_of

Edit = Callable[[Path], object]


def edit_json(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change the object in a JSON file in place."""
    value = json.loads(path.read_text())
    edit(value)
    path.write_text(json.dumps(value))


def reseal(path: Path) -> None:
    """Write the seal of a manifest anew, as if its fields had been written so."""
    edit_json(path, lambda value: value.update(seal=seal_of(value)))


def record_again(task: Path) -> Path:
    """Record the files of a task as they are now, as if they had been written so; its path.

    Files of rows are made from the indexes where these have rows that one can be made of.
    """

    def update(entries: dict[str, Any]) -> None:
        for name, listed in entries["splits"].items():
            index = task / f"{name}.parquet"
            with suppress(BadInput):
                write_rows(index)
                listed["images"] = sum(map(len, index_batches(index)))
            listed.update(file_facts(task, name, listed["shards"]))

    edit_json(task / "task.json", update)
    reseal(task / "task.json")
    return task


def manifest(**fields: object) -> Edit:
    """The edit that sets fields of task.json."""
    return lambda task: edit_json(task / "task.json", lambda value: value.update(fields))


def split(**fields: object) -> Edit:
    """The edit that sets fields of the train split in task.json."""
    return lambda task: edit_json(
        task / "task.json", lambda value: value["splits"]["train"].update(fields)
    )


def rows(change: Callable[[list[dict[str, Any]]], Any]) -> Edit:
    """The edit that replaces the rows of the train index by what `change` returns."""

    def edit(task: Path) -> None:
        path = task / "train.parquet"
        table = pq.read_table(path)
        changed = change(table.to_pylist())
        pq.write_table(pa.Table.from_pylist(changed, schema=table.schema), path)

    return edit


def column(name: str, value: object, row: int = 0) -> Edit:
    """The edit that sets one value of the train index."""

    def change(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found[row][name] = value
        return found

    return rows(change)


def swap(name: str) -> Edit:
    """The edit that swaps a column of the first two rows of the train index."""

    def change(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found[0][name], found[1][name] = found[1][name], found[0][name]
        return found

    return rows(change)


def _all_keys_equal(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "key": found[0]["key"]} for row in found]


# Nothing of these was noticed by training. The first two keep the size of the file.
INDEX_EDITS: dict[str, Edit] = {
    "captions swapped": swap("captions"),
    "keys swapped": swap("key"),
    "a caption edited": column("captions", ["another caption"]),
    "a label edited": column("label", "class-9"),
    "a key edited": column("key", "0" * 32),
    "all keys equal": rows(_all_keys_equal),
    "a row dropped": rows(lambda found: found[1:]),
    "a row duplicated": rows(lambda found: [*found, found[0]]),
    "rows reordered": rows(lambda found: found[::-1]),
    "no rows": rows(lambda found: []),
}
MANIFEST_EDITS: dict[str, Edit] = {
    "images lie": split(images=7),
    "captions lie": split(captions=1),
    "content edited": manifest(content="0" * 32),
    "content of the split edited": split(content="0" * 32),
    "name edited": manifest(name="other"),
    "labels edited": manifest(labels=["class-0", "class-1", "class-2", "class-9"]),
    "slug leaves the directory": manifest(slug="../../x"),
    "slug with an escape code": manifest(slug="\x1b[31m"),
    "slug of another task": manifest(slug="07-another"),
    "slug is a number": manifest(slug=3),
    "step is text": manifest(step="zwei"),
    "step is huge": manifest(step=10**9),
    "step is negative": manifest(step=-1),
    "step is true": manifest(step=True),
    "splits null": manifest(splits=None),
    "splits a list": manifest(splits=[1, 2]),
    "a split is a number": manifest(splits={"train": 3}),
    "an unknown split": manifest(splits={"../train": {}}),
    "shard outside": split(shards=["../x.tar"]),
    "shards are numbers": split(shards=[1]),
    "labels are numbers": manifest(labels=[1]),
}

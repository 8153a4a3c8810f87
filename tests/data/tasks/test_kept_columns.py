"""Kept columns of an index are verified like its own, and rewritten with further values."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.edits import Edit, column, manifest, record_again
from support.pair_files import rows, write_parquet

from vlcpctl.core.errors import BadInput
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream
from vlcpctl.data.tasks.index import SCHEMA, IndexWriter, schema_with
from vlcpctl.data.tasks.tars import with_more_values
from vlcpctl.data.tasks.task import open_task
from vlcpctl.inspection.check import check


def retyped(kind: pa.DataType) -> Edit:
    """The edit that stores the column of dates as another type."""

    def edit(task: Path) -> None:
        path = task / "train.parquet"
        table = pq.read_table(path)
        place = table.schema.get_field_index("date")
        dates = table["date"].combine_chunks()
        changed = dates.cast(kind) if pa.types.is_nested(kind) else pa.nulls(len(table), kind)
        pq.write_table(table.set_column(place, "date", changed), path)

    return edit


EDITS: dict[str, tuple[Edit, str]] = {
    "a null among the values": (column("date", ["x", None]), "a value of 'date' is null"),
    "not in the index": (manifest(kept_columns=["customer"]), "has no column 'customer'"),
    "another type": (retyped(pa.int64()), "column 'date' contains nulls"),
    "listed as a number": (manifest(kept_columns=[1]), ".kept_columns[0]`"),
    "listed twice": (manifest(kept_columns=["date", "date"]), "kept_columns has 'date' twice"),
    "the index's own": (manifest(kept_columns=["sha256"]), "or it is the index's own"),
}


def make(place: Path) -> Path:
    source = write_parquet(place / "p.parquet", rows(6))
    given = {"by": "source", "holdout": "none", "keep_columns": "date"}
    make_stream(SplitOptions(sources=[str(source)], **given), place / "out")
    return place / "out" / "00-p"


@pytest.mark.parametrize(("edit", "said"), EDITS.values(), ids=EDITS)
def test_kept_columns_that_cannot_be_are_named(tmp_path: Path, edit: Edit, said: str) -> None:
    task = make(tmp_path)
    assert not list(check(task, deep=True))
    edit(task)
    record_again(task)
    with pytest.raises(BadInput) as refused:
        _ = open_task(task).split("train").table
    assert said in str(refused.value)
    try:
        problems = list(check(task, deep=False))
    except BadInput as error:
        problems = [str(error)]
    assert any(said in problem for problem in problems)


def test_an_equivalent_type_of_another_program_is_read(tmp_path: Path) -> None:
    task = make(tmp_path)
    before = open_task(task).split("train").table["date"]
    retyped(pa.large_list(pa.large_string()))(task)
    assert open_task(record_again(task)).split("train").table["date"] == before


def test_a_rewritten_index_has_the_bytes_of_one_written_at_once(tmp_path: Path) -> None:
    def key(number: int) -> str:
        return f"{number:032x}"

    def write(name: str, kept: list[tuple[str, ...]]) -> IndexWriter:
        writer = IndexWriter(tmp_path / name, schema_with(["customer"]))
        for number, values in enumerate(kept):
            own = (key(number), None, "t", number, 1, ["c"], None, "task", 1, 1, "ab" * 32)
            writer.extend([(*own, values)])
        writer.close()
        return writer

    first = write("a.parquet", [(), ("x",)] * 3000)
    more = {key(0): (("b", "a"),), key(5999): (("a", "x"),)}
    changed = with_more_values(first, lambda keys: {key: more[key] for key in keys if key in more})
    whole = write("b.parquet", [("a", "b"), *[("x",), ()] * 2999, ("a", "x")])
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert changed.content.hexdigest() == whole.content.hexdigest()
    assert (first.lacking, changed.lacking) == ({"customer": 3000}, {"customer": 2999})
    assert (tmp_path / "a.arrow").read_bytes() == (tmp_path / "b.arrow").read_bytes()
    names = ["a.arrow", "a.parquet", "b.arrow", "b.parquet"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.schema.names == [*SCHEMA.names, "customer"]

"""Buffers carry the columns that their tasks keep from the sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.pair_files import rows, write_parquet

from vlcpctl.core.errors import OutputExists
from vlcpctl.data.buffer.policies import BufferSize
from vlcpctl.data.buffer.request import BufferRequest
from vlcpctl.data.buffer.update import open_buffer, plan_update, write_buffer
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream
from vlcpctl.data.tasks.index import BUFFER_SCHEMA
from vlcpctl.data.tasks.task import Task, open_stream
from vlcpctl.files.finished import already_made
from vlcpctl.inspection.check import check


def week(place: Path, pairs: list[dict[str, Any]], keep: str | None) -> Task:
    source = write_parquet(place.with_suffix(".parquet"), pairs)
    given = {"by": "source", "holdout": "none", "keep_columns": keep}
    make_stream(SplitOptions(sources=[str(source)], **given), place)
    return open_stream(place)[0]


def request(task: Task, previous: Task | None = None, size: int = 100) -> BufferRequest:
    wanted = BufferSize(count=size, text=str(size))
    return BufferRequest(task=task, previous=previous, policy="reservoir", size=wanted, seed=0)


def update(out: Path, wanted: BufferRequest) -> Task:
    write_buffer(out, wanted, plan_update(wanted), features=lambda _split, rows: np.ones((1, 1)))
    assert not list(check(out, deep=True))
    return open_buffer(out)


def kept(buffer: Task) -> dict[str, dict[str, list[str]]]:
    """The kept values of each image, by its key in the source."""
    table, columns = buffer.split("train").table, buffer.kept_columns
    return {
        row["source_key"]: {name: row[name] for name in columns}
        for row in table.select(["source_key", *columns]).to_pylist()
    }


def customers(count: int, name: str, first: int = 0) -> list[dict[str, Any]]:
    return [{**row, "customer": name} for row in rows(count, first)]


def test_a_buffer_has_the_columns_of_all_its_tasks(tmp_path: Path) -> None:
    plain = week(tmp_path / "w0", rows(4), None)
    first = week(tmp_path / "w1", customers(4, "ada", 4), "customer")
    second = week(tmp_path / "w2", customers(4, "bob", 8), "date,customer")
    buffer = update(tmp_path / "b0", request(plain))
    assert buffer.split("train").table.schema.names == BUFFER_SCHEMA.names
    assert buffer.kept_columns == ()
    buffer = update(tmp_path / "b1", request(first, buffer))
    assert buffer.kept_columns == ("customer",)
    buffer = update(tmp_path / "b2", request(second, buffer))
    assert buffer.kept_columns == ("customer", "date")
    found = kept(buffer)
    assert len(found) == 12
    assert found["id-0"] == {"customer": [], "date": []}
    assert found["id-4"] == {"customer": ["ada"], "date": []}
    assert found["id-8"] == {"customer": ["bob"], "date": ["2024-09-01"]}
    later = update(tmp_path / "b3", request(week(tmp_path / "w3", rows(4, 12), None), buffer))
    assert kept(later) == found | {f"id-{n}": {"customer": [], "date": []} for n in range(12, 16)}


def test_a_pair_that_comes_again_has_the_values_of_both_weeks(tmp_path: Path) -> None:
    first = week(tmp_path / "w1", customers(4, "bob"), "customer")
    second = week(tmp_path / "w2", customers(6, "ada"), "customer,date")
    buffer = update(tmp_path / "b1", request(first))
    found = kept(update(tmp_path / "b2", request(second, buffer)))
    assert found["id-0"] == {"customer": ["ada", "bob"], "date": ["2024-01-01"]}
    assert found["id-5"] == {"customer": ["ada"], "date": ["2024-06-01"]}


def test_the_same_data_with_other_columns_is_another_buffer(tmp_path: Path) -> None:
    plain = week(tmp_path / "a" / "w", customers(4, "ada"), None)
    keeping = week(tmp_path / "b" / "w", customers(4, "ada"), "customer")
    assert plain.content == keeping.content
    update(tmp_path / "out", request(plain))
    with pytest.raises(OutputExists, match="kept_columns"):
        already_made(tmp_path / "out", "task", request(keeping).identity(), force=False)

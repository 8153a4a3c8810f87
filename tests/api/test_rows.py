"""Rows as a table: a line for each evaluation, a column for each field and metric."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.eval_rows import OWN, own_rows

import vlcpctl


def test_a_table_has_fields_and_metrics(tmp_path: Path) -> None:
    rows = own_rows()
    table = vlcpctl.load_rows(rows)
    assert len(table) == len(rows)
    matrix = table.pivot(index="step", columns="task_step", values="rm")
    assert tuple(matrix.loc[2]) == OWN[2]
    assert {"run", "data", "options", "t2i_r1"} <= set(table.columns)
    assert "n_images" not in table.columns  # no row has it


def test_files_give_the_table_of_their_rows_each_once(tmp_path: Path) -> None:
    files = [tmp_path / "a.ndjson", tmp_path / "b.ndjson"]
    for file in files:
        file.write_text("".join(f"{json.dumps(one)}\n" for one in own_rows()))
    assert vlcpctl.load_rows(files).equals(vlcpctl.load_rows(own_rows()))
    assert vlcpctl.load_rows(files[0]).equals(vlcpctl.load_rows(own_rows()))


def test_what_is_no_row_is_refused() -> None:
    with pytest.raises(vlcpctl.BadInput, match="row 1"):
        vlcpctl.load_rows([own_rows()[0], {"run": "x"}])


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        vlcpctl.load_rows(own_rows())

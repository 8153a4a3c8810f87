"""Cells of one task, and of settings, that published tables of several recipes show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import own_rows, read_back, row

from vlcpctl.core.errors import BadInput
from vlcpctl.report.facts.table import Facts
from vlcpctl.report.published.cells import filled
from vlcpctl.report.published.definition import parse_table
from vlcpctl.report.scores.collect import collect
from vlcpctl.report.scores.joining import joined

TABLE = """
schema = "vlcpctl.table/1"
paper = "Example"
number = "Table 1"
caption = "one cell"
data = "Four tasks"

[[columns]]
id = "cell"
header = ["Cell"]
select = "{select}"

[[rows]]
name = "CTP"
run = "ctp"
printed = [1.0]
"""


def shown(select: str, path: Path, rows: list[dict[str, Any]]) -> Any:
    """What a cell with these selectors shows."""
    found = joined(read_back(path / "rows.ndjson", rows))
    facts = Facts(collect(found.rows, found.starts), lambda track: track.keys[0], joined=found)
    table = parse_table(TABLE.replace("{select}", select).encode(), "my.toml", "my")
    ((cell,),) = filled(table, facts, is_paper_data=False).cells
    return getattr(cell.here, "values", cell.here)


@pytest.mark.parametrize(
    ("select", "value"),
    [
        ("fr_dha.rm@data=00-*", (100 * 20 / 60,)),
        ("bwt_gem.rm@data=00-*", (-20.0,)),
        ("fr_dha.rm@data=01-*", (-5.0,)),
        ("fr_dha.rm@data=02-*", None),  # nothing was learned after it
        ("fr_dha.rm@data=03-*", None),
        ("fr_dha.rm", ((100 * 20 / 60 - 5) / 2,)),
    ],
)
def test_forgetting_of_one_task(tmp_path: Path, select: str, value: object) -> None:
    found = shown(select, tmp_path, own_rows())
    assert found == (value and pytest.approx(value))


def test_a_summary_that_is_not_of_tasks_takes_no_data(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"bwt_ctp\.rm takes no data="):
        shown("bwt_ctp.rm@data=00-*", tmp_path, own_rows())


def test_a_setting_may_be_of_the_rows_of_one_evaluation(tmp_path: Path) -> None:
    values = {"settings": {"lr": 5e-4, "betas": [0.9, 0.99]}}
    rows = [row(config={"id": "a", "values": values})]
    assert shown("config.lr", tmp_path, rows) == "0.0005"
    assert shown("config.betas.1", tmp_path, rows) == "0.99"
    assert shown("config.betas.2", tmp_path, rows) is None
    assert shown("config.lr@data=*smileys,evaluator=retrieval", tmp_path, rows) == "0.0005"
    assert shown("config.lr@data=*people", tmp_path, rows) is None
    assert shown("config.lr@evaluator=probe", tmp_path, rows) is None

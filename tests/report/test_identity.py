"""The identity of a report has every field of its rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs
from support.eval_rows import current, own_rows, read_back

from vlcpctl.files.rows import Row
from vlcpctl.report import identity as module
from vlcpctl.report.request import ReportRequest


class _Wider(Row, kw_only=True):
    """A row with a field whose name comes just behind `metrics`."""

    middle: int = 0


def test_a_new_field_whose_name_is_beside_that_of_the_metrics_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Row", _Wider)
    rows = read_back(tmp_path / "r", current(own_rows()))
    found = [
        module.identity([_wider(one, middle) for one in rows], ReportRequest()) for middle in (1, 2)
    ]
    assert found[0] != found[1]


def _wider(row: Row, middle: int) -> _Wider:
    return _Wider(**structs.asdict(row), middle=middle)

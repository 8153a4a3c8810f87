"""Lines of rows read in the quick way and in the full one give the same rows, or the same error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.eval_rows import current, merged_rows, own_rows, row
from vlcpctl.core import rows
from vlcpctl.core.errors import BadInput
from vlcpctl.core.quick_rows import QuickRows
from vlcpctl.core.rows import Row, read_rows

USUAL = current([*own_rows(), *merged_rows()])
CHANGES: list[dict[str, Any]] = [
    {},
    {"buffer": {"policy": "reservoir", "size": 10}},
    {"alpha": 0.0},
    {"since": {"run": "ctp", "step": 0, "checkpoint": "c0"}},
    {"degrees": {"image": [1, 2]}},
    {"data_was": ["older"]},
    {"protocol": None, "stream": None, "checkpoint": None, "limit": 7, "n_train": 3},
    {"metrics": {"rm": None, "t2i_r1": 3}},
    {"unknown": [1.5, {"a": {"b": None}}], "task": "a : b \u00e4 \\ \x9b"},
    {"metrics": {"rm": 1e13}},
    {"metrics": {"rm": True}},
    {"metrics": {f"m{number}": 1.0 for number in range(rows.MOST_METRICS + 1)}},
    {"metrics": [1.0]},
    {"tasks": [1, 2]},
    {"tasks": [["a"]]},
    {"tasks": ["t"] * 1001},
    {"task": "t" * (rows.MOST_NAME + 1)},
    {"stream": 0},
    {"stream": "s" * (rows.MOST_NAME + 1)},
    {"step": True},
    {"step": -1},
    {"task_step": 1000},
    {"seed": 1.0},
    {"seed": 2**63},
    {"unknown": 2**64},
    {"unknown": "x" * (rows.MOST_NAME + 1)},
    {"n_images": "50"},
    {"config": {"id": 3, "values": {}}},
    {"config": {"id": "c", "values": []}},
    {"config": []},
    {"options": []},
    {"options": None},
    {"buffer": []},
    {"schema": "vlcpctl.eval/2"},
    {"schema": 1},
    {"deep": json.loads("[" * 101 + "]" * 101)},
]
TEXTS = [
    '{"run": "other", ',
    '{"config": {"id": "a", "id": "b"}, ',
    '{"unknown" : 1, ',
    '{"unknown": NaN, ',
    '{"unknown": 1e999, ',
    '{"unknown": "\\ud800", ',
    "{,",
    "[",
    "",
]


def _slowly(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Row] | str:
    with monkeypatch.context() as context:
        context.setattr(QuickRows, "row", lambda self, line, place: None)
        return _read(path)


def _read(path: Path) -> list[Row] | str:
    try:
        return read_rows([str(path)])
    except BadInput as error:
        return str(error)


@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
def test_an_object_is_read_alike(
    change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = {**USUAL[1], "run": "changed", **change}
    lines = [json.dumps(one, ensure_ascii=False) for one in [USUAL[0], changed, *USUAL[2:]]]
    path = tmp_path / "rows.ndjson"
    path.write_text("\n".join(lines), encoding="utf-8")
    assert _read(path) == _slowly(path, monkeypatch)


@pytest.mark.parametrize("start", TEXTS)
def test_a_text_is_read_alike(start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.ndjson"
    path.write_text(f"{json.dumps(USUAL[0])}\n{start}{json.dumps(USUAL[1])[1:]}\n")
    found = _read(path)
    assert found == _slowly(path, monkeypatch)


def test_rows_of_the_usual_form_are_read_quickly_and_share_what_they_have_in_common() -> None:
    quick = QuickRows()
    quick.knows(USUAL[0]["schema"])
    found = [quick.row(json.dumps(one), "place") for one in USUAL]
    assert None not in found
    kept = [one for one in found if one is not None]
    assert len({id(one.options) for one in kept}) == 1
    of_step = [one for one in kept if one.step == 2]
    assert len({id(one.config) for one in of_step}) == 1
    assert quick.row(json.dumps(row()), "place") is None  # of an earlier schema

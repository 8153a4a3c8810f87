"""Lines of rows read in the quick way and in the full one give the same rows, or the same error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.eval_rows import current, merged_rows, own_rows, row
from vlcpctl.core import rows
from vlcpctl.core.errors import BadInput
from vlcpctl.core.limits import MOST_TASKS
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
    {"tasks": ["t"] * (MOST_TASKS + 1)},
    {"task": "t" * (rows.MOST_NAME + 1)},
    {"stream": 0},
    {"stream": "s" * (rows.MOST_NAME + 1)},
    {"step": True},
    {"step": -1},
    {"task_step": MOST_TASKS},
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
    '{"task": "\\u0061", ',
    '{"unknown": 18446744073709551616, ',
    '{"unknown": 9223372036854775808, ',
    '{"unknown": -0, ',
    '{"unknown"\r: 1, ',
    '{"config": -1, ',
    '{"unknown": {"config": {"id": "c", "values": {}}}, ',
    '{"unknown": {"tasks": -1}, ',
    "\ufeff{",
    "   {",
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


@pytest.mark.parametrize("name", ["config", "tasks"])
@pytest.mark.parametrize("inner", [False, True], ids=["twice", "inside"])
def test_a_known_text_elsewhere_is_not_taken_for_the_field(
    name: str, inner: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = {**USUAL[-1], "tasks": [f"task number {n}" for n in range(9)], "task_step": None}
    text = json.dumps(usual[name])
    found = json.dumps({key: one for key, one in usual.items() if key != name})[1:]
    odd = f'{{"x": {{"{name}": {text}}}, ' if inner else f'{{"{name}": {text}, "{name}": null, '
    path = tmp_path / "rows.ndjson"
    lines = [*[json.dumps(usual)] * 3, odd + found.replace(usual["run"], "other", 1)]
    path.write_text("\n".join(lines))
    assert _read(path) == _slowly(path, monkeypatch)


def test_known_settings_and_lists_of_tasks_are_not_parsed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"task number {n}" for n in range(9)]
    usual = [{**one, "tasks": names, "config": USUAL[0]["config"]} for one in USUAL]
    quick, parsed = QuickRows(), []
    quick.knows(USUAL[0]["schema"])

    def loads(text: str) -> object:
        parsed.append(text)
        return json.loads(text)

    monkeypatch.setattr("vlcpctl.core.quick_rows.orjson.loads", loads)
    found = [quick.row(json.dumps(one), "place") for one in usual]
    assert len(found) == len([one for one in found if one is not None])
    assert sum("task number 8" in one for one in parsed) == 2  # a row, and the list by itself
    assert sum('"values"' in one for one in parsed) == 1
    assert len(parsed) == len(usual) + 1

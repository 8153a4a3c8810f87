"""Settings of runs as texts, and those that differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.eval_rows import current, own_rows, read_back
from support.run_checkpoints import write_run

from vlcpctl.report.cards.runs import read_cards
from vlcpctl.report.cards.settings import differing, flattened, settings_by_run
from vlcpctl.report.cards.tables import settings_table


def _rows(path: Path, **values: dict[str, Any]) -> Any:
    rows = [
        one
        for run, config in values.items()
        for one in current(own_rows(run=run), config={"id": run, "values": config})
    ]
    return read_back(path / "r", rows)


def test_the_settings_in_which_runs_differ(tmp_path: Path) -> None:
    rows = _rows(
        tmp_path,
        a={"method": "ewc", "settings": {"lr": 0.1, "flip": True}, "hyper": {"ewc": {"w": 1}}},
        b={"method": "ctp", "settings": {"lr": 0.2, "flip": True}, "hyper": {"ctp": {}}},
    )
    found = settings_by_run(rows, None)
    assert found["a"] == {"method": "ewc", "lr": "0.1", "flip": "yes", "ewc.w": "1"}
    assert differing(found) == ["method", "lr", "ewc.w"]
    table = settings_table(found)
    assert table is not None
    assert [[cell.text for cell in row] for row in table.groups[0].rows] == [
        ["method", "ewc", "ctp"],
        ["lr", "0.1", "0.2"],
        ["ewc.w", "1", "-"],
    ]
    assert table.notes == ("1 other settings are the same in all runs",)


def test_many_runs_are_lines(tmp_path: Path) -> None:
    found = settings_by_run(_rows(tmp_path, a={"lr": 1}, b={"lr": 2}), None)
    table = settings_table(found)
    assert table is not None
    assert [column.name for column in table.columns] == ["run", "lr"]


def test_runs_that_do_not_differ_have_no_table(tmp_path: Path) -> None:
    assert settings_table(settings_by_run(_rows(tmp_path, a={"lr": 1}, b={"lr": 1}), None)) is None


def test_a_setting_that_changes_over_the_steps_names_them(tmp_path: Path) -> None:
    rows = [
        one | {"config": {"id": str(one["step"]), "values": {"lr": 1 if one["step"] else 5}}}
        for one in current(own_rows())
    ]
    found = settings_by_run(read_back(tmp_path / "r", rows), None)
    assert found == {"ctp": {"lr": "5 at step 0; 1 at steps 1 and 2"}}


def test_checkpoints_add_the_settings_of_steps_without_rows(tmp_path: Path) -> None:
    write_run(tmp_path / "ctp")
    rows = [one for one in read_back(tmp_path / "r", own_rows()) if one.step == 2]
    cards = read_cards([tmp_path / "ctp"], rows)
    found = settings_by_run(rows, cards)["ctp"]
    assert (found["lr"], found["ctp.m"]) == ("0.1", "0.9")
    assert "micro_batch" not in found  # it divides the work


def test_texts_of_values() -> None:
    values = {"betas": [0.9, 0.99], "none": None, "buffer": {"policy": "ring", "size": 8}}
    assert flattened(values) == {"betas": "0.9, 0.99", "none": "none", "buffer": "ring, 8 pairs"}
    assert len(flattened({"x": "y" * 1000})["x"]) == 200

"""Rows record the preset of their train-step; rows of earlier versions do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import current, read_back, row

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.step_config import preset_of
from vlcpctl.evaluation.membership import RunCheckpoint
from vlcpctl.evaluation.planned_rows import PlannedRow, checkpoint_fields, holds
from vlcpctl.files.rows import SCHEMA
from vlcpctl.report.report import ReportRequest, identity

TINY = {"model": "flag", "lr": "preset tiny, not in the paper", "epochs": "preset tiny"}


def made(origins: dict[str, str]) -> CheckpointManifest:
    return CheckpointManifest(identity={}, run="ctp", method="ctp", origins=origins)


@pytest.mark.parametrize(
    ("origins", "name"),
    [
        (TINY, "tiny"),
        ({"lr": "preset update, FoMo-in-Flux"}, "update"),
        ({"lr": "flag", "epochs": "default"}, None),
        ({}, None),
    ],
)
def test_the_preset_is_where_settings_come_from(origins: dict[str, str], name: str | None) -> None:
    manifest = made(origins)
    assert preset_of(manifest) == name
    fields = checkpoint_fields(RunCheckpoint(manifest, manifest, None))
    assert fields.get("preset") == name
    assert "preset" not in fields["config"]["values"]  # the same settings may come from flags


def test_a_file_holds_rows_that_differ_only_in_what_was_measured(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"run": "ctp", "preset": "tiny"}
    path = tmp_path / "rows.ndjson"
    path.write_text(json.dumps({"schema": SCHEMA, **fields, "metrics": {"rm": 1.0}}) + "\n")
    assert holds(path, [PlannedRow((0,), fields, ("metrics",))])
    assert not holds(path, [PlannedRow((0,), fields | {"run": "er"}, ("metrics",))])
    assert not holds(path, [PlannedRow((0,), fields | {"preset": "ctp"}, ("metrics",))])


def test_a_row_is_read_with_or_without_it(tmp_path: Path) -> None:
    rows = current([row(task_step=0), row(task_step=1, preset="tiny")])
    without, with_ = read_back(tmp_path / "r", rows)
    assert (without.preset, with_.preset) == (None, "tiny")
    again = read_back(tmp_path / "r", current([row(task_step=0, preset=None)]))
    assert identity([without], ReportRequest()) == identity(again, ReportRequest())

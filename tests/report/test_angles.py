"""Spatial rows: seeds are averaged, runs are kept apart, tables show the shares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.collected import reported
from support.eval_rows import own_rows, read_back, row

from vlcpctl.core.errors import BadInput
from vlcpctl.files.rows import Row, read_rows
from vlcpctl.report.angles import collect_spatial_tracks
from vlcpctl.report.formats import styled
from vlcpctl.report.page import page

KEYS = ("sam_image", "sam_text", "ram_image", "ram_text", "imav_i2t", "imav_t2i")


def turned(share: float, since: int = 0, step: int = 1, **fields: Any) -> dict[str, Any]:
    """A row with `share` percent of all angles in the lowest bin and the rest in a higher one."""
    metrics = {f"{key}_{ends}": value for key in KEYS for ends, value in _bins(key, share)}
    degrees = {key: [round(share)] + [0] * 16 + [100 - round(share)] for key in KEYS}
    earlier = {"run": fields.get("run", "ctp"), "step": since, "checkpoint": f"c{since}"}
    about = {"evaluator": "spatial", "protocol": "angles", "task_step": 0, "task": "00-smileys"}
    return row(step=step, since=earlier, metrics=metrics, degrees=degrees, **{**about, **fields})


def _bins(key: str, share: float) -> list[tuple[str, float]]:
    low = ("0_15", "15_20") if key.startswith("ram") else ("0_5", "15_20")
    return [(low[0], share), (low[1], 100 - share), ("mean", share / 10)]


def texts(rows: list[Row]) -> list[str]:
    (space,) = collect_spatial_tracks(rows)
    return [styled(table).plain for table in space.tables()]


def test_a_table_has_the_shares_of_each_turn(tmp_path: Path) -> None:
    rows = [turned(70.0, 1, 2), turned(60.0), turned(40.0, 0, 2), turned(50.0, run="er")]
    ram = texts(read_back(tmp_path / "r", rows))[2].splitlines()
    body = [line.split() for line in ram if "->" in line or line in {"ctp", "er"}]
    assert [line[:5] for line in body] == [
        ["ctp"],
        ["0", "->", "1", "60.00", "40.00"],
        ["1", "->", "2", "70.00", "30.00"],
        ["0", "->", "2", "40.00", "60.00"],
        ["er"],
        ["0", "->", "1", "50.00", "50.00"],
    ]
    assert body[1][-1] == "100"


def test_seeds_are_averaged_with_their_deviation(tmp_path: Path) -> None:
    rows = read_back(tmp_path / "r", [turned(60.0, seed=0), turned(64.0, seed=1)])
    assert "62.00 (2.83)" in texts(rows)[0]
    (space,) = collect_spatial_tracks(rows)
    assert space.pairs[0].share("sam_image")[0] == pytest.approx(62.0)


def test_an_unmeasured_share_is_no_zero(tmp_path: Path) -> None:
    bare = turned(60.0)
    bare["metrics"] = dict.fromkeys(bare["metrics"]) | {"rm": 1}
    bare["degrees"] |= {"imav_i2t": []}
    imav = texts(read_back(tmp_path / "r", [bare]))[4]
    assert " 0.00" not in imav
    assert imav.splitlines()[5].split()[3:] == [*"------", "0"]


def test_shares_of_averages_are_no_seeds_of_one_comparison(tmp_path: Path) -> None:
    def since(alpha: float, share: float) -> dict[str, Any]:
        earlier = {"run": "mix", "step": 1, "alpha": alpha, "checkpoint": f"at {alpha}"}
        return turned(share, run="mix", alpha=1) | {"since": earlier}

    rows = read_back(tmp_path / "r", [since(0, 60.0), since(0.25, 80.0)])
    start = turned(60.0) | {"since": {"run": "openai", "step": None, "checkpoint": "x"}}
    assert "openai start -> 1" in texts(read_back(tmp_path / "s", [start]))[0]
    (space,) = collect_spatial_tracks(rows)
    assert {turn.steps: turn.metrics["sam_image_0_5"] for turn in space.pairs} == {
        "mix alpha=0 1 -> 1": (60.0,),
        "mix alpha=0.25 1 -> 1": (80.0,),
    }


def test_angles_and_scores_make_one_page(tmp_path: Path) -> None:
    rows = [*own_rows(), turned(60.0), turned(50.0, 1, 2)]
    document = reported(tmp_path, rows)
    assert [heading for heading, _ in document.sections()] == [
        "retrieval, cross-modal, test split",
        "spatial, 00-smileys, test split",
    ]
    text = page(document)
    assert text.count("percent of the angles in each degree") == 3  # SAM, RAM and ImAV
    assert "R@mean after each step" in text
    assert "bwt_gem" in text


def test_a_row_of_angles_needs_their_counts(tmp_path: Path) -> None:
    bare = turned(60.0)
    del bare["degrees"]["ram_text"]
    with pytest.raises(BadInput, match="must count its angles in 'degrees'"):
        reported(tmp_path, [bare])
    assert read_rows([str(tmp_path / "r")])

"""The recipe of DHA trains, evaluates and reports what the paper's tables have."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.recipe_lines import DATA, dry_run_of, options_of_command
from support.recipe_tables import reported, run_recipe, shown_tables, tables_of

from vlcpctl.report.papers import load_paper

CITM = "dha_citm.sh"
TABLES = (*(f"dha-{number}" for number in range(1, 6)), "dha-fig1", "dha-fig4", "dha-fig5")
MODES = {"CITM": ("--data", DATA), "Emoji-9": ("--emoji9",)}

each_mode = pytest.mark.parametrize("mode", MODES)


@each_mode
@pytest.mark.parametrize("name", TABLES)
def test_every_run_and_data_set_of_a_table_is_in_the_report(name: str, mode: str) -> None:
    assert reported(dry_run_of(CITM, *MODES[mode]), name).lacks(load_paper(name)) == []


@each_mode
def test_the_report_ends_with_all_tables(mode: str) -> None:
    lines = dry_run_of(CITM, *MODES[mode])
    assert tables_of(lines) == [TABLES]


def test_no_run_is_without_a_place_in_a_table() -> None:
    shown = set[str]()
    for name in TABLES:
        table = load_paper(name)
        cells = [cell.selectors for row in table.rows for cell in row.cells]
        shown |= {row.run for row in table.rows}
        shown |= {glob for pairs in cells for field, glob in pairs if field == "run"}
    assert reported(dry_run_of(CITM, *MODES["CITM"]), "dha-1").runs == shown - {"*", "dha*"}


def test_cells_of_table_5_are_of_runs_with_their_shares() -> None:
    lines = dry_run_of(CITM, *MODES["CITM"])
    sets = {
        given["run"]: set(given["set"] or ()) for given in options_of_command(lines, "train-step")
    }
    table = load_paper("dha-5")
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            run = dict(cell.selectors)["run"]
            one, two = row.name.split()[-1], column.name
            wanted = {f"dha.main_share={one}", f"dha.history_share={two}"}
            assert sets[run] == (set() if (one, two) == ("0.995", "0.985") else wanted)


METHODS = ("Baseline", "LwF", "ER", "DER", "CO2L", "DHA (no memory)", "DHA")
NAMES = ("MSCOCO", "CC3M", "WIT", "GDnews")
WAYS = ("T2I", "I2T")
ALL = ("Joint training", *METHODS)
FINAL = (*(f"Task T{number}" for number in range(1, 5)), "Average")
ROWS = {
    "dha-1": tuple(f"{way} | {name}" for way in WAYS for name in ALL),
    "dha-2": ("Baseline", "ER", "DER", "DHA (no memory)", "DHA"),
    "dha-3": (
        *("none", "Adapt with Hist", "Adapt with Hist, Dynamic Hist"),
        *("Mem", "Adapt with Hist, Mem", "Adapt with Hist, Dynamic Hist, Mem"),
    ),
    "dha-4": tuple(f"k = {k}" for k in (1, 3, 5, 7)),
    "dha-5": tuple(f"lambda1 = {share}" for share in ("0.98", "0.99", "0.995", "0.999")),
    "dha-fig1": tuple(
        f"{part} | {name}-train"
        for part in ("CITM setting", "cross-dataset evaluation")
        for name in NAMES
    ),
    "dha-fig4": tuple(f"{way} | {name}" for way in WAYS for name in METHODS),
    "dha-fig5": ("ER", "DER", "DHA"),
}
HEADINGS = {
    "dha-1": (
        *(f"Task T{task} {name}" for task in range(1, 4) for name in ("R@mean", "FR")),
        *("Task T4 R@mean", "Average R@mean", "Average FR"),
    ),
    "dha-2": tuple(f"{way} R@{k}" for way in WAYS for k in (1, 5, 10, "mean")),
    "dha-3": FINAL,
    "dha-4": FINAL,
    "dha-5": tuple(f"lambda2 {share}" for share in ("0.98", "0.985", "0.99", "0.999")),
    "dha-fig1": tuple(f"{name}-test" for name in NAMES),
    "dha-fig4": tuple(f"after task T{task}" for task in range(1, 5)),
    "dha-fig5": tuple(f"buffer {size} %" for size in (0, 1, 5, 10)),
}


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_the_tables_on_emoji9(tmp_path: Path) -> None:
    few = ("--split", "--take 60", "--train", "--steps 1 --batch-size 8")
    methods = ("--methods", "joint seqf dha dha-0.98-0.98 cross")
    run_recipe(CITM, "--emoji9", *methods, "--out", tmp_path, *few)
    tables = shown_tables(tmp_path / "report")
    assert {name: found.rows for name, found in tables.items()} == ROWS
    assert {name: found.headings for name, found in tables.items()} == HEADINGS
    assert {name: found.filled_rows for name, found in tables.items()} == {
        "dha-1": {f"{way} | {name}" for way in WAYS for name in ("Joint training", *METHODS[::6])},
        "dha-2": {"Baseline", "DHA"},
        "dha-3": {ROWS["dha-3"][0], ROWS["dha-3"][-1]},
        "dha-4": {"k = 5"},
        "dha-5": {"lambda1 = 0.98", "lambda1 = 0.995"},
        "dha-fig1": {*ROWS["dha-fig1"]},
        "dha-fig4": {f"{way} | {name}" for way in WAYS for name in METHODS[::6]},
        "dha-fig5": {"ER", "DER", "DHA"},  # seqf is the first two without a buffer
    }
    assert {name: len(found.filled) for name, found in tables.items()} == {
        "dha-1": 2 * (5 + 9 + 9),  # joint training has no forgetting
        "dha-2": 2 * 8,
        "dha-3": 2 * 5,
        "dha-4": 5,
        "dha-5": 2,
        "dha-fig1": 8 * 4,
        "dha-fig4": 4 * 4,
        "dha-fig5": 3,
    }

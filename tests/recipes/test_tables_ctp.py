"""The recipes of CTP train, evaluate and report what the paper's tables have."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.recipe_lines import DATA, dry_run_of
from support.recipe_tables import (
    lines_of,
    of_command,
    reported,
    run_recipe,
    shown_tables,
    tables_of,
    values_of,
)

from vlcpctl.report.papers import load_paper

P9D, ABLATIONS = "ctp_p9d.sh", "ctp_ablations.sh"
TABLES = ("ctp-1", "ctp-2", "ctp-3", "ctp-5", "ctp-6", "ctp-fig4")
MODES = {"P9D": ("--data", DATA), "Emoji-9": ("--emoji9",)}
PRINTED_RUNS = {
    *("joint", "seqf", "si", "mas", "ewc", "afec", "lwf", "rwalk", "ctp"),
    *("mof", "lucir", "er", "kmeans", "icarl", "ctp+er"),
}

each_mode = pytest.mark.parametrize("mode", MODES)


@pytest.mark.parametrize("name", TABLES)
def test_every_run_of_a_table_is_trained_and_in_the_report_of_its_command(name: str) -> None:
    table = load_paper(name)
    for command in (table.about["command"], table.about["emoji9"]):
        found = reported(lines_of(command), name)
        assert found.lacks(table) == []
        assert {row.run for row in table.rows} <= found.runs


@each_mode
def test_reports_end_with_the_tables_of_their_order(mode: str) -> None:
    lines = dry_run_of(P9D, *MODES[mode], "--orders", "default reversed")
    assert tables_of(lines) == [("ctp-1", "ctp-fig4"), ("ctp-6",)]
    assert tables_of(dry_run_of(ABLATIONS, *MODES[mode])) == [("ctp-2", "ctp-3", "ctp-5")]


@pytest.mark.parametrize("name", ["ctp-1", "ctp-6", "ctp-fig4"])
def test_no_run_of_the_paper_is_without_a_row(name: str) -> None:
    assert {row.run for row in load_paper(name).rows} == PRINTED_RUNS


def test_ablations_have_the_settings_of_the_tables() -> None:
    found = {
        values_of(line, "--run")[0]: tuple(values_of(line, "--set")[2:])
        for line in of_command(dry_run_of(ABLATIONS, *MODES["P9D"]), "train-step")
        if values_of(line, "--method") == ["ctp"]
    }
    cmc, cross, same = (f"ctp.{name}=false" for name in ("momentum", "cross_modal", "same_modal"))
    assert found == {
        "ctp": (),
        "ctp+er": (),
        "ctp-cmc": (cross, same),
        "ctp-cross": (cmc, same),
        "ctp-cmc-cross": (same,),
        "ctp-cmc-same": (cross,),
        "ctp-previous": ("ctp.momentum_from=previous",),
        "ctp-current": ("ctp.momentum_from=current",),
        "ctp-no-queue": ("ctp.queue=0",),
        "ctp-diagonal": ("ctp.suppress_diagonal=false",),
        **{f"ctp-m{m}": (f"ctp.m={m}",) for m in ("0.7", "0.8", "0.99", "0.995")},
    }


@each_mode
def test_ablations_share_what_the_other_recipe_has_made(mode: str) -> None:
    known = {line.words for line in dry_run_of(P9D, *MODES[mode], "--orders", "default")}
    shared = [line for line in dry_run_of(ABLATIONS, *MODES[mode]) if line.words in known]
    runs = {values_of(line, "--run")[0] for line in of_command(shared, "train-step")}
    assert runs == {"seqf", "ctp", "ctp+er"}
    assert of_command(shared, "split")


CROSS = tuple(f"Cross-modal retrieval {name}@{k}" for name in ("TR", "IR") for k in (1, 5, 10))
MULTI = tuple(f"Multi-modal retrieval mAP@{k}" for k in (1, 5, 10))
FREE = ("SeqF", "SI", "MAS", "EWC", "AFEC", "LWF", "RWalk", "CTP")
BUFFER = ("MoF", "LUCIR", "ER", "Kmeans", "ICARL", "CTP+ER")
METHODS = (
    "JointT",
    *(f"Memory-Free | {name}" for name in FREE),
    *(f"Memory-Buffer | {name}" for name in BUFFER),
)
FEW = ("--split", "--take 40", "--train", "--steps 1 --batch-size 8")


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_tables_1_and_6_on_emoji9(tmp_path: Path) -> None:
    words = ("--emoji9", "--orders", "default reversed", "--methods", "joint seqf")
    run_recipe(P9D, *words, "--out", tmp_path, *FEW)
    tables = shown_tables(tmp_path / "default/report") | shown_tables(tmp_path / "reversed/report")
    assert list(tables) == ["ctp-1", "ctp-fig4", "ctp-6"]
    headings = (*CROSS, "Cross-modal retrieval Rm", *MULTI)
    assert tables["ctp-1"].headings == ("Training hours", *headings)
    assert tables["ctp-6"].headings == headings
    for name in ("ctp-1", "ctp-6"):
        found = tables[name]
        assert found.rows == METHODS
        rows = ("JointT", "Memory-Free | SeqF")
        assert found.filled == {(row, column) for row in rows for column in headings}
    curves = tables["ctp-fig4"]
    assert curves.rows == METHODS
    keys = ("Rm", "mAP@1")
    assert {column for row, column in curves.filled if "SeqF" in row} == {
        f"{key} after task {number}" for key in keys for number in range(1, 10)
    }
    assert {column for row, column in curves.filled if row == "JointT"} == {
        f"{key} after task 9" for key in keys
    }


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_tables_2_3_and_5_on_emoji9(tmp_path: Path) -> None:
    runs = "ctp-cross ctp-no-queue ctp-m0.7"
    run_recipe(ABLATIONS, "--emoji9", "--methods", runs, "--out", tmp_path, *FEW)
    tables = shown_tables(tmp_path / "default/ablations")
    assert {name: found.rows for name, found in tables.items()} == {
        "ctp-2": (
            "none (SeqF)",
            "CMC",
            "c",
            "CMC + c",
            "CMC + s",
            "CMC + c + s (CTP)",
            "CMC + c + s + ER (CTP+ER)",
        ),
        "ctp-3": ("only theta^(t-1)", "only theta^t", "w/o Q", "w/o P^i2i & P^t2t", "CTP"),
        "ctp-5": (
            *("only theta^(t-1)", "only theta^t"),
            *(f"m = {m}" for m in ("0.7", "0.8", "0.9", "0.99", "0.995")),
        ),
    }
    assert {name: found.headings for name, found in tables.items()} == {
        "ctp-2": ("TR@1", "IR@1", "Rm", "mAP@1"),
        "ctp-3": ("TR@1", "IR@1", "Rm", "mAP"),
        "ctp-5": ("TR@1", "IR@1", "Rm", "mAP"),
    }
    rows = {name: found.filled_rows for name, found in tables.items()}
    assert rows == {"ctp-2": {"c"}, "ctp-3": {"w/o Q"}, "ctp-5": {"m = 0.7"}}
    assert {len(found.filled_columns) for found in tables.values()} == {4}

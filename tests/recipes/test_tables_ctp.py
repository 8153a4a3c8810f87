"""The recipes of CTP train, evaluate and report what the paper's tables have."""

from __future__ import annotations

import pytest
from support.recipe_lines import DATA, dry_run_of, options_of_command
from support.recipe_tables import reported, tables_of

from vlcpctl.jobs.script import CommandLine
from vlcpctl.report.published.definition import load_table

P9D, ABLATIONS = "ctp_p9d.sh", "ctp_ablations.sh"
REPORTS = {
    "ctp-1": (P9D, "default"),
    "ctp-fig4": (P9D, "default"),
    "ctp-6": (P9D, "reversed"),
    "ctp-2": (ABLATIONS, ""),
    "ctp-3": (ABLATIONS, ""),
    "ctp-5": (ABLATIONS, ""),
}
MODES = {"P9D": ("--data", DATA), "Emoji-9": ("--emoji9",)}
PRINTED_RUNS = {
    *("joint", "seqf", "si", "mas", "ewc", "afec", "lwf", "rwalk", "ctp"),
    *("mof", "lucir", "er", "kmeans", "icarl", "ctp+er"),
}

each_mode = pytest.mark.parametrize("mode", MODES)


def lines_of(recipe: str, order: str, mode: str) -> list[CommandLine]:
    return dry_run_of(recipe, *MODES[mode], *(("--orders", order) if order else ()))


@each_mode
@pytest.mark.parametrize("name", REPORTS)
def test_every_run_of_a_table_is_trained_and_in_its_report(name: str, mode: str) -> None:
    found = reported(lines_of(*REPORTS[name], mode), name)
    table = load_table(name)
    assert found.lacks(table) == []
    assert {row.run for row in table.rows} <= found.runs


@each_mode
def test_reports_end_with_the_tables_of_their_order(mode: str) -> None:
    lines = dry_run_of(P9D, *MODES[mode], "--orders", "default reversed")
    assert tables_of(lines) == [("ctp-1", "ctp-fig4"), ("ctp-6",)]
    assert tables_of(dry_run_of(ABLATIONS, *MODES[mode])) == [("ctp-2", "ctp-3", "ctp-5")]


@pytest.mark.parametrize("name", ["ctp-1", "ctp-6", "ctp-fig4"])
def test_no_run_of_the_paper_is_without_a_row(name: str) -> None:
    assert {row.run for row in load_table(name).rows} == PRINTED_RUNS


@pytest.mark.parametrize("recipe", [P9D, ABLATIONS])
def test_printed_values_are_compared_unless_the_data_are_emoji9(recipe: str) -> None:
    for mode, wanted in (("P9D", True), ("Emoji-9", False)):
        for given in options_of_command(dry_run_of(recipe, *MODES[mode]), "forgetting-report"):
            assert given["paper_data"] is wanted


def test_ablations_have_the_settings_of_the_tables() -> None:
    found = {
        given["run_name"]: tuple(given["set_"])[2:]
        for given in options_of_command(dry_run_of(ABLATIONS, *MODES["P9D"]), "train-step")
        if given["method"] == "ctp"
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
    known = {line.makes: line for line in lines_of(P9D, "default", mode)}
    lines = dry_run_of(ABLATIONS, *MODES[mode])
    shared = [line for line in lines if line.makes in known]
    assert [line.words for line in shared] == [known[line.makes].words for line in shared]
    runs = {
        given["run_name"] for given in options_of_command(shared, "train-step") if given["run_name"]
    }
    assert runs == {"seqf", "ctp", "ctp+er"}


def test_the_means_of_recalls_that_are_misprinted() -> None:
    misprinted = []
    for name in ("ctp-1", "ctp-6"):
        table = load_table(name)
        places = {column.id: place for place, column in enumerate(table.columns)}
        (rm,) = (column for column in table.columns if column.mean_of)
        for row in table.rows:
            cells = [row.printed[places[one]] for one in (*rm.mean_of, rm.id)]
            *recalls, printed = (cell for cell in cells if isinstance(cell, float))
            mean = sum(recalls) / len(recalls)
            if abs(mean - printed) > 0.01:
                misprinted.append((name, row.name, printed, round(mean, 2)))
    assert misprinted == [
        ("ctp-1", "Kmeans", 67.26, 67.42),
        ("ctp-6", "LWF", 61.31, 61.47),
        ("ctp-6", "Kmeans", 66.53, 66.87),
    ]

"""The recipe of IncCLIP trains, evaluates and reports what the paper's tables have."""

from __future__ import annotations

from collections import Counter
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

from vlcpctl.data.classification.benchmarks import GROUPS
from vlcpctl.report.papers import load_paper

CC2M = "incclip_cc2m.sh"
TABLES = (*(f"incclip-{number}" for number in range(1, 8)), "incclip-fig3")
MODES = {"CC2M": ("--data", DATA), "Emoji-9": ("--emoji9",)}

each_mode = pytest.mark.parametrize("mode", MODES)


@pytest.mark.parametrize("name", TABLES)
def test_every_run_and_data_set_of_a_table_is_in_the_report_of_its_command(name: str) -> None:
    table = load_paper(name)
    for command in (table.about["command"], table.about["emoji9"]):
        assert reported(lines_of(command), name).lacks(table) == []


@each_mode
def test_the_last_report_has_all_tables_and_the_others_have_none(mode: str) -> None:
    assert tables_of(dry_run_of(CC2M, *MODES[mode])) == [(), (), (), TABLES]


@each_mode
def test_a_run_of_another_stream_has_another_name(mode: str) -> None:
    streams: dict[str, set[str]] = {}
    for line in of_command(dry_run_of(CC2M, *MODES[mode]), "train-step"):
        (run,), (out,) = values_of(line, "--run"), values_of(line, "-o")
        streams.setdefault(run, set()).add(out.partition("/")[0])
    assert {len(found) for found in streams.values()} == {1}


def test_rows_of_tables_1_and_2_are_of_the_stream_with_as_many_tasks() -> None:
    steps = of_command(dry_run_of(CC2M, *MODES["CC2M"]), "train-step")
    count = Counter(values_of(line, "--run")[0] for line in steps)
    for name in ("incclip-1", "incclip-2", "incclip-fig3"):
        for row in load_paper(name).rows:
            assert count[row.run] == (int(row.group.split()[0]) if row.group else 1), row


def test_emoji9_stands_in_for_the_eight_data_sets() -> None:
    found = reported(dry_run_of(CC2M, "--emoji9"), "incclip-1").data
    names = {name.partition("-dataset-")[2] for name in found}
    assert {*GROUPS["incclip"], "flickr30k", "coco"} <= names


@pytest.mark.parametrize("name", ["incclip-4", "incclip-5"])
def test_memory_sizes_are_those_of_their_runs(name: str) -> None:
    lines = dry_run_of(CC2M, *MODES["CC2M"], "--streams", "classes-4")
    sizes = {
        values_of(line, "-o")[0].split("/")[2]: values_of(line, "--size")[0]
        for line in of_command(lines, "buffer")
    }
    table = load_paper(name)
    for column, cell in zip(table.columns, table.rows[0].cells, strict=True):
        assert column.name == sizes[dict(cell.selectors)["run"]].replace("%", " %")


METHODS = ("ER", "UCIR", "Co2L", "GeoDL", "IncCLIP")
SETS = (
    *("ImageNet", "CIFAR-10", "CIFAR-100", "Caltech101"),
    *("SUN397", "Food101", "Flowers102", "DTD"),
)
RECALLS = tuple(
    f"{name} {way} R@{k}"
    for name in ("Flickr30K", "MSCOCO")
    for way in ("image-to-text", "text-to-image")
    for k in (1, 5, 10)
)
TOP1 = tuple(f"{name} {way}" for name in ("Flickr30K", "MSCOCO") for way in ("I2T", "T2I"))
SIZES = tuple(f"{percent} %" for percent in (1, 5, 10, 20, 50))
PARTS = ("W.N.C", "W.N.C + Dist.", "W.N.C + Dist. + H.N.T.G")


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_the_tables_on_emoji9(tmp_path: Path) -> None:
    few = ("--split", "--take 20", "--train", "--steps 1 --batch-size 8")
    words = ("--methods", "joint incclip incclip-1", "--streams", "classes-4 iid-4")
    run_recipe(CC2M, "--emoji9", *words, "--out", tmp_path, *few)
    tables = shown_tables(tmp_path / "tables")
    assert tuple(tables) == TABLES
    by_tasks = tuple(f"{tasks} tasks | {name}" for tasks in (4, 8) for name in METHODS)
    order = ("ER", "GeoDL", "UCIR", "Co2L", "IncCLIP")
    table_2 = tuple(f"{tasks} tasks | {name}" for tasks in (4, 8) for name in order)
    assert {name: found.rows for name, found in tables.items()} == {
        "incclip-1": ("Joint", *by_tasks),
        "incclip-2": ("Joint", *table_2),
        "incclip-3": PARTS,
        "incclip-4": ("IncCLIP",),
        "incclip-5": ("IncCLIP",),
        "incclip-6": ("Joint", "ER", "UCIR", "GeoDL", "Co2L", "IncCLIP"),
        "incclip-7": ("BWT",),
        "incclip-fig3": by_tasks,
    }
    assert {name: found.headings for name, found in tables.items()} == {
        "incclip-1": (*SETS, "Average"),
        "incclip-2": RECALLS,
        "incclip-3": ("ImageNet", *TOP1),
        "incclip-4": tuple(f"{name} {size}" for name in ("ImageNet", "Average") for size in SIZES),
        "incclip-5": tuple(
            f"{way} {size}" for way in ("image-to-text", "text-to-image") for size in SIZES
        ),
        "incclip-6": ("ImageNet", "Average", *TOP1),
        "incclip-7": METHODS,
        "incclip-fig3": tuple(f"Average accuracy after task {number}" for number in range(1, 9)),
    }
    assert {name: found.filled_rows for name, found in tables.items()} == {
        "incclip-1": {"Joint", "4 tasks | IncCLIP"},
        "incclip-2": {"Joint", "4 tasks | IncCLIP"},
        "incclip-3": {PARTS[-1]},
        "incclip-4": {"IncCLIP"},
        "incclip-5": {"IncCLIP"},
        "incclip-6": {"Joint", "IncCLIP"},
        "incclip-7": {"BWT"},
        "incclip-fig3": {"4 tasks | IncCLIP"},
    }
    assert {name: len(found.filled_columns) for name, found in tables.items()} == {
        "incclip-1": 9,
        "incclip-2": 12,
        "incclip-3": 5,
        "incclip-4": 4,
        "incclip-5": 4,
        "incclip-6": 6,
        "incclip-7": 1,
        "incclip-fig3": 4,
    }

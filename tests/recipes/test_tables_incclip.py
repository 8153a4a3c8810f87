"""The recipe of IncCLIP trains, evaluates and reports what the paper's tables have."""

from __future__ import annotations

import pytest
from support.recipe_lines import DATA, dry_run_of, options_of_command
from support.recipe_tables import reported, tables_of

from vlcpctl.data.classification.benchmarks import GROUPS
from vlcpctl.report.published.definition import load_table

CC2M = "incclip_cc2m.sh"
TABLES = (*(f"incclip-{number}" for number in range(1, 8)), "incclip-fig3")
MODES = {"CC2M": ("--data", DATA), "Emoji-9": ("--emoji9",)}

each_mode = pytest.mark.parametrize("mode", MODES)


@each_mode
@pytest.mark.parametrize("name", TABLES)
def test_every_run_and_data_set_of_a_table_is_in_its_report(name: str, mode: str) -> None:
    assert reported(dry_run_of(CC2M, *MODES[mode]), name).lacks(load_table(name)) == []


@each_mode
def test_the_last_report_has_all_tables_and_the_others_have_none(mode: str) -> None:
    assert tables_of(dry_run_of(CC2M, *MODES[mode])) == [(), (), (), TABLES]


def test_printed_values_are_compared_unless_the_data_are_emoji9() -> None:
    for mode, wanted in (("CC2M", True), ("Emoji-9", False)):
        *_, tables = options_of_command(dry_run_of(CC2M, *MODES[mode]), "forgetting-report")
        assert tables["paper_data"] is wanted


@each_mode
def test_a_run_of_another_stream_has_another_name(mode: str) -> None:
    steps = options_of_command(dry_run_of(CC2M, *MODES[mode]), "train-step")
    streams: dict[str, set[str]] = {}
    for given in steps:
        streams.setdefault(given["run_name"], set()).add(given["out"].parts[0])
    assert {len(found) for found in streams.values()} == {1}


def test_rows_of_tables_1_and_2_are_of_the_stream_with_as_many_tasks() -> None:
    lines = dry_run_of(CC2M, *MODES["CC2M"])
    count = {
        name: sum(given["run_name"] == name for given in options_of_command(lines, "train-step"))
        for name in reported(lines, "incclip-1").runs
    }
    for name in ("incclip-1", "incclip-2", "incclip-fig3"):
        for row in load_table(name).rows:
            wanted = int(row.group.split()[0]) if row.group else 1
            assert count[row.run] == wanted, row


def test_emoji9_stands_in_for_the_eight_data_sets() -> None:
    found = reported(dry_run_of(CC2M, "--emoji9"), "incclip-1").data
    names = {name.partition("-dataset-")[2] for name in found}
    assert {*GROUPS["incclip"], "flickr30k", "coco"} <= names


@pytest.mark.parametrize("name", ["incclip-4", "incclip-5"])
def test_memory_sizes_are_those_of_their_runs(name: str) -> None:
    lines = dry_run_of(CC2M, *MODES["CC2M"], "--streams", "classes-4")
    sizes = {
        given["out"].parts[2]: given["size"].removesuffix("%")
        for given in options_of_command(lines, "buffer")
    }
    for column in load_table(name).columns:
        assert column.header[1] == f"{sizes[dict(column.selectors)['run']]} %"

"""Recipes print command lines that the program understands, in an order in which they can run."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from support.recipe_lines import (
    DATA,
    RECIPES,
    directories_of,
    dry_run_of,
    options_of,
    options_of_command,
    paths_read,
    train_request,
)

from vlcpctl.data.buffer.policies import check_policy
from vlcpctl.data.splitting.holdout import parse_holdout
from vlcpctl.jobs.script import CommandLine
from vlcpctl.methods import TABLE

WEIGHTS = ("--weights", f"{DATA}/openai.safetensors")
REAL = {
    "ctp_p9d.sh": (),
    "ctp_ablations.sh": (),
    "incclip_cc2m.sh": ("--streams", "classes-4 classes-8 iid-4 iid-8"),
    "dha_citm.sh": (),
    "modx_coco_flickr.sh": (),
    "modx_cc12m.sh": (),
    "modx_ecommerce.sh": WEIGHTS,
    "modx_openai_coco_flickr.sh": WEIGHTS,
}
CASES = [
    *((name, "--data", DATA, *more) for name, more in REAL.items()),
    *((name, "--emoji9") for name in REAL),
    ("tic.sh",),
]

# The longest lists of lines, of which others have the same functions.
LONG = {"incclip_cc2m.sh", "dha_citm.sh"}

each_case = pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            one,
            id=" ".join(one),
            marks=pytest.mark.slow if one[0] in LONG and "--emoji9" not in one else [],
        )
        for one in CASES
    ],
)


@each_case
def test_every_line_is_one_that_the_program_takes(case: tuple[str, ...]) -> None:
    lines = dry_run_of(*case)
    for line in lines:
        assert options_of(line), line
    for given in options_of_command(lines, "train-step"):
        train_request(given)
    for given in options_of_command(lines, "buffer"):
        check_policy(
            given["policy"],
            adds=given["add"] is not None,
            has_checkpoint=given["checkpoint"] is not None,
            stores_features=given["store_features"],
        )
    for given in options_of_command(lines, "split"):
        assert parse_holdout(given["holdout"] or "none") is not None


@each_case
def test_what_a_line_reads_is_written_by_a_line_before_it(case: tuple[str, ...]) -> None:
    made: list[str | None] = []
    for line in dry_run_of(*case):
        for path in paths_read(line) if line.words[0] != "sample" else []:
            assert CommandLine(0, (path,)).reads(made), f"{line} reads {path} too early"
        assert line.makes is not None
        assert line.makes not in made
        made.append(line.makes)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case[0] in REAL and "ctp" not in case[0]]
)
def test_the_tasks_that_are_trained_on_are_those_that_split_makes(case: tuple[str, ...]) -> None:
    lines = dry_run_of(*case)
    there = {path for given in options_of_command(lines, "split") for path in directories_of(given)}
    trained = {
        str(task) for given in options_of_command(lines, "train-step") for task in given["tasks"]
    }
    kept = {str(given["task"]) for given in options_of_command(lines, "buffer")}
    measured = {
        str(task)
        for given in options_of_command(lines, "eval-retrieval")
        for task in given["tasks"]
    }
    assert trained | kept | measured <= there
    assert trained


@each_case
def test_each_method_has_the_buffer_that_it_needs(case: tuple[str, ...]) -> None:
    lines = dry_run_of(*case)
    buffers = {str(given["out"]): given for given in options_of_command(lines, "buffer")}
    for given in options_of_command(lines, "train-step"):
        needs = TABLE[given["method"].split("+")[0]]().needs(first=given["previous"] is None)
        if given["buffer"] is None:
            assert not needs.buffer, given["out"]
            continue
        buffer = buffers[str(given["buffer"])]
        assert needs.policy in ("", buffer["policy"])
        assert buffer["store_features"] or not needs.stored_features


def test_every_file_of_rows_is_reported() -> None:
    for case in CASES:
        lines = dry_run_of(*case)
        evaluated = ("eval-retrieval", "eval-zeroshot", "eval-probe", "spatial-report")
        made = [str(one["out"]) for name in evaluated for one in options_of_command(lines, name)]
        read = [
            row for one in options_of_command(lines, "forgetting-report") for row in one["rows"]
        ]
        assert sorted(made) == sorted(set(read))  # by the report of a stream, and of all tables


@pytest.mark.parametrize("recipe", REAL)
def test_tables_of_papers_count_duplicates_as_the_papers_do(recipe: str) -> None:
    lines = dry_run_of(recipe, "--emoji9")
    evaluated = options_of_command(lines, "eval-retrieval")
    assert evaluated
    assert {given["duplicates"] for given in evaluated} == {"separate"}


def test_the_authors_code_of_ctp_has_all_negatives() -> None:
    """Preset tiny has others."""
    lines = dry_run_of("ctp_p9d.sh", "--emoji9")
    assert {given["negatives"] for given in options_of_command(lines, "train-step")} == {"all"}


def sets_of(lines: list[CommandLine], method: str) -> dict[str, tuple[str, ...]]:
    """The flags of every run of a method."""
    return {
        given["run"]: tuple(given["set"] or ())
        for given in options_of_command(lines, "train-step")
        if given["method"] == method
    }


def test_incclip_has_the_rows_of_tables_3_to_5() -> None:
    lines = dry_run_of("incclip_cc2m.sh", "--data", DATA, "--streams", "classes-4")
    flags = sets_of(lines, "incclip")
    assert flags.pop("incclip-clip") == ("incclip.lambda_=0", "incclip.count=0")
    assert flags.pop("incclip-distil") == ("incclip.count=0",)
    assert set(flags.values()) == {()}
    sizes = {
        str(given["out"]).split("/")[2]: given["size"]
        for given in options_of_command(lines, "buffer")
        if "/incclip" in str(given["out"]) and given["of"] == "stream"
    }
    assert sizes.pop("incclip-clip") == sizes.pop("incclip-distil") == "10%"
    assert sorted(sizes.values()) == ["1%", "10%", "20%", "5%", "50%"]
    zeroshot = options_of_command(lines, "eval-zeroshot")
    assert {given["split"] for given in zeroshot} == {"test", "train"}


def test_incclip_studies_its_parts_on_one_stream_alone() -> None:
    lines = dry_run_of("incclip_cc2m.sh", "--data", DATA, "--streams", "classes-8 iid-4")
    names = Counter(given["run"] for given in options_of_command(lines, "train-step"))
    tables = ("seqf", "er", "ewc", "lwf", "ucir", "co2l", "geodl", "incclip")
    tasks = {"classes-8": 8, "iid-4": 4}
    assert names == {
        f"{name}-{stream}": 1 if name == "joint" else count
        for name in ("joint", *tables)
        for stream, count in tasks.items()
    }


def test_dha_has_the_rows_of_tables_3_to_5_and_figure_5() -> None:
    lines = dry_run_of("dha_citm.sh", "--data", DATA)
    flags = sets_of(lines, "dha")
    pairs = {one for one in flags.values() if "dha.main_share" in "".join(one)}
    assert len(pairs) == 15
    assert {one for one in flags.values() if len(one) == 1} == {
        ("dha.dynamic=false",),
        *((f"dha.every={k}",) for k in (1, 3, 7)),
    }
    sizes = {
        (str(given["out"]).split("/")[1], given["size"], given["policy"])
        for given in options_of_command(lines, "buffer")
    }
    for method in ("er", "der", "dha"):
        assert {(method, "5%", "ring"), (f"{method}-1", "1%", "ring")} <= sizes
        assert (f"{method}-10", "10%", "ring") in sizes
    assert not any(name.endswith("-free") for name, *_ in sizes)


def test_modx_has_the_rows_of_tables_2_3_and_6() -> None:
    lines = dry_run_of("modx_coco_flickr.sh", "--data", DATA)
    flags = sets_of(lines, "modx")
    assert {one for one in flags.values() if one} == {
        (f"modx.alpha={alpha}",) for alpha in (10, 15, 25, 30)
    }
    held = Counter[str]()
    for given in options_of_command(lines, "buffer"):
        held[str(given["out"]).split("/")[1]] += given["add"] or 0
    assert held == {"modx-3000": 3000, "modx-5000": 5000, "der": 0}
    assert {"modx-classes", "seqf-classes"} <= {*flags, *sets_of(lines, "seqf")}


def test_modx_distils_openais_model_from_the_first_part_on() -> None:
    for recipe in ("modx_ecommerce.sh", "modx_openai_coco_flickr.sh"):
        lines = dry_run_of(recipe, "--data", DATA, *WEIGHTS)
        steps = options_of_command(lines, "train-step")
        assert {given["preset"] for given in steps} == {"modx-finetune"}
        assert str(steps[1]["previous"]) == "openai"


@pytest.mark.parametrize("recipe", REAL)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--methods", "ewcc"), "unknown method 'ewcc'"),
        (("--speed", "9"), "unknown option '--speed'"),
        (("speed",), "unknown option 'speed'"),
        (("--out",), "--out needs a value"),
    ],
)
def test_words_that_mean_nothing_are_refused(
    recipe: str, words: tuple[str, ...], message: str
) -> None:
    ended = subprocess.run(
        ["bash", RECIPES / recipe, "--dry-run", "--emoji9", *words],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr


@pytest.mark.parametrize("recipe", REAL)
def test_data_must_be_given(recipe: str) -> None:
    command = ["bash", RECIPES / recipe, "--dry-run"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "give --data DIR" in ended.stderr


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("recipe", "methods", "report"),
    [
        ("incclip_cc2m.sh", "joint incclip", "classes-4/report"),
        ("dha_citm.sh", "der-10 cross", "report"),
        ("modx_coco_flickr.sh", "modx modx-3000", "report"),
        ("modx_ecommerce.sh", "joint modx", "report"),
        ("modx_openai_coco_flickr.sh", "modx", "report"),
        ("modx_cc12m.sh", "modx", "report"),
    ],
)
def test_a_part_of_a_recipe_runs_from_end_to_end(
    tmp_path: Path, recipe: str, methods: str, report: str
) -> None:
    words = ("--emoji9", "--out", tmp_path, "--methods", methods, "--jobs", "1")
    streams = ("--streams", "classes-4") if "incclip" in recipe else ()
    command = ["bash", RECIPES / recipe, *words, *streams]
    subprocess.run(command, check=True, capture_output=True)
    assert len((tmp_path / report / "facts.csv").read_text().splitlines()) > 1

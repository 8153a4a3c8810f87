"""Recipes print command lines that the program understands, in an order in which they can run."""

from __future__ import annotations

import os
import subprocess
from collections import Counter

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
    ("production.sh",),
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
    if case == ("production.sh",):
        made = [os.path.realpath(f"week{number}.parquet") for number in range(1, 5)]
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


def test_the_authors_code_of_ctp_has_all_negatives() -> None:
    """Preset tiny has others."""
    lines = dry_run_of("ctp_p9d.sh", "--emoji9")
    assert {given["negatives"] for given in options_of_command(lines, "train-step")} == {"all"}


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


# Recipes, words that they refuse, and what to type instead.
REFUSED = (
    *((recipe, (), "--data DIR") for recipe in REAL),
    *((recipe, ("--emoji9", "--methods", "ewcc"), "ewcc") for recipe in REAL),
    ("ctp_p9d.sh", ("--emoji9", "--orders", "random"), "default reversed"),
    ("dha_citm.sh", ("--emoji9", "--speed", "9"), "--speed"),
    ("dha_citm.sh", ("--emoji9", "speed"), "speed"),
    ("dha_citm.sh", ("--emoji9", "--out"), "--out"),
    ("production.sh", ("--methods", "er interpolate"), "needs seqf"),
    ("production.sh", ("--emoji9",), "SEEDS=0"),
    ("tic.sh", ("--pairs", "x"), "--time"),
    ("tic.sh", ("--pairs", "x", "--time", "year"), "STEPS=N"),
    ("tic.sh", ("--time", "year"), "--pairs"),
    ("tic.sh", ("--protocols", "oracle"), "sequential patching"),
)


@pytest.mark.parametrize(("recipe", "words", "said"), REFUSED)
def test_words_that_mean_nothing_are_refused(
    recipe: str, words: tuple[str, ...], said: str
) -> None:
    command = ["bash", RECIPES / recipe, "--dry-run", *words]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in ended.stderr


def test_words_for_first_and_for_every_step_are_passed_on() -> None:
    words = ("--methods", "seqf", "--first", "--pretrained none", "--train", "--workers 3")
    lines = dry_run_of("ctp_p9d.sh", "--data", DATA, "--orders", "default", *words)
    steps = options_of_command(lines, "train-step")
    assert [one["pretrained"] for one in steps] == ["none", *[None] * 8]
    assert {one["workers"] for one in steps} == {3}

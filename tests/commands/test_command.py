"""Command lines: values and variables, mistakes, and help, for every command and option."""

from __future__ import annotations

import functools
import inspect
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import get_origin

import pytest
from support.program import ProgramResult, check_refused, run_program

from vlcpctl import cli
from vlcpctl.commands import COMMANDS, GROUPS, command, command_class
from vlcpctl.commands.paths import refuse_url
from vlcpctl.commands.words import _MEANT, OFFERS, option_meant
from vlcpctl.core.options import SECTIONS, options_of, spelled

Program = Callable[..., ProgramResult]
TRAIN = ("train-step", "task", "-o", "out", "--method", "ctp")


@pytest.fixture
def program(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Program:
    """Runs a command line in this process, in an empty directory, without variables of ours."""
    for name in [name for name in os.environ if name.startswith("VLCPCTL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(command, "_warned", set())
    monkeypatch.chdir(tmp_path)
    return lambda *words: run_program(capfd, *words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*TRAIN, "--lr", "abc"), "--lr: "),
        ((*TRAIN, "--lr=-inf"), "--lr: "),
        ((*TRAIN, "--epochs", "0"), "--epochs: 0 is not at least 1"),
        ((*TRAIN, "--seed", 2**63), "--seed: "),
        ((*TRAIN, "--seed", "9" * 5000), "--seed: "),
        ((*TRAIN, "--workers", 10**18), "--workers: "),
        ((*TRAIN, "--run", ""), "--run: the value is empty"),
        ((*TRAIN, "--run", " a"), "--run: ' a'"),
        ((*TRAIN, "--run", "a\x1b[31mb"), r"--run: 'a\x1b[31mb'"),
        (("eval-retrieval", "a", "--checkpoint", "c", "--run", "\u202eb"), "--run: '\\u202eb'"),
        (("train-step", "", "-o", "out", "--method", "ctp"), "TASK: the value is empty"),
        (("train-step", "task", "--method", "ctp"), "--out is missing; see 'vlcpctl train-step"),
        (("train-step", "-o", "out", "--method", "ctp"), "TASK is missing; see 'vlcpctl train"),
        ((*TRAIN, "--optimizer", "adamm"), "did you mean 'adam'"),
        ((*TRAIN, "--lrr", "1"), "unknown option --lrr; did you mean --lr?"),
        ((*TRAIN, "--zzzz"), "unknown option --zzzz; see 'vlcpctl train-step --help'"),
        ((*TRAIN, "--lr"), "--lr needs a value"),
        ((*TRAIN, "--quiet=1"), "--quiet does not take a value"),
        ((*TRAIN, "--pretrained", "image=vit,text=s3://b/x"), "'s3://b/x' is a URL"),
        (("split", "a", "-o", "b", "--labels-from", "checkpoint:s3://b/x"), "'s3://b/x' is a URL"),
        (("eval-retrieval", "a", "--checkpoint", "run/00:s3://b/x"), "'s3://b/x' is a URL"),
        (("inspect", "a", "b"), "got unexpected extra argument(s) (b)"),
        (("split", "a", "-o", "b", "--by", "all:x", "--tasks", "3"), "--tasks has no effect with"),
        (("export", "a", "-o", "b", "--to", "hf", "--rows", "x"), "--to hf-model, onnx"),
        (("buffer", "a", "-o", "b", "--nproc", "2"), "--nproc has no effect without --checkpoint"),
    ],
)
def test_a_mistake_is_one_plain_line(
    program: Program, tmp_path: Path, words: tuple[object, ...], said: str
) -> None:
    check_refused(program(*words), str(words[0]), 2, said)
    assert list(tmp_path.iterdir()) == []


def _paths() -> Iterator[tuple[str, str, bool]]:
    """Every argument ("") and option that may be or contain a path, and if it may be in a store."""
    for name in COMMANDS:
        for field, (row, _) in options_of(command_class(name)).items():
            if row.takes_path:
                yield name, "" if row.is_argument else spelled(field, row), row.stored


@pytest.mark.parametrize(("name", "option", "is_stored"), list(_paths()))
def test_a_url_is_refused_where_a_path_is_meant(
    program: Program, tmp_path: Path, name: str, option: str, *, is_stored: bool
) -> None:
    url = "file:///x" if is_stored else "s3://bucket/x"
    check_refused(program(name, *filter(None, [option]), url), name, 2, f"'{url}' is a URL")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["-", "hf-hub:org/model", "open_clip:ViT-B-32,laion", "checkpoint:runs//00", "c:/x"]
)
def test_names_of_hubs_and_odd_paths_are_not_urls(text: str) -> None:
    refuse_url(text)


@pytest.mark.parametrize("text", ["file:///x", "HTTPS://host/x", "s3://bucket/x", "gs://b"])
def test_a_scheme_makes_a_url(text: str) -> None:
    with pytest.raises(ValueError, match="is a URL"):
        refuse_url(text)


def test_a_store_whose_package_is_missing_names_it(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def filesystem(protocol: str) -> None:
        raise ImportError("Please install gcsfs")

    monkeypatch.setattr("fsspec.filesystem", filesystem)
    check_refused(program("split", "gs://b/x", "-o", "out", "--by", "source"), "split", 2, "gcsfs")


def test_a_file_whose_name_looks_like_an_option_is_found(program: Program, tmp_path: Path) -> None:
    (tmp_path / "-rf").write_bytes(b"")
    ended = program("split", "-rf", "-o", "stream", "--by", "source")
    check_refused(ended, "split", 2, "write ./-rf for the file of this name")


def _set(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(f"VLCPCTL_{name}", value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"TRAIN_STEP_LR": "inf"}, "VLCPCTL_TRAIN_STEP_LR: 'inf'"),
        ({"TRAIN_STEP_LR": "0"}, "VLCPCTL_TRAIN_STEP_LR: 0.0 is not above 0"),
        ({"TRAIN_STEP_SET": "ctp.m=0.5 ctp.n=2"}, "unknown hyper-parameter of ctp: 'n'"),
        ({"TRAIN_STEP_FORCE": "maybe"}, "VLCPCTL_TRAIN_STEP_FORCE: 'maybe'"),
        ({"TRAIN_STEP_PREVIOUS": "s3://b/x"}, "'s3://b/x' is a URL"),
    ],
)
def test_a_variable_is_treated_as_its_option(
    program: Program, monkeypatch: pytest.MonkeyPatch, values: dict[str, str], said: str
) -> None:
    _set(monkeypatch, **values)
    check_refused(program(*TRAIN), "train-step", 2, said)


def test_variables_set_options_lists_and_flags(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    _set(
        monkeypatch,
        TRAIN_STEP_SET="ctp.m=0.5 ctp.keep_queue=true",
        TRAIN_STEP_LR="0.25",
        TRAIN_STEP_PRINT_CONFIG="yes",
        TRAIN_STEP_QUIET="0",
        TRAIN_STEP_EPOCHS="",  # counts as not set
    )
    found = program(*TRAIN).out.splitlines()
    assert {"lr = 0.25  [flag]", "ctp.m = 0.5  [flag]", "ctp.keep_queue = True  [flag]"} <= {*found}


def test_several_paths_in_a_variable_are_separated_as_in_path(
    program: Program, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = os.pathsep.join(str(place / name) for name in ("plain", "queued"))
    _set(monkeypatch, SPATIAL_REPORT_CHECKPOINT=both)
    line = ("spatial-report", place / "stream" / "00-part-0", "--dry-run")
    ended = program(*line)
    assert ended.code == 0, ended.err
    _set(monkeypatch, SPATIAL_REPORT_CHECKPOINT=os.pathsep.join([both, "s3://b/x"]))
    check_refused(program(*line), line[0], 2, "'s3://b/x' is a URL")


def test_a_variable_that_sets_nothing_is_told_with_the_nearest(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    _set(monkeypatch, METHODS_JSN="1", FOO="1", TRAIN_STEP_LRR="1", METHODS_EMPTY="", DEBUG="0")
    first, second = program("methods", "ctp").err.splitlines()
    assert "VLCPCTL_FOO has no effect" in first
    assert "did you mean VLCPCTL_METHODS_JSON?" in second
    monkeypatch.setattr(command, "_warned", set())
    assert "did you mean VLCPCTL_TRAIN_STEP_LR?" in program(*TRAIN).err  # when train-step runs


@pytest.mark.parametrize(
    ("name", "option", "meant"),
    [
        ("train-step", "--amp", "--precision"),
        ("train-step", "--learning_rate", "--lr"),
        ("train-step", "--train-data", "TASK without an option"),
        ("train-step", "--dataset", "TASK without an option"),
        ("eval-zeroshot", "--dataset", "--data"),
        ("train-step", "--step", "--steps"),
        ("train-step", "--zzz", None),
    ],
)
def test_an_option_of_another_program_is_understood(
    name: str, option: str, meant: str | None
) -> None:
    assert option_meant(option, _options(name), "TASK") == meant


def _options(name: str) -> list[str]:
    return [spelled(field, row) for field, (row, _) in options_of(command_class(name)).items()]


def test_what_is_suggested_or_offered_exists() -> None:
    known = {option for name in COMMANDS for option in _options(name)}
    for name, several in _MEANT.items():
        for one in filter(None, several):
            assert one in known if name.startswith("--") else one.split()[0] in {*COMMANDS, one}
    rows = [row for name in COMMANDS for row, _ in options_of(command_class(name)).values()]
    assert {row.offers for row in rows if isinstance(row.offers, str)} - {""} == OFFERS.keys()


@functools.cache
def help_of(name: str, option: str = "--help", columns: int = 80) -> str:
    """What a command says about itself in a terminal of this width."""
    told = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(told):
        patch.setenv("COLUMNS", str(columns))
        patch.setattr(sys, "argv", ["vlcpctl", name, option])
        with pytest.raises(SystemExit):
            cli.main()
    return told.getvalue()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_told_once_in_its_section(name: str) -> None:
    """As a sentence, within the terminal, under --help or, if it is rare, under --help-all."""
    kind = command_class(name)
    text, rows = help_of(name, columns=80), options_of(kind)
    has_rare = any(row.rare for row, _ in rows.values())
    whole = help_of(name, "--help-all") if has_rare else text
    heading = re.compile(r"^(?=(?:Required|Arguments|Options):$)", re.MULTILINE)
    told, told_at_first = (heading.split(one, maxsplit=1)[1] for one in (whole, text))
    assert max(map(len, whole.splitlines())) <= 80
    assert not [line for line in whole.splitlines() if re.search(r"\S-$", line)]
    for field, (row, of) in rows.items():
        assert row.text[0].isupper()
        assert not row.text.endswith(".")
        assert row.metavar or of is bool or get_origin(of) is list
        shown = re.compile(rf"^  (-\w, )?{re.escape(spelled(field, row))}(?![\w-])", re.MULTILINE)
        assert len(shown.findall(told)) == 1, field
        assert bool(shown.search(told_at_first)) != row.rare, field
    headings = re.findall(r"^(\w[\w ]+):$", told, re.MULTILINE)
    order = ("Required", "Arguments", *SECTIONS, "Options")
    assert headings == [one for one in order if one in headings]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_the_docstring_and_its_examples_as_they_are_typed(name: str) -> None:
    wanted = inspect.getdoc(command_class(name)) or ""
    assert " ".join(wanted.split()) in " ".join(help_of(name).split())
    lines = [line for line in wanted.split("Examples:\n")[1].split("\n") if line]
    assert any(f"vlcpctl {name}" in line for line in lines)
    assert {f"  {line}" for line in lines} <= {*help_of(name).splitlines()}


@pytest.mark.parametrize("name", COMMANDS)
def test_short_help_has_what_is_required_and_usual(name: str) -> None:
    text, rows = help_of(name, "-h"), options_of(command_class(name))
    if sum(not row.is_argument for row, _ in rows.values()) < command.MANY:
        assert text == help_of(name)
        return
    assert len(text.splitlines()) <= 50
    assert text.count("(") == text.count(")")
    wanted = [
        spelled(field, row)
        for field, (row, _) in rows.items()
        if row.usual or command.is_required(command_class(name), field)
    ]
    assert all(re.search(rf"^  .*{re.escape(one)}\b", text, re.MULTILINE) for one in wanted)


def test_the_programs_help_has_every_command_in_a_group() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "vlcpctl", "help"], capture_output=True, text=True, check=True
    )
    assert re.findall(r"^(\w+):$", ended.stdout, re.MULTILINE)[1:] == list(GROUPS)
    for name, about in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(about.summary)}$", ended.stdout, re.MULTILINE)


def test_help_of_a_command_by_its_name(program: Program) -> None:
    assert program("help", "inspect").out == program("inspect", "--help").out

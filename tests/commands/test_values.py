"""Values of options: what is refused, in which words, and what comes from the environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer.main
from support.program import ProgramResult, check_refused, make_inputs, run_program
from typer.models import OptionInfo

from vlcpctl import cli
from vlcpctl.commands import COMMANDS, module_name, values
from vlcpctl.commands.paths import may_be_stored, refuse_url
from vlcpctl.core.words import LARGEST

Program = Callable[..., ProgramResult]

# Words of metavars that stand for a path, or for something that may be one.
PATHS = {
    *("DIR", "FILE", "PATH", "TASK", "DATASET", "DATA", "NEW_DATA", "ROWS", "SOURCE"),
    *("WEIGHTS", "CKPT"),
}


@pytest.fixture
def program(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Program:
    """Runs a command line in this process, in an empty directory, without variables of ours."""
    for name in [name for name in os.environ if name.startswith("VLCPCTL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(values, "_warned", set())
    monkeypatch.chdir(tmp_path)
    return lambda *words: run_program(capfd, *words)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands read."""
    return make_inputs(tmp_path_factory.mktemp("inputs"))


TRAIN = ("train-step", "task", "-o", "out", "--method", "ctp")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*TRAIN, "--lr", "abc"), "--lr: 'abc' is not a finite number"),
        ((*TRAIN, "--lr", "nan"), "--lr: 'nan' is not a finite number"),
        ((*TRAIN, "--lr=-inf"), "--lr: '-inf' is not a finite number"),
        ((*TRAIN, "--lr", "1e999"), "--lr: '1e999' is not a finite number"),
        ((*TRAIN, "--lr", "1_0"), "--lr: '1_0' is not a finite number"),
        ((*TRAIN, "--lr", "\u0661e-3"), "--lr: '\u0661e-3' is not a finite number"),
        ((*TRAIN, "--epochs", "2.5"), "--epochs: '2.5' is not a whole number"),
        ((*TRAIN, "--epochs", "0"), "--epochs: 0 is too small; it must be at least 1"),
        ((*TRAIN, "--epochs", "\u0663"), "--epochs: '\u0663' is not a whole number"),
        ((*TRAIN, "--seed", "-1"), "--seed: -1 is too small; it must be at least 0"),
        ((*TRAIN, "--seed", 2**63), f"--seed: {2**63} is too large; it must be at most {LARGEST}"),
        ((*TRAIN, "--seed", "9" * 5000), "is too large; it must be at most"),
        ((*TRAIN, "--workers", 10**18), f"--workers: {10**18} is too large; it must be at most"),
        ((*TRAIN, "--threads", 10**18), "--threads: "),
        ((*TRAIN, "--run", ""), "--run: the value is empty"),
        ((*TRAIN, "--run", "   "), "--run: the name is empty"),
        ((*TRAIN, "--run", " a"), "--run: ' a' starts or ends with a space"),
        ((*TRAIN, "--run", "a\x1b[31mb"), r"--run: 'a\x1b[31mb' contains characters that cannot"),
        ((*TRAIN, "--run", "a\nb"), r"--run: 'a\nb' contains characters that cannot be printed"),
        (("interpolate", "a", "b", "-o", "c", "--run", "\t"), "--run: the name is empty"),
        (("import-checkpoint", "a", "-o", "c", "--run", "a\x07"), r"--run: 'a\x07' contains"),
        (("eval-retrieval", "a", "--checkpoint", "c", "--run", "\u202eb"), "--run: '\\u202eb'"),
        ((*TRAIN, "--previous", ""), "--previous: the value is empty (an unset shell variable"),
        (("train-step", "task", "-o", "", "--method", "ctp"), "--out: the value is empty"),
        (("train-step", "", "-o", "out", "--method", "ctp"), "TASK: the value is empty"),
        (("train-step", "task", "--method", "ctp"), "--out is missing; see 'vlcpctl train-step"),
        (("train-step", "-o", "out", "--method", "ctp"), "TASK is missing; see 'vlcpctl train"),
        ((*TRAIN, "--lrr", "1"), "unknown option --lrr; did you mean --lr?"),
        ((*TRAIN, "--zzzz"), "unknown option --zzzz; see 'vlcpctl train-step --help'"),
        ((*TRAIN, "--lr"), "--lr needs a value"),
        ((*TRAIN, "--quiet=1"), "--quiet does not take a value"),
        (("inspect", "a", "b"), "got unexpected extra argument(s) (b)"),
    ],
)
def test_a_mistake_is_one_plain_line(
    program: Program, tmp_path: Path, words: tuple[object, ...], said: str
) -> None:
    check_refused(program(*words), str(words[0]), 2, said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("train-step", "task", "-o", "s3://bucket/run", "--method", "ctp"),
        ("train-step", "http://host/task", "-o", "out", "--method", "ctp"),
        (*TRAIN, "--previous", "https://host/run"),
        (*TRAIN, "--model", "s3://bucket/model.json"),
        (*TRAIN, "--log", "tensorboard:hdfs://logs"),
        ("sample", "emoji9", "-o", "file:///tmp/pairs.parquet"),
        ("split", "file:///pairs", "-o", "stream", "--by", "source"),
        ("split", "a.json", "-o", "stream", "--by", "source", "--class-names", "s3://images"),
        ("eval-retrieval", "task", "--checkpoint", "c", "-o", "s3://bucket/rows"),
        ("eval-zeroshot", "task", "--checkpoint", "s3://bucket/c"),
        ("forgetting-report", "s3://bucket/rows"),
        ("import-checkpoint", "https://host/weights.pt", "-o", "out"),
        ("check", "s3://bucket/run"),
        ("batch", "s3://bucket/lines"),
    ],
)
def test_a_url_is_not_a_path(program: Program, tmp_path: Path, words: tuple[str, ...]) -> None:
    said = f"is a URL, not a local path; {words[0]} "
    check_refused(program(*words), words[0], 2, said, "://")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "package"), [("gs://b/x", "gcsfs"), ("s3://b/x", "pip install fsspec s3fs")]
)
def test_a_store_whose_package_is_missing_names_it(
    program: Program, monkeypatch: pytest.MonkeyPatch, url: str, package: str
) -> None:
    def filesystem(protocol: str) -> None:
        raise ImportError(f"Please install {package}")

    monkeypatch.setattr("fsspec.filesystem", filesystem)
    done = program("split", url, "-o", "out", "--by", "source")
    check_refused(done, "split", 2, url, package)


def _path_parameters() -> Iterator[tuple[str, str]]:
    """Every command with every argument (by its name) and option that may be or contain a path."""
    for name in COMMANDS:
        hints = get_type_hints(import_module(module_name(name)).run, include_extras=True)
        for parameter, annotation in hints.items():
            information = getattr(annotation, "__metadata__", (None,))[0]
            metavar = str(getattr(information, "metavar", ""))
            if "pathlib" in str(annotation).split("typer")[0] or PATHS & set(
                re.split(r"[|:=,\[\]. ]", metavar)
            ):
                is_option = isinstance(information, OptionInfo)
                # typer takes the first name for the default until it has read the annotation.
                names = (getattr(information, "default", None), f"--{parameter.replace('_', '-')}")
                option = next(one for one in names if str(one).startswith("--"))
                yield name, option if is_option else ""


@pytest.mark.parametrize(("command", "option"), sorted(set(_path_parameters())))
def test_a_url_is_refused_by_every_path_of_every_command(
    program: Program, tmp_path: Path, command: str, option: str
) -> None:
    for url in ("s3://bucket/x", "file:///x", "hf://datasets/x", "gs://b", "HTTPS://host/x"):
        arguments = ("sources", "task", "tasks", "data_sets")
        name = {"": arguments}.get(option, (option[2:].replace("-", "_"),))
        if any(may_be_stored(command, one, url) for one in name):
            continue
        said = f"'{url}' is a URL, not a local path; {command} "
        check_refused(program(command, *filter(None, [option]), url), command, 2, said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (("split", "a", "--labels-from", "checkpoint:s3://b/x", "-o", "out"), {}),
        ((*TRAIN, "--pretrained", "image=vit,text=s3://b/x"), {}),
        (TRAIN, {"TRAIN_STEP_PREVIOUS": "s3://b/x"}),
        (("eval-retrieval", "task"), {"EVAL_RETRIEVAL_CHECKPOINT": "s3://b/x"}),
        (("eval-retrieval", "task"), {"EVAL_RETRIEVAL_CHECKPOINT": "run/00:s3://b/x"}),
    ],
)
def test_a_url_is_found_within_values(
    program: Program,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    environment: dict[str, str],
) -> None:
    _set(monkeypatch, **environment)
    check_refused(program(*words), words[0], 2, "'s3://b/x' is a URL, not a local path")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        *("-", "hf-hub:org/model", "open_clip:ViT-B-32,laion2b_s34b_b79k", "timm:resnet50,a.pt"),
        *(
            "image=vit_base,text=bert-base-uncased",
            "checkpoint:runs//00",
            "a:b",
            "/data//x",
            "c:/x",
        ),
    ],
)
def test_names_of_hubs_and_odd_paths_are_not_urls(text: str) -> None:
    refuse_url(text, "train-step")


def test_a_file_whose_name_looks_like_an_option_is_found(program: Program, tmp_path: Path) -> None:
    (tmp_path / "-rf").write_bytes(b"")
    ended = program("split", "-rf", "-o", "stream", "--by", "source")
    check_refused(ended, "split", 2, "unknown option -rf; write ./-rf for the file of this name")


def _set(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(f"VLCPCTL_{name}", value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"TRAIN_STEP_LR": "inf"}, "VLCPCTL_TRAIN_STEP_LR: 'inf' is not a finite number"),
        ({"TRAIN_STEP_LR": "0"}, "--lr must be above 0"),
        ({"TRAIN_STEP_SET": "x"}, "--set 'x' is not of the form METHOD.PARAMETER=VALUE"),
        ({"TRAIN_STEP_SET": "ctp.m=0.5 ctp.n=2"}, "unknown hyper-parameter of ctp: 'n'"),
        ({"TRAIN_STEP_RUN": "a\x07"}, r"VLCPCTL_TRAIN_STEP_RUN: 'a\x07' contains"),
        ({"TRAIN_STEP_FORCE": "maybe"}, "VLCPCTL_TRAIN_STEP_FORCE: 'maybe' is neither true nor"),
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
    ended = program(*TRAIN)
    assert ended.code == 0, ended.err
    found = ended.out.splitlines()
    assert "lr = 0.25  [flag]" in found
    assert "ctp.m = 0.5  [flag]" in found
    assert "ctp.keep_queue = True  [flag]" in found


def test_several_paths_in_a_variable_are_separated_as_in_path(
    program: Program, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = os.pathsep.join(str(place / name) for name in ("plain", "queued"))
    _set(monkeypatch, SPATIAL_REPORT_CHECKPOINT=both)
    ended = program("spatial-report", place / "stream" / "00-part-0", "--dry-run")
    assert ended.code == 0, ended.err


def test_a_variable_that_sets_nothing_is_told_with_the_nearest(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    _set(
        monkeypatch,
        METHODS_JSN="1",
        FOO="1",
        TRAIN_STEP_LRR="1",  # is checked when train-step runs
        METHODS_EMPTY="",
        DEBUG="0",
    )
    ended = program("methods", "ctp")
    assert ended.code == 0
    assert ended.err.splitlines() == [
        "warning: the environment variable VLCPCTL_FOO has no effect",
        (
            "warning: the environment variable VLCPCTL_METHODS_JSN has no effect; "
            "did you mean VLCPCTL_METHODS_JSON?"
        ),
    ]
    monkeypatch.setattr(values, "_warned", set())
    assert "VLCPCTL_TRAIN_STEP_LRR has no effect; did you mean VLCPCTL_TRAIN_STEP_LR?" in (
        program(*TRAIN).err
    )


@pytest.mark.parametrize(
    ("value", "shows"),
    [("0", False), ("false", False), ("No", False), ("", False), ("1", True), ("yes", True)],
)
def test_debugging_is_turned_on_by_a_true_value(
    program: Program, monkeypatch: pytest.MonkeyPatch, value: str, *, shows: bool
) -> None:
    monkeypatch.setenv("VLCPCTL_DEBUG", value)
    assert program("inspect", "nowhere").err.startswith("Traceback") == shows


@pytest.mark.parametrize(
    "words",
    [
        (*TRAIN, "--preset", "tiny", "--lr", "0.1", "--set", "ctp.m=0.5", "--dry-run"),
        ("check", "nowhere"),
        ("eval-retrieval", "task", "--checkpoint", "c"),
        (*TRAIN, "--lr", "abc"),
        ("methods",),
    ],
)
def test_no_command_line_imports_pydantic(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Its import takes 0.2 s; typer uses it to convert values, which `commands.values` does."""
    code = f"""
import sys
sys.argv = ["vlcpctl", *{words!r}]
from vlcpctl.cli import main
try:
    main()
finally:
    print("pydantic" in sys.modules)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ended.stdout.splitlines()[-1] == "False"


HOSTILE = ("nan", "-inf", "-1", "0", "1e30", str(10**18), "", "\u0661", "a,b")


def _parameters(name: str) -> list[Any]:
    program: Any = typer.main.get_command(cli.application(name))
    found = program.commands[name]
    return [one for one in found.params if one.param_type_name == "option" and not one.is_flag]


def _words(place: Path, name: str) -> tuple[object, ...]:
    task, model = place / "stream" / "01-part-1", place / "plain"
    first = place / "stream" / "00-part-0"
    shards = first / "train-000000.tar"
    seqf = ("--method", "seqf", "--preset", "tiny", "--run", "seqf", "--batch-size", 4)
    words: dict[str, tuple[object, ...]] = {
        "split": (shards, "-o", "out", "--by", "source", "--dry-run"),
        "buffer": (first, "-o", "out", "--size", 6, "--dry-run"),
        "invert-texts": (
            "--checkpoint",
            model,
            "--buffer",
            place / "buffer",
            "-o",
            "o",
            "--dry-run",
        ),
        "distill": (task, "--teacher", model, "-o", "out", "--dry-run"),
        "train-step": (task, *seqf, "--previous", model, "-o", "out", "--dry-run"),
        "interpolate": (model, place / "queued", "-o", "out", "--dry-run"),
        "merge": (model, place / "queued", "-o", "out", "--dry-run"),
        "eval-retrieval": (task, "--checkpoint", model, "--dry-run"),
        "eval-zeroshot": (task, "--checkpoint", model, "--split", "train", "--dry-run"),
        "eval-probe": (task, "--checkpoint", model, "--dry-run"),
        "spatial-report": (task, "--checkpoint", model, "--checkpoint", model, "--dry-run"),
        "import-checkpoint": (model, "-o", "out", "--dry-run"),
        "forgetting-report": ("rows",),
        "batch": ("lines", "--dry-run"),
    }
    return words.get(name, ())


def _options(*metavars: str) -> list[tuple[str, str]]:
    """Each command with each of its options, or those with these metavars."""
    return [
        (name, max(one.opts, key=len))
        for name in COMMANDS
        if name not in {"sample", "inspect", "check", "methods", "doctor"}
        for one in _parameters(name)
        if not metavars or one.metavar in metavars
    ]


@pytest.mark.parametrize(("name", "option"), _options("X", "SHARE", "N,M", "LOW,HIGH", "N|P%"))
def test_no_number_ends_in_a_traceback(
    program: Program, place: Path, tmp_path: Path, name: str, option: str
) -> None:
    _try_values(program, place, tmp_path, name, option, values=("nan", "-1", "0", "1e30"))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "option"), _options())
def test_no_value_ends_in_a_traceback(
    program: Program, place: Path, tmp_path: Path, name: str, option: str
) -> None:
    _try_values(program, place, tmp_path, name, option, values=HOSTILE)


def _try_values(
    program: Program, place: Path, tmp_path: Path, name: str, option: str, values: tuple[str, ...]
) -> None:
    (tmp_path / "lines").write_text("methods\n")
    (tmp_path / "rows").write_text("")
    for value in values:
        ended = program(name, *_words(place, name), f"{option}={value}")
        assert ended.code in {0, 2, 3, 4, 5}, (value, ended.err)
        assert "Traceback" not in ended.err, (value, ended.err)
        if ended.code:
            *_, last = ended.err.splitlines()
            assert last.startswith(f"vlcpctl {name}: "), (value, ended.err)

"""A function runs its command: the same options, the same bytes, its errors as exceptions."""

from __future__ import annotations

import inspect
import json
import keyword
from pathlib import Path
from typing import Any

import pytest
import typer.main
from support.eval_rows import own_rows
from support.program import MICRO, TINY, make_inputs, run_program

import vlcpctl
from vlcpctl.api import FUNCTIONS
from vlcpctl.cli import application
from vlcpctl.testing.tiny_stream import make_stream, make_task

PRINTING = {"json", "dry_run", "print_config", "list"}


def click_options(name: str) -> dict[str, Any]:
    """The options that the help of the command shows, by the name that a parameter has."""
    command = name.replace("_", "-")
    program: Any = typer.main.get_command(application(command))
    found = {}
    for one in program.commands[command].params:
        if one.param_type_name == "option":
            name = max(one.opts, key=len).lstrip("-").replace("-", "_")
            found[f"{name}_" if keyword.iskeyword(name) else name] = one
    return {name: one for name, one in found.items() if name not in PRINTING}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_options_of_its_command(name: str) -> None:
    parameters = inspect.signature(getattr(vlcpctl, name)).parameters.values()
    named = {one.name: one for one in parameters if one.kind == one.KEYWORD_ONLY}
    options = click_options(name)
    assert named.keys() == options.keys()
    for word, option in options.items():
        default, shown = option.default, named[word].default
        if option.required:
            assert shown is inspect.Parameter.empty
        elif str(default) == "-":
            assert shown is None  # rows are returned
        else:
            assert shown == default
        assert ("Iterable" in named[word].annotation) == bool(option.multiple)


def test_the_help_of_a_function_explains_its_parameters() -> None:
    text = inspect.getdoc(vlcpctl.split) or ""
    assert "Rule that assigns pairs to tasks: column:NAME" in text
    assert "Examples:" not in text


def tree(root: Path) -> dict[str, object]:
    """The files of a checkpoint, without what differs between two runs: times, the command line."""
    manifest = json.loads((root / "checkpoint.json").read_text())
    found: dict[str, object] = {name: manifest[name] for name in ("content", "identity")}
    for path in root.rglob("*"):
        if path.is_file() and path.name not in {"checkpoint.json", "metrics.jsonl"}:
            found[str(path.relative_to(root))] = path.read_bytes()
    return found


def test_a_checkpoint_has_the_bytes_of_the_command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = make_stream(tmp_path / "stream", 1, 8) / "00-part-0"
    done = run_program(capfd, "train-step", task, "-o", tmp_path / "command", *TINY, *MICRO)
    assert done.code == 0, done.err
    how = {"method": "ctp", "preset": "tiny", "model": "micro", "batch_size": 4, "epochs": 1}
    made = vlcpctl.train_step(task, out=tmp_path / "function", **how)  # type: ignore[arg-type]
    assert made == tmp_path / "function"
    assert tree(made) == tree(tmp_path / "command")
    assert "final loss" in capfd.readouterr().err


def test_merged_checkpoints_have_the_bytes_of_the_commands(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    inputs = make_inputs(tmp_path / "inputs")
    models = (inputs / "plain", inputs / "queued")
    for words in (
        ("merge", *models, "--weights", "1,3", "-o", tmp_path / "command"),
        ("interpolate", *models, "--alpha", "0,0.25", "-o", tmp_path / "commands"),
    ):
        assert run_program(capfd, *words).code == 0
    merged = vlcpctl.merge(models, out=tmp_path / "function", weights=(1, 3))
    assert tree(merged) == tree(tmp_path / "command")
    sweep = vlcpctl.interpolate(*models, out=tmp_path / "functions", alpha=(0, 0.25))
    assert sorted(path.name for path in sweep.iterdir()) == ["alpha-0", "alpha-0.25"]
    for share in sweep.iterdir():
        assert tree(share) == tree(tmp_path / "commands" / share.name)


def test_rows_are_returned_and_can_be_reported(tmp_path: Path) -> None:
    rows = own_rows()
    report = vlcpctl.forgetting_report(rows, metric="rm")
    (file := tmp_path / "rows.ndjson").write_text("".join(f"{json.dumps(one)}\n" for one in rows))
    kept = vlcpctl.forgetting_report(file, metric="rm", out=tmp_path / "report")
    assert (report.path, kept.path) == (None, tmp_path / "report")
    assert report.summary == kept.summary == json.loads((kept.path / "summary.json").read_text())
    assert report.page == (kept.path / "report.html").read_text()
    assert vlcpctl.Report.read(str(kept.path)) == kept
    with pytest.raises(TypeError, match="DataFrame"):
        vlcpctl.forgetting_report(vlcpctl.load_rows(rows), metric="rm")


def test_a_report_is_shown_in_a_frame_that_cannot_reach_the_notebook(tmp_path: Path) -> None:
    shown = vlcpctl.forgetting_report(own_rows(), metric="rm")._repr_html_()
    assert shown.startswith("<iframe ")
    assert "allow-same-origin" not in shown
    assert "<!doctype html>" not in shown.lower()  # the page is escaped


def test_facts_are_returned(tmp_path: Path) -> None:
    task = make_task(tmp_path / "task", 3)
    assert vlcpctl.inspect(task)["kind"] == "task"


def test_lists_repeat_an_option(tmp_path: Path) -> None:
    """With a path in a list, one alone, and a task in a list of arguments."""
    task = make_task(tmp_path / "task", 4)
    for left_out in (task, [task]):
        with pytest.raises(vlcpctl.BadInput, match="4 known from tiny"):
            vlcpctl.split([task], out=tmp_path / "out", by="iid", tasks=1, not_=left_out)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda at: vlcpctl.split(at, out=at / "out", by="what"),
            "UsageError",
            "--by: unknown rule",
        ),
        (lambda at: vlcpctl.inspect(at / "nothing"), "BadInput", "nothing: does not exist"),
        (
            lambda at: vlcpctl.forgetting_report(own_rows(), metric="rm", fail_if="bwt_gem:lt:-1"),
            "GateFailed",
            "bwt_gem",
        ),
    ],
    ids=["usage", "input", "gate"],
)
def test_errors_are_exceptions(
    call: Any, kind: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(getattr(vlcpctl, kind)) as caught:
        call(tmp_path)
    assert message in str(caught.value)
    assert not str(caught.value).startswith("vlcpctl ")
    assert str(caught.value) not in capfd.readouterr().err  # it is said once


@pytest.fixture
def printing(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Lets a test say what the next command prints; gives the words that it was run with."""
    said: dict[str, Any] = {}

    def output_of(command: str, words: list[str], stdin: str) -> str:
        said["ran"] = [command, *words]
        return str(said["prints"])

    monkeypatch.setattr("vlcpctl.api.functions.output_of", output_of)
    return said


@pytest.mark.parametrize(
    "printed",
    [
        '{"week": 1, "checkpoint": "prod/weeks/0001/checkpoint"}',
        '[{"checkpoint": "prod/old"}, {"checkpoint": "prod/weeks/0001/checkpoint"}]',
    ],
    ids=["a week", "weeks made again"],
)
def test_update_returns_the_last_checkpoint(printed: str, printing: dict[str, Any]) -> None:
    printing["prints"] = printed
    made = vlcpctl.update("week.parquet", state="prod", keep=3, drop_leaks=False)
    assert made == Path("prod/weeks/0001/checkpoint")
    assert printing["ran"] == [
        *("update", "--json", "--state=prod", "--refuse-leaks", "--keep=3", "--", "week.parquet")
    ]


@pytest.mark.parametrize("out", [None, "-"])
def test_rows_are_returned_without_a_file(out: str | None, printing: dict[str, Any]) -> None:
    printing["prints"] = '{"run": "a"}\n{"run": "b"}\n'
    rows = vlcpctl.eval_zeroshot(["t"], "cifar10", checkpoint="c", out=out)
    assert rows == [{"run": "a"}, {"run": "b"}]
    assert printing["ran"][-3:] == ["--", "t", "cifar10"]
    assert vlcpctl.eval_zeroshot("t", checkpoint="c", out="rows") == Path("rows")


def test_a_mistyped_keyword_is_refused_with_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"^split\(\) .* 'task'; did you mean 'tasks'\?$"):
        vlcpctl.split("pairs", out="stream", by="iid", task=3)  # type: ignore[call-arg]


def test_a_missing_option_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^split\(\) missing a required argument: 'by'$"):
        vlcpctl.split("pairs", out="stream")  # type: ignore[call-arg]

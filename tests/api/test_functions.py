"""A function runs its command: the same options, the same bytes, its errors as exceptions."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import own_rows
from support.program import MICRO, TINY, run_program

import vlcpctl
from vlcpctl.api import NAMES
from vlcpctl.commands import command_class
from vlcpctl.core.options import options_of
from vlcpctl.testing.tiny_stream import make_stream


@pytest.mark.parametrize(("command", "name"), NAMES.items())
def test_a_function_has_the_options_of_its_command(command: str, name: str) -> None:
    """But those that decide only what is printed."""
    found = inspect.signature(getattr(vlcpctl, name)).parameters
    rows = options_of(command_class(command))
    assert found.keys() == rows.keys() - {"json", "dry_run", "print_config"} | (
        {"dry_run"} if name == "forget" else set()
    )
    for word, one in found.items():
        assert (one.kind == one.POSITIONAL_OR_KEYWORD) == rows[word][0].is_argument
        assert "Takes" not in str(one.annotation)


@pytest.mark.slow
def test_the_functions_are_typed(tmp_path: Path) -> None:
    """As a user's mypy sees them: paths may be text, and what is not an option is an error."""
    right = [
        "a: Path = vlcpctl.split(['a.csv', Path('b')], out='s', by='iid', tasks=3, only=['x'])",
        "a = vlcpctl.train_step('t', out='r', method='ctp', lr=0.1, set=['ctp.m=1'], flip=False)",
        "a = vlcpctl.update('w.csv', state='prod', lr='none', keep=3, set='buffer.size=5%')",
        "a = vlcpctl.merge(['a', 'b'], out='m', weights=(1, 3))",
        "r = vlcpctl.eval_retrieval('t', checkpoint=['c', Path('d')], workers='auto')",
        "r = vlcpctl.eval_zeroshot('t', checkpoint='c', max_skip=3)",
        "r = vlcpctl.eval_probe('t', checkpoint='c') + vlcpctl.spatial_report('t', checkpoint='c')",
        "report: vlcpctl.Report = vlcpctl.forgetting_report(r, fail_if='rm:lt:3')",
        "report = vlcpctl.forgetting_report(['rows.ndjson'], group_by=['lr'])",
        "print(vlcpctl.inspect('p')['kind'], vlcpctl.check('p')[0], vlcpctl.doctor()['checks'])",
        "print(vlcpctl.forget('p', where='x=1', dry_run=True)['pairs'], vlcpctl.list_methods())",
        "a = vlcpctl.sample('emoji9', out='p', groups=['Flags'])",
        "a = vlcpctl.buffer('t', out='b', size='5%', previous=Path('a'))",
        "a = vlcpctl.distill('t', out='b', teacher='c', crop_scale=(0.5, 1.0))",
        "a = vlcpctl.invert_texts(checkpoint='c', buffer='b', out='o')",
        "a = vlcpctl.import_checkpoint('x.pt', out='c', model='ViT-B-32')",
        "a = vlcpctl.export_as('c', out='m', to='onnx')",
        "text: str = vlcpctl.batch('lines', jobs=2)",
    ]
    wrong = [
        "vlcpctl.split('a', by='iid')",
        "vlcpctl.split('a', out='b', by=3)",
        "vlcpctl.train_step('a', out='b', method='ctp', lrr=3)",
        "vlcpctl.eval_retrieval('t', checkpoint=3)",
    ]
    lines = ["from pathlib import Path", "import vlcpctl", *right, *wrong]
    (tmp_path / "use.py").write_text("\n".join(lines) + "\n")
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", tmp_path / "use.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    found = {int(line.split(":")[1]) for line in ended.stdout.splitlines() if ": error:" in line}
    assert found == {number + len(lines) - len(wrong) + 1 for number in range(len(wrong))}


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


def test_rows_are_returned_and_can_be_reported(tmp_path: Path) -> None:
    rows = own_rows()
    report = vlcpctl.forgetting_report(rows, metric="rm")
    (file := tmp_path / "rows.ndjson").write_text("".join(f"{json.dumps(one)}\n" for one in rows))
    kept = vlcpctl.forgetting_report(file, metric="rm", out=tmp_path / "report")
    assert (report.path, kept.path) == (None, tmp_path / "report")
    assert report.summary == kept.summary == json.loads((kept.path / "summary.json").read_text())
    assert report.page == (kept.path / "report.html").read_text()
    assert vlcpctl.Report.read(str(kept.path)) == kept
    with pytest.raises(vlcpctl.BadInput, match=r"summary\.json"):
        vlcpctl.Report.read(tmp_path)
    with pytest.raises(TypeError, match="DataFrame"):
        vlcpctl.forgetting_report(vlcpctl.load_rows(rows), metric="rm")


def test_a_report_is_shown_in_a_frame_that_cannot_reach_the_notebook(tmp_path: Path) -> None:
    shown = vlcpctl.forgetting_report(own_rows(), metric="rm")._repr_html_()
    assert shown.startswith("<iframe ")
    assert "allow-same-origin" not in shown
    assert "<!doctype html>" not in shown.lower()  # the page is escaped


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
    assert printing["ran"][-2:] == ["--", "week.parquet"]
    assert {*printing["ran"][:-2]} == {
        *("update", "--json", "--state=prod", "--keep=3", "--refuse-leaks")
    }


@pytest.mark.parametrize("out", [None, "-", "rows"])
def test_rows_are_returned(
    out: str | None, printing: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '{"run": "a"}\n{"run": "b"}\n'
    printing["prints"] = "rows\n" if out == "rows" else text
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").write_text(text)
    rows = vlcpctl.eval_zeroshot(["t", "cifar10"], checkpoint="c", out=out)
    assert rows == [{"run": "a"}, {"run": "b"}]
    assert printing["ran"][-3:] == ["--", "t", "cifar10"]
    assert f"--out={out or '-'}" in printing["ran"]


@pytest.mark.parametrize(
    ("command", "call", "words"),
    [
        ("split", {"not_": ["a", Path("b c")]}, ["--not=a", "--not=b c"]),
        (
            "split",
            {"not_": Path("a"), "keep_columns": ["x", "y"]},
            ["--not=a", "--keep-columns=x,y"],
        ),
        ("split", {"decode": True, "in_place": False, "limit": None}, ["--decode"]),
        ("split", {"image_root": [], "wait": float("inf")}, ["--wait=inf"]),
        ("train_step", {"flip": False}, ["--no-flip"]),
        ("train_step", {"betas": (0.9, 0.99), "lr": 1e-5}, ["--lr=1e-05", "--betas=0.9,0.99"]),
        ("train_step", {"set": ("ctp.m=0.8", "er.k=2")}, ["--set=ctp.m=0.8", "--set=er.k=2"]),
    ],
)
def test_a_value_becomes_words(
    command: str, call: dict[str, Any], words: list[str], printing: dict[str, Any]
) -> None:
    printing["prints"] = "out"
    name, value = ("by", "-x") if command == "split" else ("method", "ctp")
    getattr(vlcpctl, command)("a", out="out", **{name: value}, **call)
    ran = printing["ran"]
    assert (ran[0], ran[-2:]) == (command.replace("_", "-"), ["--", "a"])
    assert {*ran[1:-2]} == {"--out=out", f"--{name}={value}", *words}
    kept = [word for word in ran if word in words]
    assert sorted(kept) == sorted(words)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda at: vlcpctl.split(at, out=at / "out", by="what"), "UsageError", "--by"),
        (lambda at: vlcpctl.inspect(at / "nothing"), "BadInput", "nothing: does not exist"),
        (
            lambda at: vlcpctl.forgetting_report(own_rows(), metric="rm", fail_if="bwt_gem:lt:-1"),
            "GateFailed",
            "bwt_gem",
        ),
        (lambda at: vlcpctl.split(at, out=at, by="iid", task=3), TypeError, "mean 'tasks'"),
        (vlcpctl.split, TypeError, "'out'"),
    ],
    ids=["usage", "input", "gate", "keyword", "missing"],
)
def test_errors_are_exceptions(
    call: Any, kind: Any, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(getattr(vlcpctl, kind) if isinstance(kind, str) else kind) as caught:
        call(tmp_path)
    assert message in str(caught.value)
    assert not str(caught.value).startswith("vlcpctl ")
    assert str(caught.value) not in capfd.readouterr().err  # it is said once


@pytest.mark.parametrize(("name", "value"), [("lr", True), ("previous", False), ("wait", True)])
def test_true_and_false_are_no_values(name: str, value: bool) -> None:
    with pytest.raises(TypeError, match=f"^{name} needs a value, not {value}$"):
        vlcpctl.train_step("a", out="b", method="ctp", **{name: value})  # type: ignore[arg-type]

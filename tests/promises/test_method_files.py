"""A run with a --method-file is the run of that code: it resumes with it, and refuses another."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from support.doc_pages import generator
from support.method_files import MINE, install, write_method
from support.program import ProgramResult, check_refused, run_program

from vlcpctl.methods.plugins.registry import MethodRegistry
from vlcpctl.models.imports import preload
from vlcpctl.testing.battery import TASKS, TrainingWorld, chain, in_child, kill_at
from vlcpctl.testing.tiny_stream import make_stream
from vlcpctl.training import request as identity
from vlcpctl.training.methods import compose

HOW = ("--preset", "tiny", "--model", "micro", "--batch-size", 4, "--steps", 2, "-q")


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    preload()
    root = make_stream(tmp_path_factory.mktemp("data") / "stream", 2, 12)
    return sorted(root.glob("0*"))


def _train(capfd: pytest.CaptureFixture[str], *words: object) -> ProgramResult:
    how = [word for word in HOW if "--previous" not in words or word not in ("--model", "micro")]
    return run_program(capfd, "train-step", *words, *how)


def _identity(checkpoint: Path) -> dict[str, object]:
    found = json.loads((checkpoint / "checkpoint.json").read_text())["identity"]
    assert isinstance(found, dict)
    return found


def test_the_digest_of_the_file_is_part_of_the_run(
    stream: list[Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, out = write_method(tmp_path / "mine.py"), tmp_path / "00"
    words = (stream[0], "-o", out, "--method", "mine+ewc", "--method-file", file)
    assert _train(capfd, *words).code == 0
    (loaded,) = MethodRegistry.of([file]).files
    assert _identity(out)["method_code"] == {"mine": {"file": loaded.digest}}
    fields = generator("manifest_fields").KINDS["checkpoint"].fields
    described = {name for name in fields if name.startswith("identity.")}
    assert described == {f"identity.{name}" for name in _identity(out)}
    moved = write_method(tmp_path / "moved.py")  # the same code elsewhere is the same run
    assert _train(capfd, *words[:-1], moved).out == f"{out}\n"
    write_method(file, MINE + "\n# changed\n")
    check_refused(
        _train(capfd, *words),
        "train-step",
        4,
        "was made with other settings",
        "method_code.mine.file",
    )
    told = run_program(capfd, "inspect", out)
    assert f"code of method mine: {loaded.digest}" in told.out


def test_a_run_of_built_in_methods_is_what_it_was(world: TrainingWorld, tmp_path: Path) -> None:
    (step, *_) = chain(world, "ctp+ewc", tmp_path / "run")
    assert list(identity.semantic(step, identity.opened(step))) == [
        *("run", "method", "hyper", "settings", "seed", "attempt", "tasks", "previous", "teacher"),
        *("buffer", "targets", "pseudo_texts", "from_scratch", "fresh_state", "limit"),
    ]


def test_a_checkpoint_is_used_without_the_file(
    stream: list[Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, out = write_method(tmp_path / "mine.py"), tmp_path / "00"
    mine = ("--method", "mine", "--method-file", file)
    assert _train(capfd, stream[0], "-o", out, *mine).code == 0
    code = file.read_text()
    file.unlink()
    for words in (
        ("eval-retrieval", stream[0], "--checkpoint", out, "-o", tmp_path / "rows.ndjson", "-q"),
        ("check", out, "-q"),
        ("merge", out, out, "-o", tmp_path / "half", "-q"),
    ):
        ended = run_program(capfd, *words)
        assert ended.code == 0, ended.err
    next_one = (stream[1], "--previous", out, "-o")
    assert _train(capfd, *next_one, tmp_path / "seqf", "--method", "seqf").code == 0
    refused = _train(capfd, *next_one, tmp_path / "01", "--method", "mine")
    check_refused(refused, "train-step", 2, "unknown method 'mine'", "--method-file FILE.py adds")
    # Its state continues under changed code, with a warning that the result records.
    file.write_text(code + "\n# changed\n")
    assert _train(capfd, *next_one, tmp_path / "01", *mine).code == 0
    made = json.loads((tmp_path / "01" / "checkpoint.json").read_text())
    assert any("other code of method 'mine'" in warning for warning in made["warnings"])


@pytest.mark.slow
def test_a_killed_run_resumes_and_refuses_other_code(world: TrainingWorld, tmp_path: Path) -> None:
    registry = MethodRegistry.of([write_method(tmp_path / "mine.py")])
    one, killed = (chain(world, "mine", tmp_path / name, registry=registry) for name in "ab")
    for number in range(TASKS - 1):
        assert in_child(one[number]) == 0
        assert in_child(killed[number], kill_at("step=3")) == -signal.SIGKILL
        changed = MethodRegistry.of([write_method(tmp_path / "other.py", MINE + "# changed\n")])
        other = replace(killed[number], methods=compose("mine", registry=changed))
        assert in_child(other) == 1
        assert in_child(killed[number]) == 0
        for file in one[number].out.rglob("*.safetensors"):
            same = killed[number].out / file.relative_to(one[number].out)
            assert same.read_bytes() == file.read_bytes()


def test_plug_ins_are_known_by_version(
    stream: list[Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(tmp_path / "site", monkeypatch, "mine = own_methods_run:Mine")
    words = (stream[0], "-o", tmp_path / "00", "--method", "mine")
    assert _train(capfd, *words).code == 0
    code = _identity(tmp_path / "00")["method_code"]
    assert isinstance(code, dict)
    assert (code["mine"]["distribution"], code["mine"]["version"]) == ("own-methods", "1.2")
    monkeypatch.undo()
    install(tmp_path / "newer", monkeypatch, "mine = own_methods_run:Mine", version="1.3")
    check_refused(_train(capfd, *words), "train-step", 4, "version was '1.2' and is now '1.3'")


@pytest.mark.slow
@pytest.mark.dist
def test_several_processes_train_it(
    stream: list[Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = write_method(tmp_path / "mine.py")
    words = (stream[0], "-o", tmp_path / "00", "--method", "mine", "--method-file", file)
    ended = _train(capfd, *words, "--nproc", 2)
    assert (ended.code, ended.out) == (0, f"{tmp_path / '00'}\n"), ended.err

"""Command lines that cannot be carried out: one line with the way out, the code, no torch."""

from __future__ import annotations

import importlib.util
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.eval_rows import own_rows, write_rows
from support.evaluators import EVALUATORS
from support.program import MICRO, TINY, ProgramResult, check_refused, make_inputs, run_program

Program = Callable[..., ProgramResult]

CHECKPOINTS = ("--checkpoint", "plain", "--checkpoint", "queued")
MISTYPED = (*TINY, *MICRO, "--set", "ctp.keep_queu=true")


@pytest.fixture
def program(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    """Runs a command line in this process."""
    monkeypatch.delenv("VLCPCTL_DEBUG", raising=False)
    return lambda *words: run_program(capfd, *words)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands read."""
    return make_inputs(tmp_path_factory.mktemp("inputs"))


def test_a_batch_larger_than_the_task_is_refused_with_both_numbers(
    program: Program, place: Path, tmp_path: Path
) -> None:
    how = ("-o", tmp_path / "out", *TINY, *MICRO, "--batch-size", 64)
    ended = program("train-step", place / "stream" / "00-part-0", *how)
    check_refused(ended, "train-step", 2, "64", "12 pairs")


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize("command", ["train-step", "buffer", "eval-retrieval"])
def test_a_stream_given_as_a_task_lists_its_tasks(
    program: Program, place: Path, tmp_path: Path, command: str, *, dry: bool
) -> None:
    how = {
        "train-step": ("-o", tmp_path / "out", *TINY, *MICRO),
        "buffer": ("-o", tmp_path / "out", "--size", 6),
        "eval-retrieval": ("--checkpoint", place / "plain"),
    }
    stream = place / "stream"
    ended = program(command, stream, *how[command], *(["--dry-run"] if dry else []))
    tasks = " ".join(str(path) for path in sorted(stream.glob("0*")))
    check_refused(ended, command, 3, f"{stream} is a stream; give one of its tasks: {tasks}")


@pytest.mark.parametrize(
    "command",
    [
        *("train-step", "split", "sample", "buffer", "distill", "invert-texts"),
        *("import-checkpoint", "forgetting-report", "export"),
    ],
)
def test_stdout_is_refused_for_outputs_that_are_not_rows(
    program: Program, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    first, model = place / "stream" / "00-part-0", place / "plain"
    words = {
        "train-step": (first, *TINY, *MICRO),
        "split": (first / "train-000000.tar", "--by", "source"),
        "sample": ("emoji9", "--limit", 2),
        "buffer": (first, "--size", 6),
        "distill": (first, "--teacher", model, "-q"),
        "invert-texts": ("--checkpoint", model, "--buffer", place / "buffer", "-q"),
        "import-checkpoint": (model,),
        "export": (model, "--to", "hf-model"),
        "forgetting-report": (write_rows(place / "rows", own_rows()),),
    }
    monkeypatch.chdir(tmp_path)
    ended = program(command, *words[command], "-o", "-")
    check_refused(ended, command, 2, "stdout", "give the path")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "to"), [("tensorboard", "board"), ("wandb", "project")])
def test_a_missing_tracker_is_reported_before_a_model_is_loaded(
    program: Program,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    to: str,
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, *more: None if name == kind else find(name, *more),
    )
    log, task = ("--log", f"{kind}:{to}"), place / "stream" / "00-part-0"
    said = f"--log {kind}:{to} needs a package that is not installed: pip install {kind}"
    for command, words in (
        ("train-step", (task, "-o", tmp_path / "out", *TINY, *MICRO)),
        ("eval-retrieval", (task, "--checkpoint", place / "plain")),
    ):
        check_refused(program(command, *words, *log), command, 2, said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["forgetting-report", "batch"])
def test_a_terminal_as_stdin_is_refused(
    program: Program, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        ended = program(command, "-")
    os.close(ours)
    check_refused(ended, command, 2, "terminal")


def test_a_file_of_lines_that_is_not_there_is_named(program: Program, tmp_path: Path) -> None:
    check_refused(
        program("batch", tmp_path / "lines"), "batch", 3, tmp_path / "lines", "No such file"
    )


def test_a_plain_task_is_not_a_buffer(program: Program, place: Path, tmp_path: Path) -> None:
    how = ("-o", tmp_path / "out", *TINY, *MICRO, "--buffer", place / "stream" / "01-part-1")
    ended = program("train-step", place / "stream" / "00-part-0", *how)
    check_refused(
        ended, "train-step", 3, "01-part-1 is not a buffer; make one with 'vlcpctl buffer'"
    )


@pytest.mark.parametrize("how", [(), ("--dry-run",)])
def test_a_batch_that_is_given_and_larger_than_a_small_task(
    program: Program, place: Path, tmp_path: Path, how: tuple[object, ...]
) -> None:
    words = (place / "stream" / "00-part-0", "-o", tmp_path / "out", "--method", "ctp", *how)
    given = ("--batch-size", 512)
    check_refused(program("train-step", *words, *given), "train-step", 2, "512", "12 pairs")


def test_a_preset_with_missing_weights_names_the_options_and_a_preset_without(
    program: Program, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    how = ("-q", "-o", tmp_path / "out", "--method", "ctp", "--preset", "ctp", "--batch-size", 4)
    # Of so few pairs, some negatives are true matches, which a warning says otherwise.
    how += ("--negatives", "distinct")
    ended = program("train-step", place / "stream" / "00-part-0", *how)
    said = (
        "cannot load the tokenizer 'bert-base-chinese'",
        "--pretrained image=FILE,text=DIR",
        "--preset tiny",
    )
    check_refused(ended, "train-step", 5, *said)


def test_weights_that_cannot_be_fetched_say_how_to_pass_a_file(
    program: Program, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    how = ("-o", tmp_path / "out", *TINY, "--model", "ViT-B-32", "--pretrained", "openai")
    ended = program("train-step", place / "stream" / "00-part-0", *how)
    said = (
        "cannot download the weights 'openai' of ViT-B-32",
        "pass --pretrained FILE.safetensors",
    )
    check_refused(ended, "train-step", 5, *said)


def test_a_mistyped_hyper_parameter_suggests_the_nearest(
    program: Program, place: Path, tmp_path: Path
) -> None:
    ended = program("train-step", place / "stream" / "00-part-0", "-o", tmp_path / "out", *MISTYPED)
    check_refused(
        ended, "train-step", 2, "'keep_queu'; did you mean 'keep_queue'? (known: cross_modal,"
    )


def test_other_settings_for_the_same_output_are_listed(
    program: Program, place: Path, tmp_path: Path
) -> None:
    words = ("train-step", place / "stream" / "00-part-0", "-o", tmp_path / "out", *TINY, *MICRO)
    assert program(*words).code == 0
    ended = program(*words, "--lr", "0.5", "--set", "ctp.m=0.5")
    differs = "hyper.ctp.m was 0.9 and is now 0.5; settings.lr was 0.001 and is now 0.5;"
    check_refused(ended, "train-step", 4, tmp_path / "out", differs, "--force replaces it")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{}", "field `embed_dim`"),
        ("{", "is not readable JSON"),
        (
            '{"embed_dim": 8, "vision_cfg": {}, "text_cfg": {"widht": 8}}',
            "the model's text_cfg: unknown setting 'widht'; did you mean 'width'?",
        ),
    ],
)
def test_a_model_configuration_is_checked(
    program: Program, place: Path, tmp_path: Path, written: str, said: str
) -> None:
    (tmp_path / "model.json").write_text(written)
    how = ("-o", tmp_path / "out", *TINY, "--model", tmp_path / "model.json")
    ended = program("train-step", place / "stream" / "00-part-0", *how)
    check_refused(ended, "train-step", 3, said)


@pytest.mark.parametrize(
    "given", ["epoch_30.pt", "saved/config.json", "open_clip:ViT-B-32,openai", "laion/CLIP-ViT-B"]
)
def test_weights_of_other_programs_are_to_be_imported(
    program: Program, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    source = given.removesuffix("/config.json")
    if given.endswith((".pt", ".json")):
        Path(given).parent.mkdir(exist_ok=True)
        Path(given).write_text('{"model_type": "clip"}')
    task = place / "stream" / "00-part-0"
    for words in (
        ("train-step", task, "-o", "out", *TINY, "--previous", source),
        ("eval-retrieval", task, "--checkpoint", source),
    ):
        check_refused(program(*words), words[0], 3, source, "'vlcpctl import-checkpoint'")


@pytest.mark.parametrize("given", ["golden.parquet", "golden/1.jpg"])
def test_pairs_are_to_be_split(
    program: Program, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(given).parent.mkdir(exist_ok=True)
    Path(given).touch()
    source = given.partition("/")[0]
    week = place / "stream" / "00-part-0" / "train.parquet"
    for words in (
        ("update", week, "--state", "prod", "--init", place / "plain", "--guard", source),
        ("train-step", source, "-o", "out", *TINY),
    ):
        check_refused(program(*words), words[0], 3, source, "'vlcpctl split'")


def test_a_directory_that_is_not_a_model_is_named(
    program: Program, place: Path, tmp_path: Path
) -> None:
    how = ("-o", tmp_path / "out", *TINY, "--model", place / "stream")
    ended = program("train-step", place / "stream" / "00-part-0", *how)
    check_refused(
        ended, "train-step", 3, f"{place / 'stream'} is not a checkpoint: it has no open_clip_"
    )


def test_an_unknown_model_lists_those_of_like_names(
    program: Program, place: Path, tmp_path: Path
) -> None:
    how = ("-o", tmp_path / "out", *TINY, "--model", "ViT-B32")
    ended = program("train-step", place / "stream" / "00-part-0", *how)
    check_refused(ended, "train-step", 2, "did you mean 'ViT-B-32'? (known: ViT-B-32,", " in all)")
    assert len(ended.err) < 600


@pytest.mark.parametrize(
    ("command", "how", "code"),
    [
        ("train-step", (*TINY, *MICRO, "--dry-run"), 0),
        ("train-step", MISTYPED, 2),
        ("train-step", (*TINY, *MICRO, "--previous", "not-there"), 3),
        ("train-step", (*TINY, *MICRO, "--buffer", "not-there"), 3),
        ("import-checkpoint", (), 3),
        *((name, (*CHECKPOINTS, "--dry-run"), 0) for name in EVALUATORS),
        ("eval-probe", ("--checkpoint", "plain", "--lr", "0.1"), 2),
        ("spatial-report", ("--checkpoint", "plain"), 2),
    ],
)
def test_dry_runs_and_refusals_do_not_import_torch(
    place: Path, tmp_path: Path, command: str, how: tuple[str, ...], code: int
) -> None:
    given = [str(place / word) if word in {"plain", "queued"} else word for word in how]
    first = (
        tmp_path / "epoch_1.pt" if command == "import-checkpoint" else place / "stream/00-part-0"
    )
    words = [command, first, "-o", tmp_path / "out", *given]
    program = f"""
import sys
from vlcpctl.cli import main
sys.argv = ["vlcpctl", *{[str(word) for word in words]}]
try:
    main()
finally:
    print([name for name in ("torch", "open_clip", "transformers") if name in sys.modules])
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr
    assert ended.stdout.splitlines()[-1] == "[]"
    assert ("does not exist" in ended.stderr) is (code == 3)


def test_a_dry_run_checks_the_existing_output(
    program: Program, place: Path, tmp_path: Path
) -> None:
    first = place / "stream" / "00-part-0"
    seqf = ("--method", "seqf", "--preset", "tiny", *MICRO, "--batch-size", 4, "--dry-run")
    done = program("train-step", first, "-o", place / "plain", *seqf, "--epochs", 1)
    assert "plain is already finished" in done.err
    other = program("train-step", first, "-o", place / "plain", *seqf, "--epochs", 2)
    check_refused(
        other, "train-step", 4, "plain was made with other settings: settings.epochs was 1"
    )
    taken = program(
        "split", place / "buffer", "-o", place / "stream", "--by", "source", "--dry-run"
    )
    check_refused(taken, "split", 4, "stream was made with other settings")

"""What an error of train-step advises works: a line that is refused, and those to run then."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.method_files import MINE
from support.program import ProgramResult, run_program

from vlcpctl.models.imports import open_clip
from vlcpctl.testing.tiny_stream import make_stream, make_task
from vlcpctl.training import launch
from vlcpctl.training.train_step import train_step

SOURCES = Path(launch.__file__).parent
Program = Callable[..., ProgramResult]

_TINY = "--preset tiny --batch-size 4 --steps 2"
_DRY = f"{_TINY} --dry-run"
A, B = "s/00-part-0", "s/01-part-1"
WEIGHTS = "plain/open_clip_model.safetensors"
_MICRO = f"--model micro {_TINY}"
FIRST = f"train-step {A} -o out --method seqf --model micro"
NEXT = f"train-step {B} -o out --previous plain"
_LUCIR = (
    f"train-step {B} --previous fused --method lucir --set lucir.variant=ctp {_TINY} --buffer buf"
)
_TEXTS = "--count 4 --iterations 1"
_ONE = "--method seqf --model micro --preset tiny --steps 2"


class _Code:
    """What runs as a file of weights is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("code ran",)


@dataclass(frozen=True)
class Advice:
    """A line that is refused, the end of the message, and the lines that it leads to."""

    says: str
    refused: str
    advised: tuple[str, ...]


def _row(says: str, refused: str, *advised: str) -> Advice:
    return Advice(says, refused, advised)


ROWS = (
    # The data and the batch.
    _row(
        "; train on it together with other tasks, or a --buffer",
        f"train-step one -o out {_ONE}",
        f"train-step one {A} -o out {_ONE} --dry-run",
        f"train-step one -o out {_ONE} --dry-run --buffer buf",
    ),
    _row(
        "are too few for --nproc 13; use at most 12",
        f"train-step {A} -o out --method seqf --model micro --preset tiny --nproc 13",
        f"train-step {A} -o out --method seqf --model micro --preset tiny --nproc 12 --dry-run",
    ),
    _row(
        "; use --batch-size 3",
        f"{FIRST} {_TINY} --nproc 3",
        f"{FIRST} {_DRY} --nproc 3 --batch-size 3",
    ),
    _row(
        "; use --negatives all, or keep it for one task only",
        f"{NEXT} --method ctp {_DRY} --negatives distinct --set ctp.keep_queue=true",
        f"{NEXT} --method ctp {_DRY} --negatives all --set ctp.keep_queue=true",
        f"{NEXT} --method ctp {_DRY} --negatives distinct --set ctp.keep_queue=false",
    ),
    _row(
        "must not forget (a buffer is one, too); for a method without it, use ctp",
        f"{NEXT} --method zscl {_DRY}",
        f"{NEXT} --method zscl {_DRY} --reference {A}",
        f"{NEXT} --method zscl {_DRY} --reference buf",
        f"{NEXT} --method ctp {_DRY}",
    ),
    _row(
        "--reference has no effect with --method seqf; leave it out",
        f"{NEXT} --method seqf {_DRY} --reference {A}",
        f"{NEXT} --method seqf {_DRY}",
    ),
    _row(
        "; use a smaller one",
        f"{NEXT} --method seqf {_DRY} --lora 1000",
        f"{NEXT} --method seqf {_DRY} --lora 2",
    ),
    _row(
        "; train all its weights, without --lora",
        f"train-step {B} -o out --previous fused --method lwf {_DRY} --lora 2",
        f"train-step {B} -o out --previous fused --method lwf {_DRY}",
    ),
    _row(
        "; train all weights, without --lora",
        f"{NEXT} --method gnsp {_DRY} --lora 2",
        f"{NEXT} --method gnsp {_DRY}",
    ),
    _row(
        "cannot hold that; give --set incclip.clip=false",
        f"{NEXT} --method incclip --buffer buf {_DRY} --lora 2",
        f"{NEXT} --method incclip --buffer buf {_DRY} --lora 2 --set incclip.clip=false",
    ),
    _row(
        "; give a task with more",
        f"{NEXT} --method zscl {_DRY} --nproc 2 --reference one",
        f"{NEXT} --method zscl {_DRY} --nproc 2 --reference {A}",
    ),
    _row("; use at most 12", f"{FIRST} {_DRY} --batch-size 13", f"{FIRST} {_DRY} --batch-size 12"),
    _row(
        "; use a smaller share or a larger --batch-size",
        f"{NEXT} --method er --buffer buf {_DRY} --replay share=0.9",
        f"{NEXT} --method er --buffer buf {_DRY} --replay share=0.5",
        f"{NEXT} --method er --buffer buf {_DRY} --replay share=0.9 --batch-size 11",
    ),
    _row(
        "; give the checkpoint of the previous task, or --from-scratch",
        f"train-step {B} -o out --method seqf --model micro {_DRY}",
        f"{NEXT} --method seqf {_DRY}",
        f"train-step {B} -o out --method seqf --model micro {_DRY} --from-scratch",
    ),
    _row("; give it once", f"train-step {A} {A} -o out --method seqf {_DRY}", f"{FIRST} {_DRY}"),
    _row(
        "is a stream; give one of its tasks: s/00-part-0 s/01-part-1 s/02-part-2",
        f"train-step s -o out --method seqf --model micro {_DRY}",
        f"{FIRST} {_DRY}",
    ),
    _row(
        "; import it without --step to start from it",
        f"train-step {B} -o out --previous learned --method seqf {_DRY}",
        "import-checkpoint plain -o unlearned",
        f"train-step {B} -o out --previous unlearned --method seqf {_DRY}",
    ),
    # The length and the execution.
    _row(
        "; use fewer --epochs or --steps", f"{FIRST} {_DRY} --steps 10000000000", f"{FIRST} {_DRY}"
    ),
    _row(
        "--epochs has no effect with --steps: both set the length; give one",
        f"{FIRST} {_DRY} --epochs 2",
        f"{FIRST} --preset tiny --batch-size 4 --epochs 2 --dry-run",
    ),
    _row("; use a smaller share", f"{FIRST} {_DRY} --warmup 0.9", f"{FIRST} {_DRY} --warmup 0.5"),
    _row(
        "all pairs are its own; use --nproc",
        f"{FIRST} {_DRY} --local-loss",
        f"{FIRST} {_DRY} --local-loss --nproc 2",
    ),
    _row("; use --device cpu", f"{FIRST} {_TINY} --device cuda", f"{FIRST} {_DRY} --device cpu"),
    _row(
        "; use auto, cpu, cuda or cuda:N",
        f"{FIRST} {_TINY} --device x",
        f"{FIRST} {_DRY} --device cpu",
    ),
    _row(
        "; install one or set CXX, or leave out --compile",
        f"{FIRST} {_DRY} --compile",
        f"{FIRST} {_DRY}",
    ),
    _row(
        "; give the number of steps that it was chosen for",
        f"{FIRST.replace('seqf', 'ema')} {_DRY} --scale-per-step paper",
        f"{FIRST.replace('seqf', 'ema')} {_DRY} --scale-per-step 100",
    ),
    _row(
        "; no state had been saved; a lower --lr or --clip-norm may help",
        f"{FIRST} {_TINY} --lr 1e30 --schedule constant",
        f"{FIRST} {_TINY} --lr 1e-3 --clip-norm 1 --schedule constant --force",
    ),
    # The model.
    _row(
        "; give --previous with a checkpoint ('vlcpctl import-checkpoint' makes one of a "
        "pretrained model), or --model",
        f"train-step {A} -o out --method seqf --preset update --dry-run",
        f"import-checkpoint {WEIGHTS} --model micro -o imported",
        f"train-step {B} -o out --method seqf --preset update --dry-run --previous imported",
        f"{FIRST} --preset update --dry-run",
    ),
    _row(
        "; download its directory ('hf download'), convert it with 'vlcpctl import-checkpoint DIR "
        "-o CKPT' and give --previous CKPT, or give "
        "its weights with --pretrained FILE",
        f"train-step {A} -o out --method seqf --model hf-hub:some/model {_DRY}",
        "import-checkpoint plain -o of-the-hub",
        f"train-step {A} -o out --method seqf --previous of-the-hub {_DRY}".replace(A, B),
        f"train-step {A} -o out --method seqf --model hf-hub:some/model {_DRY} "
        f"--pretrained {WEIGHTS}",
    ),
    _row(
        "needs a fusion model, such as albef-tiny; see 'vlcpctl methods lucir'",
        f"train-step {A} -o out --method lucir --set lucir.variant=ctp --model micro {_TINY}",
        f"train-step {A} -o out --method lucir --set lucir.variant=ctp --model albef-tiny {_DRY}",
        "methods lucir",
    ),
    _row(
        "; fetch the file elsewhere and pass --pretrained FILE.safetensors",
        f"train-step {A} -o out --method seqf --model RN50 --pretrained openai {_TINY}",
        f"{FIRST} {_TINY} --pretrained {WEIGHTS}".replace("-o out", "-o fetched"),
    ),
    _row(
        "'vlcpctl import-checkpoint --trust-pickle' reads the file and runs its code",
        f"{FIRST} {_TINY} --pretrained pickle.pt",
        "import-checkpoint pickle.pt --model micro --trust-pickle -o trusted",
        f"{NEXT} --method seqf {_DRY} --previous trusted",
    ),
    # Methods and what they need.
    _row(
        "; --method-file FILE.py adds one of your own",
        f"{FIRST.replace('seqf', 'mine')} {_DRY}",
        f"{FIRST.replace('seqf', 'mine')} {_DRY} --method-file mine.py",
    ),
    _row(
        "method er needs --buffer after the first task",
        f"{NEXT} --method er {_DRY}",
        f"{NEXT} --method er {_DRY} --buffer buf",
    ),
    _row(
        "; make one with 'vlcpctl buffer', or use a method that needs none, such as ctp",
        f"train-step {A} -o out --previous imported-0 --method er {_DRY}",
        f"buffer {B} -o advised-0 --policy ring --size 6",
        f"train-step {A} -o out --previous imported-0 --method er {_DRY} --buffer advised-0",
        f"train-step {A} -o out --previous imported-0 --method ctp {_DRY}",
    ),
    _row(
        "is not a buffer; make one with 'vlcpctl buffer'",
        f"{NEXT} --method er {_DRY} --buffer {A}",
        f"buffer {A} -o advised-1 --policy ring --size 6",
        f"{NEXT} --method er {_DRY} --buffer advised-1",
    ),
    _row(
        "; buf was made without 'vlcpctl buffer --store-features'",
        f"{NEXT} --method der {_DRY} --buffer buf",
        f"buffer {A} -o advised-2 --policy reservoir --size 6 --checkpoint plain --store-features",
        f"{NEXT} --method der {_DRY} --buffer advised-2",
    ),
    _row(
        "needs a buffer made with 'vlcpctl buffer --policy herding'; buf was made with 'reservoir'",
        f"{NEXT} --method icarl {_DRY} --buffer buf",
        f"buffer {A} -o advised-3 --policy herding --size 6 --checkpoint plain",
        f"{NEXT} --method icarl {_DRY} --buffer advised-3",
    ),
    _row(
        "which this run trains on; use the buffer made before this task",
        f"{NEXT} --method er {_DRY} --buffer later",
        f"{NEXT} --method er {_DRY} --buffer buf",
    ),
    _row(
        ", later in the stream than 01-part-1; use the buffer made before this task",
        f"{NEXT} --method er {_DRY} --buffer last",
        f"{NEXT} --method er {_DRY} --buffer buf",
    ),
    _row(
        "; --fresh-state initialises it",
        f"{NEXT} --method ewc {_TINY}",
        f"{NEXT} --method ewc {_TINY} --fresh-state".replace("-o out", "-o fresh"),
    ),
    _row(
        "; run 'vlcpctl distill' on every task and the buffer of this run",
        f"{NEXT} --method lwf --buffer buf --targets targets {_DRY}",
        f"distill {B} --buffer buf --teacher plain --preset tiny -o all-targets",
        f"{NEXT} --method lwf --buffer buf --targets all-targets {_DRY}",
    ),
    _row(
        "; set a multiple of 2",
        f"{NEXT} --method incclip --buffer buf {_DRY} --nproc 2 --set incclip.count=5",
        f"{NEXT} --method incclip --buffer buf {_DRY} --nproc 2 --set incclip.count=4",
    ),
    _row(
        "; leave it out",
        f"{NEXT} --method er --buffer buf --pseudo-texts texts {_DRY}",
        f"{NEXT} --method er --buffer buf {_DRY}",
    ),
    _row(
        "; leave out --targets, or give --set lwf.words=false",
        f"train-step {B} -o out --previous fused --method lwf --targets fused-targets {_TINY}",
        f"train-step {B} -o fused-1 --previous fused --method lwf {_TINY}",
        f"train-step {B} -o fused-2 --previous fused --method lwf --targets fused-targets {_TINY} "
        "--set lwf.words=false",
    ),
    _row(
        "; leave out --targets",
        f"{_LUCIR} -o out --targets fused-targets --set lucir.words=false",
        f"{_LUCIR} -o fused-3 --set lucir.words=false",
    ),
    _row(
        "; use 'vlcpctl split --holdout test=0.1,val=0.05'",
        f"{FIRST} {_TINY} --keep best:val_loss",
        "sample emoji9 -o pairs --views 1 --size 16 --limit 100",
        "split pairs -o held --by all:held --holdout test=0.1,val=0.05",
        f"{FIRST} {_TINY} --keep best:val_loss".replace(A, "held/00-held").replace("out", "best"),
    ),
    # Outputs.
    _row(
        "; --force replaces it",
        f"{FIRST} {_TINY}".replace("out", "there"),
        f"{FIRST} {_TINY} --force".replace("out", "there"),
    ),
    _row(
        "; choose another --out", f"{FIRST} {_TINY}".replace("-o out", "-o file"), f"{FIRST} {_DRY}"
    ),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of three tasks, models, buffers, targets and files; tests run in it."""
    from vlcpctl import cli

    root = tmp_path_factory.mktemp("world")
    make_stream(root / "s", 3, 12)
    make_task(root / "one", splits={"train": 1}, first=700)
    (root / "file").write_text("not a checkpoint")
    (root / "mine.py").write_text(MINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for line in (
            f"train-step {A} -o plain --method seqf {_MICRO}",
            f"train-step {A} -o there --method seqf {_MICRO} --seed 1",
            f"train-step {A} -o fused --method ctp --model albef-micro {_TINY}",
            "import-checkpoint plain -o imported-0",
            "import-checkpoint plain --step 1 -o learned",
            f"buffer {A} -o buf --policy reservoir --size 6",
            f"buffer {B} -o later --policy reservoir --size 6 --previous buf",
            "buffer s/02-part-2 -o last --policy reservoir --size 6",
            f"distill {B} --teacher plain --preset tiny -o targets",
            f"distill {B} --buffer buf --teacher fused --preset tiny -o fused-targets",
            f"invert-texts --checkpoint plain --buffer buf {_TEXTS} -o texts",
        ):
            patch.setattr("sys.argv", ["vlcpctl", *line.split(), "-q"])
            with pytest.raises(SystemExit) as stop:
                cli.main()
            assert not stop.value.code, line
    weights = load_file(root / WEIGHTS)
    torch.save({"state_dict": weights, "memory": _Code()}, root / "pickle.pt")
    return root


def _refuse(_: object) -> None:
    raise OSError("no network")


@pytest.fixture
def program(
    world: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Program:
    """Runs a command line in the world, without a compiler, a GPU and a network."""
    monkeypatch.chdir(world)
    for path in (world / "out", world / ".out.vlcpctl"):
        shutil.rmtree(path, ignore_errors=True)
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(open_clip(), "download_pretrained", _refuse)
    return lambda line: run_program(capfd, *shlex.split(line))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.says[:40])
def test_what_is_advised_works(program: Program, row: Advice) -> None:
    refused = program(row.refused)
    assert refused.code not in (0, 1)
    assert refused.err.endswith(f"{row.says}\n")
    for line in row.advised:
        done = program(line)
        assert done.code == 0, f"{line}: {done.err}"


def _until(point: str, reached: str) -> None:
    if reached == point:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def unfinished(program: Program) -> str:
    """A line whose run was stopped by a signal, with a saved state."""
    line = f"{FIRST} {_TINY} --threads 1"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "train_step", partial(train_step, observe=partial(_until, "step=0")))
        assert program(line).code == 75
    return line


def test_an_inexact_resume_is_accepted(program: Program, unfinished: str) -> None:
    other = unfinished.replace("--threads 1", "--threads 2")
    refused = program(other)
    assert (refused.code, "--accept-inexact resumes anyway" in refused.err) == (5, True)
    assert program(f"{other} --accept-inexact").code == 0
    torch.set_num_threads(1)


def test_a_damaged_state_is_started_over(world: Path, program: Program, unfinished: str) -> None:
    os.truncate(world / ".out.vlcpctl/partial/state.safetensors", 1000)
    refused = program(unfinished)
    assert (refused.code, "; --force starts over" in refused.err) == (5, True)
    assert program(f"{unfinished} --force").code == 0


def test_an_unfinished_run_of_another_line_is_replaced(program: Program, unfinished: str) -> None:
    refused = program(f"{unfinished} --seed 3")
    assert (refused.code, "; --force replaces it" in refused.err) == (4, True)
    assert program(f"{unfinished} --seed 3 --force").code == 0


def test_processes_are_those_of_the_launcher(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"{FIRST} {_DRY} --batch-size 6"
    with monkeypatch.context() as launcher:
        launcher.setenv("RANK", "0")
        launcher.setenv("WORLD_SIZE", "2")
        refused = program(f"{line} --nproc 3")
        advice = "; leave out --nproc, or start vlcpctl without the launcher\n"
        assert (refused.code, refused.err.endswith(advice)) == (2, True)
        assert program(line).code == 0
    assert program(f"{line} --nproc 3").code == 0


def test_a_pretrained_model_is_protected_as_the_plan_says(program: Program) -> None:
    line = f"train-step {A} -o out --method ctp --model micro --pretrained {WEIGHTS} {_DRY}"
    said = " ".join(program(line).err.split())
    (words,) = re.findall("run 'vlcpctl ([^']+) -o DIR' and give --previous DIR", said)
    assert program(f"{words} -o protected").code == 0
    assert program(f"train-step {A} -o out --method ctp --previous protected {_DRY}").code == 0


# What the tests above follow, and notes and warnings of the plan.
ELSEWHERE = (
    "; --force starts over",
    "; --accept-inexact resumes anyway",
    "; to protect it, run 'vlcpctl import-checkpoint ... -o DIR' and give --previous DIR",
    "; its paper has ring ('vlcpctl buffer --policy ring')",
    "; --negatives all uses them all",
    "; --negatives distinct leaves them out",
    "; use a larger share or a larger --batch-size",
    "; continue under another --run",
    "; with --local-loss it computes its own rows",  # training/test_many_processes.py
    # training/test_model_checks.py
    "; give --loss sigmoid, or --loss softmax to train it without the bias",
)
_ADVISES = re.compile(r"--[a-z]|'vlcpctl|\b(use|give|leave|make|set|import|run|train|fetch)\b")


def _advice() -> Iterator[str]:
    """The ends of the messages of training, with {} for what is filled in."""
    for path in sorted([*SOURCES.rglob("*.py"), SOURCES.parent / "commands" / "train_step.py"]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise | ast.Return | ast.Yield):
                yield from filter(_ADVISES.search, _ends(node))


def _ends(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in one.values]
            _, found, end = "".join(map(str, parts)).partition("; ")
            yield found + end


def test_every_advice_is_followed() -> None:
    said = "\n".join([*(row.says for row in ROWS), *ELSEWHERE])
    missing = [
        end
        for end in _advice()
        if not re.search(".*".join(map(re.escape, end.split("{}"))), said) and end not in said
    ]
    assert missing == []

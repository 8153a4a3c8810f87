"""Lines that cannot be carried out: one line with what to type next, the exit code, no output."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.checkpoints import record_files_again
from support.eval_rows import own_rows, row, write_rows
from support.method_files import MINE
from support.pair_files import rows, write_parquet
from support.program import ProgramResult, check_refused, run_program

from vlcpctl.models.imports import open_clip
from vlcpctl.testing.tiny_stream import make_image

Program = Callable[[str], ProgramResult]

A, B = "stream/00-part-0", "stream/01-part-1"
PLAIN = f"train-step {A} -o out --preset tiny --batch-size 4 --steps 2 -q"
FIRST = f"{PLAIN} --model micro --method"
NEXT = f"train-step {B} -o out --preset tiny --batch-size 4 --steps 2 -q --previous plain --method"
QUEUE = f"{NEXT} ctp --set ctp.keep_queue=true --negatives all".replace("plain", "{}")
SPLIT = "split {} -o out --by source -q"
INVERT = "invert-texts --checkpoint plain --buffer buffer -o out -q"
EVALUATE = f"eval-retrieval {A} -q --checkpoint"

REPORT = "forgetting-report rows"
PROBE = f"eval-probe {A} -q --checkpoint plain"

# Values that an option does not take; the message names it.
VALUES = (
    *("--clip-norm nan", "--crop-scale 2,3", "--crop-scale nan,1", "--min-lr 1 --lr 0.1"),
    *("--warmup 2", "--randaugment 2,999", f"--seed {2**70}", "--lr nan", "--lr 1e400"),
    *("--lr 1_0", "--lr \u0661e-3", "--weight-decay -1", "--steps 0", "--epochs nan"),
    *("--batch-size 1", "--limit 0", "--threads 0", "--workers -1", "--device gpu9"),
    *("--precision fp8", "--method nothing", "--preset nothing", "--model nothing"),
    *("--image-size 0", "--temperature fixed:nan", "--temperature fixed:1e308"),
    *("--save-every nanmin", "--accept-inexact", "--fresh-state", "--from-scratch"),
    *("--replay 3", "--set x", "--set ctp.x=1", "--nproc 0", "--nodes 0", "--masking all"),
    *("--keep moon", "--run=", "--run a\x1bb", "--captions two", "--micro-batch 0"),
    *("--teacher plain", "--unknown", "--lr"),
)
ELSEWHERE = (
    *(f"{EVALUATE} plain {words}" for words in ("--limit 0", "--batch-size 0", "--gallery moon")),
    f"buffer {A} -o out --size 0",
    f"buffer {A} -o out --size 5 --policy moon",
    f"buffer {A} -o out --size 5 --nproc 2",
    f"buffer {A} --size 8 -o s3://bucket/x",
    f"buffer {A} --size 8 -o https://host/x",
    f"buffer {A} --size 8 -o file:///data/x",
    *(
        f"split golden.parquet -o out --by iid --tasks {words}"
        for words in ("0", "3 --holdout test=nan", "3 --max-skip 200%")
    ),
    "split golden.parquet -o out --by moon",
    f"distill {B} --teacher plain -o out --num-shards 2 --shard-index 5",
    f"{INVERT} --count 0",
    "forgetting-report rows -o out --fail-if bwt_gem:>:nan",
    "merge plain queued -o plain --force",
)

# A line, its exit code, and a word of the message: what is wrong, or what to type next.
MISTAKES = (
    *((f"{FIRST} seqf {words}", 2, words.split()[0].strip("-=")) for words in VALUES),
    *((line, 2, line.split()[-2]) for line in ELSEWHERE),
    (f"{FIRST} seqf --batch-size 64", 2, "12"),
    (f"{FIRST} seqf --nproc 3", 2, "--batch-size 3"),
    (f"{FIRST} seqf --epochs 2", 2, "--steps"),
    (f"{FIRST} seqf --momentum 0.5", 2, "--optimizer sgd"),
    (f"{FIRST} seqf --weight-decay 0 --decay all", 2, "--decay"),
    (f"{FIRST} seqf --device cuda", 2, "--device cpu"),
    (f"{FIRST} seqf --compile", 2, "CXX"),
    (f"{FIRST} seqf --keep best:val_loss", 2, "--holdout"),
    (f"{FIRST} seqf --schedule plateau", 2, "--holdout"),
    (f"{FIRST} mine", 2, "--method-file"),
    (f"{FIRST} ctp --set ctp.keep_queu=true", 2, "'keep_queue'"),
    (f"{FIRST} lucir --set lucir.variant=ctp", 2, "albef-tiny"),
    (f"{FIRST} seqf --lr 1e30 --schedule constant", 8, "--lr"),
    (f"{FIRST} seqf".replace("-o out", "-o plain"), 4, "--force"),
    (f"{FIRST} seqf".replace("-o out", "-o file"), 4, "--out"),
    (f"{FIRST} seqf".replace("-o out", "-o \udcff"), 2, r"\xff"),  # no manifest can store it
    (f"{PLAIN} --method seqf --model ViT-B-32 --pretrained openai", 5, "--pretrained FILE"),
    (f"{PLAIN} --method seqf --model ViT-B32", 2, "'ViT-B-32'"),
    (f"{PLAIN} --method seqf --model hf-hub:some/model", 2, "import-checkpoint"),
    (f"{PLAIN} --method seqf --model stream", 3, "stream"),
    (f"{PLAIN} --method seqf --model typo.json", 3, "widht"),
    (f"{PLAIN} --method ctp".replace("tiny", "ctp"), 5, "--preset tiny"),
    (f"{FIRST} seqf".replace(A, "stream"), 3, f"{A} {B}"),
    (f"{FIRST} seqf".replace(A, "golden.parquet"), 3, "'vlcpctl split'"),
    (f"{FIRST} seqf".replace(A, B), 2, "--from-scratch"),
    (f"{FIRST} joint".replace(A, f"{A} {A}"), 2, "once"),
    (f"{NEXT} er", 2, "--buffer"),
    (f"{NEXT} er --buffer {A}", 3, "'vlcpctl buffer'"),
    (f"{NEXT} er --buffer later", 2, "01-part-1"),
    (f"{NEXT} der --buffer buffer", 2, "--store-features"),
    (f"{NEXT} icarl --buffer buffer", 2, "--policy herding"),
    (f"{NEXT} zscl", 2, "--reference"),
    (f"{NEXT} gnsp --lora 2", 2, "--lora"),
    (f"{NEXT} ewc", 5, "--fresh-state"),
    (QUEUE.format("plain"), 5, "--fresh-state"),
    (QUEUE.format("lacks-state"), 5, "lacks-state"),
    (QUEUE.format("other-weights"), 5, "other-weights/open_clip_model.safetensors"),
    (
        f"{NEXT} seqf --previous epoch_30.pt".replace("--previous plain ", ""),
        3,
        "import-checkpoint",
    ),
    (f"{EVALUATE} other-weights", 5, "other-weights/open_clip_model.safetensors"),
    (f"{EVALUATE} other-tokenizer", 5, "other-tokenizer"),
    *(
        (f"{EVALUATE} plain {words}", 2, word)
        for words, word in (
            ("--distractors-by query", "--distractors"),
            (f"--distractors {B} --distractors-by query", "--gallery-checkpoint"),
            (
                f"--distractors {B} --gallery-checkpoint queued --distractors-by new",
                "--distractors-by",
            ),
            (f"--distractors {B} --protocol multi-modal", "--distractors"),
            ("--gallery-checkpoint queued --protocol multi-modal", "--gallery-checkpoint"),
            ("-o out --save-ranks out", "two files"),
            ("-o out --shard-index 0", "--num-shards"),
            ("-o out --num-shards 2 --shard-index 2", "the last is 1"),
            ("-o out --num-shards 2 --force", "--force"),
            ("-o - --num-shards 2", "path"),
            ("-o out --save-ranks -", "path"),
            ("--embedding-cache file", "file"),
        )
    ),
    (f"{EVALUATE} plain --protocol multi-modal", 5, "--protocol cross-modal"),
    (f"{EVALUATE} plain --protocol multi-modal --dry-run", 5, "--protocol cross-modal"),
    *(
        (f"{PROBE} {words}", 2, word)
        for words, word in (
            ("--epochs 3", "--epochs"),
            ("--lr 0.5", "--lr"),
            ("--strength 0", "--strength"),
            ("--strength inf", "--strength"),
            ("--strength nan", "--strength"),
            ("--strength 1 --held-out 0.2", "--held-out"),
            ("--strength 1 --seed 2", "--seed"),
            ("--held-out 1", "--held-out"),
            ("--train-split test", "--train-split"),
            ("--protocol mod-x", "'modx'"),
            ("--protocol modx --strength 1e-6", "--strength"),
            ("--protocol modx --held-out 0.2", "--held-out"),
            ("--protocol modx --lr=-1", "--lr"),
        )
    ),
    (f"{EVALUATE} epoch_30.pt", 3, "import-checkpoint"),
    (f"{EVALUATE} diverged", 8, "diverged on 00-part-0"),
    (f"{EVALUATE} plain --checkpoint stream/../plain --save-embeddings out", 2, "named plain"),
    (f"buffer {B} -o out -q --size 6 --policy herding --checkpoint diverged", 8, "diverged"),
    (f"distill {B} -o out -q --teacher diverged --preset tiny", 8, "diverged"),
    ("methods ctpp", 2, "'ctp'"),
    ("methods --cite", 2, "ctp"),
    ("methods --cite seqf ema", 2, "seqf, ema"),
    ("buffer stream -o out --size 6", 3, f"{A} {B}"),
    ("buffer buffer -o out --size 6", 3, "give a task"),
    (f"buffer {A} -o out --size 6 --policy herding", 2, "--checkpoint"),
    (f"buffer {A} -o out --size 6 --store-features", 2, "--checkpoint"),
    (INVERT.replace("--buffer buffer", f"--buffer {A}"), 3, "not a buffer"),
    (INVERT.replace("--buffer buffer", "--buffer empty"), 3, "empty"),
    (INVERT.replace("plain", "stream"), 3, "not a checkpoint"),
    (INVERT.replace("plain", "no-weights"), 5, "no-weights"),
    (f"{INVERT} --min-score 0.3 --max-score 0.3", 2, "bound"),
    (f"{INVERT} --rate 0", 2, "rate"),
    ("sample emoji -o out", 2, "'emoji9'"),
    (SPLIT.format("uncaptioned.parquet"), 3, "--caption-column"),
    (f"{SPLIT.format('truncated.parquet')} --max-skip 0", 6, "truncated.parquet, row 13"),
    (SPLIT.format("structs.parquet").replace("source", "column:g"), 3, "column 'g'"),
    (SPLIT.format("structs.parquet").replace("source", "time:g"), 3, "column 'g'"),
    (SPLIT.format("long.parquet"), 6, "too large 1"),
    (f"{SPLIT.format('golden.parquet')} --holdout test=500", 3, "--holdout-most 10%"),
    (f"{SPLIT.format('golden.parquet')} --holdout-most 10%", 2, "--holdout-most"),
    ("split buffer -o stream --by source --dry-run", 4, "stream"),
    ("merge plain -o out", 2, "at least 2"),
    (f"merge plain {A} -o out", 3, "not a checkpoint"),
    *(
        (f"merge plain queued -o out {words}", 2, word)
        for words, word in (
            ("--rule tie", "'ties'"),
            ("--rule ties", "--base START"),
            ("--base plain", "--base"),
            ("--rule ties --base plain", "leave it out"),
            ("--rule ema --weights 1,2", "--weights"),
            ("--weights 1,2,3", "--weights"),
            ("--weights 1,-1", "--weights"),
            ("--weights 0,0", "--weights"),
            ("--weights 1,nan", "--weights"),
            ("--weights 1,2 --weights 1.0,2", "twice"),
            ("--set weights=1", "hyper-parameter"),
            ("--rule ema --set decay=2", "[0, 1]"),
            ("--rule ema --set decay", "NAME=VALUE"),
            ("--rule ema --set decay=.5,0.5", "twice"),
            ("--rule ema --set decay=1 --set decay=0", "twice"),
            (f"--batch-norm-from {B}", "--batch-norm-from"),
        )
    ),
    *(
        (f"{REPORT} {words}", code, word)
        for words, code, word in (
            ("--fail-if bwt_gm:lt:1", 2, "bwt_gem"),
            ("--fail-if rm@dta=x:lt:1", 2, "data"),
            ("--fail-if rm@run=x:lt:1 -q", 3, "known: ctp"),
            ("--fail-if fwt_gem:lt:1 -q", 3, "fwt_gem"),
            ("--undefined ignore", 2, "--undefined"),
            ("--junit -", 2, "stdout"),
            ("--metric top5", 2, "--metric"),
            ("--gallery mine", 2, "--gallery"),
            ("--run nobody", 2, "--run"),
            ("--baseline nobody", 2, "--baseline"),
            ("--baseline .", 3, "checkpoint.json"),
            ("--ranks nowhere.parquet", 3, "nowhere.parquet"),
            ("--ranks mine.py", 3, "not a file of ranks"),
            ("--checkpoint golden", 3, "golden"),
            ("--table ctp-99", 2, ".csv"),
            ("--table no.csv", 3, "no.csv"),
            ("--csv out --latex out", 2, "choose separate directories"),
            ("-o out --csv out/inside", 2, "--csv out/inside is in --out out"),
            ("--csv out --junit out/j.xml", 2, "--junit"),
            ("--csv -", 2, "stdout"),
            ("--latex t.tex", 2, "such as t"),
            ("--figures fig.pdf", 2, "such as fig"),
        )
    ),
    ("forgetting-report bad-rows", 3, "bad-rows:2"),
    ("update golden.parquet --state prod --init plain --guard golden", 3, "'vlcpctl split'"),
    ("batch lines", 3, "lines"),
    ("batch latin", 3, "latin:1"),
    (f"spatial-report {A} --checkpoint plain", 2, "two checkpoints"),
    (f"spatial-report {A} --checkpoint plain --checkpoint queued --json -o -", 2, "no effect"),
    *(
        (f"{line} -o -", 2, "stdout")
        for line in (
            PLAIN.replace("-o out", "--method ctp --model micro"),
            f"split {A}/train-000000.tar --by source",
            "sample emoji9 --limit 2",
            f"buffer {A} --size 6",
            f"distill {A} --teacher plain -q",
            "invert-texts --checkpoint plain --buffer buffer -q",
            "import-checkpoint plain",
            "export plain --to hf-model",
            "forgetting-report rows",
        )
    ),
)


def _write_sources(root: Path) -> None:
    pairs = rows(20)
    write_parquet(root / "golden.parquet", pairs)
    write_parquet(root / "uncaptioned.parquet", [{"image": one["image"]} for one in pairs])
    pairs[13] = {**pairs[13], "image": make_image(3, 64, "JPEG")[:-200]}
    write_parquet(root / "truncated.parquet", pairs)
    write_parquet(root / "structs.parquet", [{**one, "g": {"a": 1}} for one in pairs])
    long = [*pairs[:-1], {**pairs[-1], "caption": "x" * 1_000_001}]
    write_parquet(root / "long.parquet", long)


def _write_checkpoints(root: Path) -> None:
    def copy(name: str) -> Path:
        return shutil.copytree(root / "queued", root / name)

    def change(path: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
        tensors = load_file(path)
        edit(tensors)
        save_file(tensors, path)

    weights = "open_clip_model.safetensors"
    change(copy("other-weights") / weights, lambda held: held.pop("ln_final.bias"))
    change(copy("diverged") / weights, lambda held: held["visual.proj"].mul_(float("nan")))
    change(copy("lacks-state") / "method/ctp/queue.safetensors", lambda held: held.pop("filled"))
    (copy("other-tokenizer") / "tokenizer.json").write_text("{")
    (copy("no-weights") / weights).unlink()
    for name in ("other-weights", "diverged", "lacks-state", "other-tokenizer"):
        record_files_again(root / name)


@pytest.fixture(scope="module")
def place(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the lines read."""
    from support.commands import buffer

    root = shutil.copytree(place, tmp_path_factory.mktemp("inputs"), dirs_exist_ok=True)
    buffer(root / B, root / "later", policy="reservoir", size="6", quiet=True)
    buffer(root / A, root / "empty", size="0.1%", quiet=True)
    write_rows(root / "rows", own_rows())
    write_rows(root / "bad-rows", [row(), row(schema="vlcpctl.eval/2")])
    (root / "file").write_text("not a checkpoint")
    (root / "epoch_30.pt").write_text("not a checkpoint")
    (root / "golden").mkdir()
    (root / "golden/1.jpg").touch()
    (root / "latin").write_bytes(b"check caf\xe9\n")
    (root / "mine.py").write_text(MINE)
    (root / "typo.json").write_text('{"embed_dim": 8, "vision_cfg": {}, "text_cfg": {"widht": 8}}')
    _write_sources(root)
    _write_checkpoints(root)
    return root


def _refuse(_: object) -> None:
    raise OSError("no network")


@pytest.fixture
def program(
    place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Program:
    """Runs a line where the inputs are, without a compiler, a GPU and a network."""
    monkeypatch.delenv("VLCPCTL_DEBUG", raising=False)
    monkeypatch.chdir(place)
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(open_clip(), "download_pretrained", _refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(place / "cache"))
    return lambda line: run_program(capfd, *shlex.split(line))


@pytest.mark.parametrize(("line", "code", "word"), MISTAKES)
def test_a_line_that_cannot_be_carried_out_says_why_and_leaves_nothing(
    program: Program, place: Path, line: str, code: int, word: str
) -> None:
    before = {*place.iterdir(), place / ".out.vlcpctl"}
    ended = program(line)
    last = ended.err.splitlines()[-1]
    assert (ended.code, ended.out) == (code, ""), ended.err
    assert last.startswith(f"vlcpctl {line.partition(' ')[0]}: "), ended.err
    assert word in last
    assert len(last) < 700
    assert set(place.iterdir()) <= before
    shutil.rmtree(place / ".out.vlcpctl", ignore_errors=True)  # of what diverged


@pytest.mark.parametrize(
    ("package", "line"),
    [
        *((kind, f"{FIRST} seqf --log {kind}:x") for kind in ("tensorboard", "wandb")),
        *((kind, f"{EVALUATE} plain --log {kind}:x") for kind in ("tensorboard", "wandb")),
        ("imagehash", f"check --near-duplicates 4 {A}"),
    ],
)
def test_a_missing_package_is_reported_before_the_work(
    program: Program, monkeypatch: pytest.MonkeyPatch, package: str, line: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, *more: None if name == package else find(name, *more),
    )
    check_refused(program(line), line.partition(" ")[0], 2, f"pip install {package}")

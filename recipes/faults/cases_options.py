"""Options without effect or sense, environment variables, and outputs that are not file paths."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from case import Table, written
from world import A, B

OPTIONS = Table("Options without effect or sense")
VARIABLES = Table("Variables of the environment")
PLACES = Table("Outputs and inputs that are not paths of files")
PIPE = "pipe.toml"
_FIRST = f"train-step {A} -o out --method seqf --preset tiny --model micro --batch-size 4 --steps 2"
_NEXT = f"train-step {B} -o out --method ctp --previous ctp --preset tiny --batch-size 4 --steps 2"

_VISION = {"image_size": 16, "layers": 1, "width": 8, "head_width": 4, "patch_size": 8}
_TEXT = {"context_length": 12, "vocab_size": 49408, "width": 8, "heads": 2, "layers": 1}


def _configured(**parts: object) -> Callable[[Path], None]:
    """A fault that writes model.json, with CLIP's tokenizer."""
    config = {"embed_dim": 8, "vision_cfg": _VISION, "text_cfg": _TEXT, **parts}
    return written("model.json", json.dumps(config))


OPTIONS.add("none", _FIRST, 0)
for _words in (
    "--clip-norm 0", "--clip-norm -1", "--clip-norm nan", "--clip-norm inf",
    "--crop-scale 2,3", "--crop-scale 0,1", "--crop-scale 1,0.5", "--crop-scale nan,1",
    "--crop-scale x", "--crop-scale 0.5", "--min-lr 1 --lr 0.1", "--min-lr -1", "--min-lr nan",
    "--warmup 1", "--warmup 1.0", "--warmup -1", "--warmup 2", "--warmup nan",
    "--randaugment 999,999", "--randaugment 2,999", "--randaugment -1,5", "--randaugment x,y",
    "--seed -1", f"--seed {2**70}", f"--seed {2**63}", "--seed 1.5", "--seed x",
    "--lr nan", "--lr inf", "--lr -1", "--lr 0", "--lr abc", "--lr 1e400",
    "--weight-decay nan", "--weight-decay -1", "--steps 0", "--steps -1", "--steps 1.5",
    "--epochs 0", "--epochs nan", "--batch-size 0", "--batch-size 1", "--batch-size x",
    "--limit 0", "--limit -3", "--threads 0", "--workers -1", "--device gpu9",
    "--precision fp8", "--crop moon", "--method nothing", "--preset nothing", "--model nothing",
    "--image-size 0", "--image-size -5", "--image-size x", "--temperature -1",
    "--temperature fixed:0", "--temperature fixed:nan", "--temperature x",
    "--temperature fixed:1e308", "--lr 1_0", "--lr \u0661e-3", "--betas 0.9,0.9_9",
    "--save-every 0", "--save-every -1", "--save-every x", "--save-every nanmin",
    "--accept-inexact", "--fresh-state", "--from-scratch", "--blend-buffers", "--replay 3",
    "--set", "--set x", "--set ctp.x=1", "--set seqf.x=1", "--nproc 0", "--nodes 0",
    "--mask-share 0.5", "--masking all", "--keep best:val_loss", "--keep moon",
    "--run=", "--run a\x1bb", "--captions two", "--micro-batch 0", "--micro-batch -1",
    "--teacher ctp", "--targets targets", "--buffer buf --previous", "--unknown", "--lr",
    "--model hf-hub:some/model",
):  # fmt: skip
    _shown = ascii(_words)[1:-1]
    OPTIONS.add(_shown, f"{_FIRST} {_words}", 2)
OPTIONS.add("a sigmoid loss of a fusion model", f"{_FIRST} --model albef-tiny --loss sigmoid", 2)
for _words in ("--temperature fixed:0.05", "--from-scratch", "--model micro", "--accept-inexact"):
    OPTIONS.add(f"{_words} after the first task", f"{_NEXT} {_words}", 2)
for _line in (
    f"eval-retrieval {A} --checkpoint ctp -o out --limit 0",
    f"eval-retrieval {A} --checkpoint ctp -o out --batch-size 0",
    f"eval-retrieval {A} --checkpoint ctp -o out --run=",
    f"eval-retrieval {A} --checkpoint ctp -o out --gallery moon",
    f"eval-zeroshot {A} --checkpoint ctp -o out --limit -1",
    f"eval-probe {A} --checkpoint ctp -o out --seed -1",
    f"buffer {A} -o out --policy ring --size 0",
    f"buffer {A} -o out --policy ring --size -3",
    f"buffer {A} -o out --policy ring --size 5 --seed -1",
    f"buffer {A} -o out --policy moon --size 5",
    "merge ctp ctp1 -o out --weights 2",
    "merge ctp ctp1 -o out --weights nan,1",
    "merge ctp ctp1 -o out --weights=-0.1,1",
    "split pairs.parquet -o out --by moon",
    "split pairs.parquet -o out --by iid --tasks 0",
    "split pairs.parquet -o out --by iid --tasks 3 --seed -1",
    "split pairs.parquet -o out --by iid --tasks 3 --holdout test=nan",
    *(
        f"split pairs.parquet -o out --by iid --tasks 3 --holdout test=5 --holdout-most {most}"
        for most in ("nan%", "-1%", "0x10%", "1_0%")
    ),
    "split pairs.parquet -o out --by iid --tasks 3 --max-skip 200%",
    "split pairs.parquet -o out --by iid --tasks 3 --shard-size 0",
    "split pairs.parquet -o out --by iid --tasks 3 --shard-size x",
    "split pairs.parquet -o out --by iid --tasks 3 --limit 0",
    "sample emoji9 -o out --size 0",
    "sample emoji9 -o out --limit 0",
    f"distill {B} --teacher ctp -o out --num-shards 2 --shard-index 5",
    f"distill {B} --teacher ctp -o out --views 0",
    f"distill {B} --teacher ctp -o out --seed {2**70}",
    "invert-texts --checkpoint ctp --buffer buf -o out --count 0",
    "invert-texts --checkpoint ctp --buffer buf -o out --iterations -1",
    "forgetting-report rows.ndjson -o out --fail-if moon:>:1",
    "forgetting-report rows.ndjson -o out --fail-if bwt_gem:>:nan",
    "forgetting-report rows.ndjson -o out --fail-if bwt_gem:gt:inf",
    "update pairs.parquet --state out --init ctp --holdout test=5 --holdout-most nan%",
    "unknown-command",
):
    OPTIONS.add("a value without sense", _line, 2)
for _words in ("--set ctp.keep_queue=true", "--set ctp.queue=\u0661\u0660"):
    OPTIONS.add(ascii(_words)[1:-1], f"{_FIRST.replace('seqf', 'ctp')} {_words}", 2)
for _setting, _value, _says in (
    ("nothing", 1, "unknown setting 'nothing'"),
    ("patch_size", "8", "patch_size is '8'"),
    ("image_size", -1, "image_size is -1"),
    ("image_size", 7, "less than patch_size"),
):
    OPTIONS.add(
        f"--model with {_setting} {_value!r}",
        f"{_FIRST.replace('--model micro', '--model model.json')}",
        3,
        prepare=_configured(vision_cfg=_VISION | {_setting: _value}),
        says=_says,
    )
_DRY = f"{_FIRST} --dry-run"
for _name, _value, _codes, _says in (
    ("VLCPCTL_TRAIN_STEP_LR", "inf", 2, ""),
    ("VLCPCTL_TRAIN_STEP_LR", "abc", 2, ""),
    ("VLCPCTL_TRAIN_STEP_LR", "0.5", 0, ""),
    ("VLCPCTL_TRAIN_STEP_LR", "", 0, ""),
    ("VLCPCTL_TRAIN_STEP_SET", "x", 2, ""),
    ("VLCPCTL_TRAIN_STEP_SEED", "-1", 2, ""),
    ("VLCPCTL_TRAIN_STEP_MOON", "1", (0, 2), "VLCPCTL_TRAIN_STEP_MOON"),
    ("VLCPCTL_MOON", "1", (0, 2), "VLCPCTL_MOON"),
    ("VLCPCTL_DEBUG", "0", 0, ""),
):
    VARIABLES.add(
        f"{_name}={_value}", _DRY, _codes, environment={_name: _value}, says=_says, writes=False
    )
for _value in ("0", "false", "no", ""):
    VARIABLES.add(
        f"VLCPCTL_DEBUG={_value} and an error",
        "train-step nothing -o out --method seqf",
        3,
        environment={"VLCPCTL_DEBUG": _value},
    )
VARIABLES.add(
    "LC_ALL=C",
    f"{_FIRST} --run \N{LATIN SMALL LETTER E WITH ACUTE}",
    (0, 2),
    environment={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
)
for _url in ("s3://bucket/x", "gs://bucket/x", "http://host/x", "hf://x/y", "file:///data/x"):
    PLACES.add(f"-o {_url}", f"buffer {A} -o {_url} --policy ring --size 8", 2)
    PLACES.add(f"-o {_url}", f"split pairs.parquet -o {_url} --by iid --tasks 2", 2)
    PLACES.add(f"-o {_url}", f"eval-retrieval {A} --checkpoint ctp -o {_url}", 2)
    # hf:// is asked for over the network, which may be missing.
    _codes = (1, 2) if _url.startswith("hf:") else 2
    PLACES.add(f"input {_url}", f"train-step {_url} -o out --method seqf", _codes)
    PLACES.add(f"source {_url}", f"split {_url} -o out --by iid --tasks 2", _codes)
PLACES.add("source pipe:", "split pipe:ls -o out --by iid --tasks 2", (2, 3))
PLACES.add("source -rf", "split -o out --by iid --tasks 2 -- -rf", (2, 3))
for _out in (".", "..", "/", "s", "pairs.parquet", f"{A}", "-"):
    PLACES.add(
        f"-o {_out}", f"buffer {A} -o {_out} --policy ring --size 8 --force", (2, 4), out="nothing"
    )
PLACES.add(
    "an artifact of another kind, --force keeps it",
    f"buffer {A} -o ctp --policy ring --size 8 --force",
    0,
    out="ctp",
)
PLACES.add(
    "an output that is an input",
    "merge ctp ctp1 -o ctp --force",
    2,
    out="nothing",
)
PLACES.add(
    "an output below a file", f"buffer {A} -o pairs.parquet/x --policy ring --size 8", (1, 2, 4)
)
PLACES.add(
    "a name of 300 characters",
    f"buffer {A} -o {'x' * 300} --policy ring --size 8",
    (1, 2),
    out="nothing",
)
PLACES.add(
    "a dangling link",
    f"buffer {A} -o out --policy ring --size 8",
    2,
    prepare=lambda w: (w / "out").symlink_to("nowhere"),
    writes=True,
)
PLACES.add(
    "a foreign directory",
    f"buffer {A} -o out --policy ring --size 8 --force",
    4,
    prepare=lambda w: _foreign(w / "out"),
    writes=True,
)
PLACES.add(
    "a foreign staging directory",
    f"buffer {A} -o out --policy ring --size 8 --force",
    4,
    prepare=lambda w: _foreign(w / ".out.vlcpctl"),
)
_BUFFER = f"buffer {A} -o out --policy ring --size 8"
PLACES.add("an empty directory", _BUFFER, 0, prepare=lambda w: (w / "out").mkdir())
for _what, _target in {"an artifact": "buf", "an empty directory": "empty"}.items():
    PLACES.add(
        f"a link to {_what}",
        f"{_BUFFER} --force",
        4,
        prepare=lambda w, target=_target: _link(w, "out", target),
        says="out is a symbolic link",
        writes=True,
    )
PLACES.add(
    "back from a link",
    f"buffer {A} -o link/../here --policy ring --size 8",
    0,
    prepare=lambda w: _link(w, "link", "deep/er"),
    out="deep",  # where the system finds link/..
)
for _line in (
    f"forgetting-report rows.ndjson -o out --ranks {PIPE}",
    f"forgetting-report rows.ndjson -o out --table {PIPE}",
    f"{_NEXT} --method-file {PIPE}",
    f"methods --method-file {PIPE}",
    f"batch {PIPE}",
):
    PLACES.add(
        "an input that is a named pipe",
        _line,
        3,
        prepare=lambda w: os.mkfifo(w / PIPE),
        says="not a regular file",
    )
PLACES.add(
    "named pipes in a cache of embeddings",
    "",
    0,
    bash=f"run() {{ $vlcpctl eval-retrieval {A} --checkpoint ctp -q --embedding-cache out/cache "
    "-o out/$1; }; run one; for f in out/cache/*/*; do rm $f; mkfifo $f; done; run two",
)


def _link(world: Path, name: str, target: str) -> None:
    (world / target).mkdir(parents=True, exist_ok=True)
    (world / name).symlink_to(target)


def _foreign(path: Path) -> None:
    path.mkdir()
    (path / "mine.txt").write_text("mine")

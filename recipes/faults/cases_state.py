"""Half-written runs, and finished checkpoints that were edited."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from case import Table, both, cut, edit_json, flipped, removed, setting, written
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from world import HALF, A, B

BOMB = "[" * 100_000
PARTIAL = Table("A half-written train-step is resumed")
CHECKPOINT = Table("A finished checkpoint was edited")
_STATE = ".half.vlcpctl/partial/state.safetensors"
_IDENTITY = ".half.vlcpctl/partial/identity.json"
_REFUSED = 5


def _partial(fault: str, prepare: Callable[[Path], object], says: str = "", **more: object) -> None:
    PARTIAL.add(fault, HALF, _REFUSED, prepare=prepare, says=says, out="half", **more)


def _facts(text: str) -> bytes:
    """A file of no tensors whose metadata has these facts."""
    header = json.dumps({"__metadata__": {"vlcpctl": text}}).encode()
    return len(header).to_bytes(8, "little") + header


def _swap_states(world: Path) -> None:
    (world / ".halfctp.vlcpctl/partial/state.safetensors").rename(world / _STATE)


def _as_directory(world: Path) -> None:
    (world / _STATE).unlink()
    (world / _STATE).mkdir()


def _rename_tensor(world: Path) -> None:
    tensors = load_file(world / _STATE)
    name = max(tensors)
    tensors[f"{name}x"] = tensors.pop(name)
    with safe_open(world / _STATE, "numpy") as file:
        metadata = file.metadata()
    save_file(tensors, world / _STATE, metadata)


PARTIAL.add("nothing", HALF, 0, out="half")
for _share in (0.0, 0.001, 0.1, 0.5, 0.9):
    _partial(f"one bit of the state flipped, at {_share:.1%}", flipped(_STATE, _share), "state.saf")
_partial("the state cut short", cut(_STATE), "state.safetensors")
for _what, _data in {
    "empty": b"",
    "a list": _facts("[]"),
    "nested 100,000 deep": _facts(BOMB),
    "not UTF-8": b"\xff\xfe{}",
    "an empty object": _facts("{}"),
    "an integer of 400 digits": _facts('{"schema": ' + "9" * 400 + "}"),
}.items():
    _partial(f"the state {_what}", written(_STATE, _data), "state.safetensors")
_partial("metrics.jsonl emptied", written(".half.vlcpctl/partial/metrics.jsonl", ""), "metrics")
_partial("metrics.jsonl removed", removed(".half.vlcpctl/partial/metrics.jsonl"), "metrics")
_partial(
    "a loss in metrics.jsonl edited",
    flipped(".half.vlcpctl/partial/metrics.jsonl", 0.1),
    "metrics",
)
for _what, _data in {
    "empty": "",
    "a list": "[]",
    "nested 100,000 deep": BOMB,
    "not UTF-8": b"\xff{}",
    "an empty object": "{}",
}.items():
    _partial(f"identity.json {_what}", written(_IDENTITY, _data), "identity.json")
_partial("identity.json removed", removed(_IDENTITY), "identity.json")
PARTIAL.add(
    "identity.json removed, other --lr",
    f"{HALF} --lr 0.5",
    (4, _REFUSED),
    prepare=removed(_IDENTITY),
    out="half",
)
PARTIAL.add("other --lr", f"{HALF} --lr 0.5", 4, says="lr", out="half")
for _variable in ("ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS"):
    _less = {_variable: "AVX2"}
    PARTIAL.add(f"{_variable}=AVX2", HALF, _REFUSED, says=_variable, out="half", environment=_less)
    _accepted = f"{HALF} --accept-inexact"
    PARTIAL.add(f"{_variable}=AVX2", _accepted, 0, out="half", environment=_less)
_partial(
    "the state of another run's directory",
    _swap_states,
)
_partial("the state is a directory", _as_directory, "state.safetensors")
_partial("a tensor of the state renamed", _rename_tensor, "state.safetensors")
PARTIAL.add(
    "--force starts over whatever the state",
    f"{HALF} --force",
    0,
    prepare=cut(_STATE),
    out="half",
)


_USES = {
    "train-step": f"train-step {B} -o out --method ctp --previous ctp --preset tiny "
    "--batch-size 4 --steps 2",
    "eval-retrieval": f"eval-retrieval {A} --checkpoint ctp -o out",
    "eval-zeroshot": f"eval-zeroshot {A} --checkpoint ctp -o out",
    "distill": f"distill {B} --teacher ctp -o out",
    "merge": "merge ctp ctp1 -o out",
    "buffer": f"buffer {A} -o out --policy herding --size 8 --checkpoint ctp",
    "spatial-report": f"spatial-report {A} --checkpoint ctp --checkpoint ctp1 -o out",
    "check": "check ctp",
    "check --deep": "check ctp --deep",
}
for _name, _line in _USES.items():
    CHECKPOINT.add(
        "one bit of the weights flipped",
        _line,
        (3, 5),
        prepare=flipped("ctp/open_clip_model.safetensors"),
        says="" if _name.startswith("check") else "open_clip_model.safetensors",
    )
_TRAIN = _USES["train-step"]


def _poison(world: Path) -> None:
    path = world / "ctp/open_clip_model.safetensors"
    tensors = load_file(path)
    name = max(tensors, key=lambda one: tensors[one].size)
    tensors[name] = np.full_like(tensors[name], np.nan)
    save_file(tensors, path)


CHECKPOINT.add("weights NaN", _USES["eval-retrieval"], (3, 5, 8), prepare=_poison)
CHECKPOINT.add("weights NaN", _TRAIN, (3, 5, 8), prepare=_poison)
_EWC = _TRAIN.replace("ctp", "ewc")
CHECKPOINT.add("a slot flipped", _EWC, (3, 5), prepare=flipped("ewc/method/*/*.safetensors"))
CHECKPOINT.add("a slot removed", _EWC, (3, 5), prepare=removed("ewc/method/*/*.safetensors"))
CHECKPOINT.add(
    "weights removed", _TRAIN, (3, 5), prepare=removed("ctp/open_clip_model.safetensors")
)
CHECKPOINT.add("weights cut short", _TRAIN, (3, 5), prepare=cut("ctp/open_clip_model.safetensors"))
_EDITS = {
    "step 'x'": {"step": "x"},
    "step []": {"step": []},
    "step -5": {"step": -5},
    "step 10^9": {"step": 10**9},
    "train_seconds 'x'": {"train_seconds": "x"},
    "tasks null": {"tasks": None},
    "tasks of numbers": {"tasks": [1, 2]},
    "task_steps longer than tasks": {"task_steps": [0, 1, 2, 3]},
    "identity edited": {"identity": {"lr": 1}},
    "content edited": {"content": "0" * 32},
    "files a list": {"files": []},
    "run a number": {"run": 7},
    "seed text": {"seed": "zero"},
    "schema of another version": {"schema": "vlcpctl.checkpoint/9"},
    "schema a list": {"schema": []},
}
for _what, _fields in _EDITS.items():
    for _line in (_TRAIN, _USES["eval-retrieval"], "check ctp", "inspect ctp"):
        _codes = (3, 5) if not _line.startswith("inspect") else (0, 3, 5)
        CHECKPOINT.add(
            f"checkpoint.json: {_what}",
            _line,
            _codes,
            prepare=edit_json("ctp/checkpoint.json", setting(**_fields)),
            writes=False,
        )
for _what, _data in {
    "nested 100,000 deep": BOMB,
    "an object nested 100,000 deep": '{"a":' * 100_000,
    "empty": "",
    "not UTF-8": b"\xff",
    "a lone surrogate": '{"schema": "\\ud800"}',
    "binary zeros": bytes(4096),
}.items():
    for _line in (*_USES.values(), "inspect ctp", "inspect ctp1"):
        # inspect ctp1 looks at its neighbours, among them the damaged one.
        _codes = (0,) if _line == "inspect ctp1" else (3, 5)
        CHECKPOINT.add(
            f"checkpoint.json {_what}",
            _line,
            _codes,
            prepare=written("ctp/checkpoint.json", _data),
            writes=False,
        )
CHECKPOINT.add(
    "weights that diverge in the last step",
    f"train-step {A} -o out --method seqf --preset tiny --model micro --batch-size 4 --steps 1 "
    "--lr 1e30",
    (0, 8),
)
for _lr in ("inf", "nan", "-1"):
    CHECKPOINT.add(
        f"--lr {_lr}",
        f"train-step {A} -o out --method seqf --preset tiny --model micro --batch-size 4 "
        f"--steps 1 --lr {_lr}",
        2,
    )
TARGETS = Table("Targets and reports were edited")
_LWF = (
    f"train-step {B} -o out --method lwf --previous ctp --targets targets --preset tiny "
    "--batch-size 4 --steps 2"
)
TARGETS.add("nothing", _LWF, 0)
for _name in ("targets/*.npy", "targets/*.parquet"):
    TARGETS.add(f"{_name} flipped", _LWF, (3, 5), prepare=flipped(_name))
    TARGETS.add(f"{_name} cut short", _LWF, (3, 5), prepare=cut(_name))
    TARGETS.add(f"{_name} removed", _LWF, (3, 5), prepare=removed(_name))
TARGETS.add("targets.json nested deep", _LWF, (3, 5), prepare=written("targets/targets.json", BOMB))
TARGETS.add(
    "summary.json nested deep",
    "inspect report",
    (3, 5),
    prepare=written("report/summary.json", BOMB),
)
TARGETS.add(
    "summary.json foreign",
    "forgetting-report rows.ndjson -o report --force",
    4,
    prepare=written("report/summary.json", '{"mine": 1}'),
    out="report",
    writes=True,
)
TARGETS.add(
    "every file of the world at once",
    "check .",
    (3, 5),
    prepare=both(flipped("ctp/open_clip_model.safetensors"), written("s/stream.json", BOMB)),
)

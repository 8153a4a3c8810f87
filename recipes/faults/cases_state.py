"""Half-written runs, and finished checkpoints that were edited."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from case import Table, both, cut, edit_json, flipped, removed, setting, written
from safetensors.numpy import load_file, save_file
from world import HALF, HALF_CTP, A, B

BOMB = "[" * 100_000
PARTIAL = Table("A half-written train-step is resumed")
CHECKPOINT = Table("A finished checkpoint was edited")
_STATE = ".half.vlcpctl/partial/at-*"
_IDENTITY = ".half.vlcpctl/partial/identity.json"
_REFUSED = 5


def _partial(fault: str, prepare: Callable[[Path], object], says: str = "", **more: object) -> None:
    PARTIAL.add(fault, HALF, _REFUSED, prepare=prepare, says=says, out="half", **more)


def _overwrite(world: Path, name: str, data: str | bytes) -> None:
    for state in world.glob(_STATE):
        (state / name).write_bytes(data.encode() if isinstance(data, str) else data)


def _edit_position(world: Path, **fields: object) -> None:
    for path in world.glob(f"{_STATE}/position.json"):
        value = {**json.loads(path.read_text()), **fields}
        path.write_text(json.dumps({k: v for k, v in value.items() if v is not None}))


def _swap_states(world: Path) -> None:
    (mine,) = world.glob(_STATE)
    (other,) = world.glob(".halfctp.vlcpctl/partial/at-*")
    shutil.rmtree(mine)
    other.rename(mine)


def _as_directory(world: Path, name: str) -> None:
    for state in world.glob(_STATE):
        (state / name).unlink()
        (state / name).mkdir()


def _rename_tensor(world: Path) -> None:
    for path in world.glob(f"{_STATE}/optimizers/*.safetensors"):
        tensors = load_file(path)
        name = min(tensors)
        tensors[f"{name}x"] = tensors.pop(name)
        save_file(tensors, path)


PARTIAL.add("nothing", HALF, 0, out="half")
for _name in ("model.safetensors", "optimizers/*.safetensors", "slots/*/*.safetensors"):
    _file = _name.rpartition("/")[2].lstrip("*")
    _partial(f"{_name} removed", removed(f"{_STATE}/{_name}"), _file)
    _partial(f"one bit of {_name} flipped", flipped(f"{_STATE}/{_name}"), _file)
    _partial(f"{_name} cut short", cut(f"{_STATE}/{_name}"), _file)
for _name in ("position.json", "state.json"):
    _partial(f"{_name} removed", removed(f"{_STATE}/{_name}"))
    for _what, _data in {
        "empty": "",
        "a list": "[]",
        "nested 100,000 deep": BOMB,
        "not UTF-8": b"\xff\xfe{}",
        "an empty object": "{}",
        "an integer of 400 digits": '{"step": ' + "9" * 400 + "}",
    }.items():
        _partial(f"{_name} {_what}", lambda w, n=_name, d=_data: _overwrite(w, n, d))
_partial("a counter in position.json edited", lambda w: _edit_position(w, step=2))
_partial("an extra key in position.json", lambda w: _edit_position(w, zzz=1))
_partial("plateau missing in position.json", lambda w: _edit_position(w, plateau=None))
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
_partial("a file of the state is a directory", lambda w: _as_directory(w, "model.safetensors"))
_partial("a tensor of an optimizer renamed", _rename_tensor)
for _name in ("slots/*/*.safetensors", "optimizers/*.safetensors"):
    PARTIAL.add(
        f"ctp: {_name} removed",
        HALF_CTP,
        _REFUSED,
        prepare=removed(f".halfctp.vlcpctl/partial/at-*/{_name}"),
        out="halfctp",
    )
PARTIAL.add(
    "--force starts over whatever the state",
    f"{HALF} --force",
    0,
    prepare=removed(f"{_STATE}/model.safetensors"),
    out="half",
)


_USES = {
    "train-step": f"train-step {B} -o out --method ctp --previous ctp --preset tiny "
    "--batch-size 4 --steps 2",
    "eval-retrieval": f"eval-retrieval {A} --checkpoint ctp -o out",
    "eval-zeroshot": f"eval-zeroshot {A} --checkpoint ctp -o out",
    "distill": f"distill {B} --teacher ctp -o out",
    "interpolate": "interpolate ctp ctp1 -o out --alpha 0.5",
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

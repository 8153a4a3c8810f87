"""A saved state that is missing a file, or has another one, is refused in one line and named."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from support.rewritten import forget_pair

from vlcpctl.core.digests import digests_of
from vlcpctl.core.errors import Diverged, Incompatible, OutputExists
from vlcpctl.core.manifest import read_manifest
from vlcpctl.testing.battery import TrainingWorld, in_child, kill_at, make_world, request
from vlcpctl.training.config.request import TrainRequest
from vlcpctl.training.loop.metrics_log import MetricsLog
from vlcpctl.training.train_step import train_step

METHOD = "si"  # with slots of the task and of the stream
WEIGHTS = "open_clip_model.safetensors"

Damage = Callable[[Path], object]  # of the partial directory


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> TrainingWorld:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def killed(world: TrainingWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The staging directory of a run that was killed after it saved the state of step 4."""
    root = tmp_path_factory.mktemp("killed")
    assert in_child(_step(world, root), kill_at("step=4")) == -signal.SIGKILL
    return root / ".00.vlcpctl"


def _step(world: TrainingWorld, root: Path, **how: object) -> TrainRequest:
    return request(world, METHOD, 0, root, buffered=False, save_every="2", **how)


def _copied(killed: Path, root: Path) -> Path:
    return Path(shutil.copytree(killed, root / killed.name)) / "partial"


def _state(partial: Path) -> Path:
    (found,) = partial.glob("at-*")
    return found


def _edit(name: str, change: Callable[[bytes], bytes]) -> Damage:
    def damage(partial: Path) -> None:
        path = next(partial.rglob(name))
        path.write_bytes(change(path.read_bytes()))

    return damage


def _remove(name: str) -> Damage:
    return lambda partial: next(partial.rglob(name)).unlink()


def _flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def _with(name: str, change: Callable[[dict[str, object]], object]) -> Damage:
    def edit(data: bytes) -> bytes:
        value = json.loads(data)
        change(value)
        return json.dumps(value).encode()

    return _edit(name, edit)


def _without_entry(name: str) -> Damage:
    def change(state: dict[str, object]) -> None:
        del state["files"][name]  # type: ignore[attr-defined]

    return _with("state.json", change)


DEPTH_BOMB = b"[" * 100_000
DAMAGES: list[tuple[str, Damage, str]] = [
    ("no optimizer", _remove("optimizers/model.safetensors"), "model.safetensors is missing"),
    ("no slot", _remove("slots/si/path.safetensors"), "path.safetensors is missing"),
    ("no weights", lambda partial: (_state(partial) / "model.safetensors").unlink(), "is missing"),
    ("a bit of the weights", _edit("model.safetensors", _flipped), "has changed"),
    ("a bit of a slot", _edit("slots/si/path.safetensors", _flipped), "path.safetensors has"),
    ("a slot cut short", _edit("slots/si/path.safetensors", lambda data: data[:-4]), "and had"),
    ("no position", _remove("position.json"), "position.json is missing"),
    ("position empty", _edit("position.json", lambda _: b""), "it has 0 bytes"),
    ("position without plateau", _with("position.json", lambda it: it.pop("plateau")), "position"),
    ("position and more", _with("position.json", lambda it: it.update(zzz=1)), "position.json has"),
    ("another step", _with("position.json", lambda it: it.update(step=2)), "position.json has"),
    ("no journal", _remove("metrics.jsonl"), "metrics.jsonl is missing"),
    ("empty journal", _edit("metrics.jsonl", lambda _: b""), "metrics.jsonl has changed"),
    ("edited journal", _edit("metrics.jsonl", lambda it: it.replace(b"0", b"1", 1)), "journal"),
    ("no identity", _remove("identity.json"), "identity.json is missing"),
    ("identity empty", _edit("identity.json", lambda _: b""), "identity.json has changed"),
    ("identity a list", _edit("identity.json", lambda _: b"[]"), "identity.json has changed"),
    ("identity deep", _edit("identity.json", lambda _: DEPTH_BOMB), "identity.json has changed"),
    ("identity no text", _edit("identity.json", lambda _: b"\xff{}"), "identity.json has changed"),
    ("identity edited", _edit("identity.json", lambda it: it + b" "), "identity.json has changed"),
    ("no manifest", _remove("state.json"), "has changed since it was saved: it has no state.json"),
    ("manifest empty", _edit("state.json", lambda _: b""), "state.json is not readable JSON"),
    ("manifest deep", _edit("state.json", lambda _: DEPTH_BOMB), "state.json is not readable"),
    ("manifest a list", _edit("state.json", lambda _: b"[]"), "state.json is not a JSON object"),
    ("manifest no text", _edit("state.json", lambda _: b"\xff{}"), "state.json is not readable"),
    ("another schema", _with("state.json", lambda it: it.update(schema="x")), "has schema 'x'"),
    ("no list", _with("state.json", lambda it: it.pop("files")), "field 'files' is missing"),
    ("a shorter list", _without_entry("slots/si/path.safetensors"), "not part of the saved state"),
    ("no size", _with("state.json", lambda it: it["files"].update({"position.json": 1})), "files"),
    ("one more file", lambda partial: (_state(partial) / "x").write_text(""), "/x is not part of"),
    (
        "the position of another state",
        lambda partial: _state(partial).rename(partial / "at-0000-0000000005"),
        "has the position of another state",
    ),
]


@pytest.mark.parametrize(("damage", "named"), [case[1:] for case in DAMAGES],
                         ids=[case[0] for case in DAMAGES])  # fmt: skip
def test_a_damaged_state_is_refused_and_named(
    world: TrainingWorld, killed: Path, tmp_path: Path, damage: Damage, named: str
) -> None:
    damage(_copied(killed, tmp_path))
    with pytest.raises(Incompatible) as caught:
        train_step(_step(world, tmp_path))
    said = str(caught.value)
    assert "\n" not in said
    assert said.endswith("; --force starts over")
    assert (named if named != "journal" else "metrics.jsonl has changed") in said
    assert not (tmp_path / "00").exists()


def test_force_starts_over_from_a_damaged_state(
    world: TrainingWorld, killed: Path, tmp_path: Path
) -> None:
    _edit("model.safetensors", _flipped)(_copied(killed, tmp_path))
    train_step(_step(world, tmp_path, force=True))
    train_step(_step(world, tmp_path / "whole"))
    assert _bytes(tmp_path) == _bytes(tmp_path / "whole")


def test_a_whole_state_is_resumed_with_the_same_bytes(
    world: TrainingWorld, killed: Path, tmp_path: Path
) -> None:
    _copied(killed, tmp_path)
    train_step(_step(world, tmp_path))
    train_step(_step(world, tmp_path / "whole"))
    assert _bytes(tmp_path) == _bytes(tmp_path / "whole")


def _bytes(root: Path) -> list[bytes]:
    return [(root / "00" / name).read_bytes() for name in (WEIGHTS, "metrics.jsonl")]


def test_what_another_command_left_is_refused_even_without_its_identity(
    world: TrainingWorld, killed: Path, tmp_path: Path
) -> None:
    partial = _copied(killed, tmp_path)
    with pytest.raises(OutputExists, match="unfinished run of a different command: seed was 0"):
        train_step(_step(world, tmp_path, seed=1))
    (partial / "identity.json").unlink()
    with pytest.raises(Incompatible, match=r"identity\.json is missing; --force starts over"):
        train_step(_step(world, tmp_path, seed=1))


def test_a_run_on_data_that_were_rewritten_since_does_not_go_on(
    world: TrainingWorld, killed: Path, tmp_path: Path
) -> None:
    _copied(killed, tmp_path)
    step = _step(world, tmp_path)
    stream = Path(shutil.copytree(step.tasks[0].parent, tmp_path / "stream"))
    task = stream / step.tasks[0].name
    forget_pair(task)
    with pytest.raises(OutputExists, match=r"tasks was .*--force replaces it"):
        train_step(replace(step, tasks=(task,)))
    assert not (tmp_path / "00").exists()
    train_step(replace(step, tasks=(task,), force=True))
    made, found = read_manifest(tmp_path / "00", "checkpoint"), read_manifest(task, "task")
    assert (made["tasks"], made["ids"]) == ([found["id"]], {found["content"]: found["id"]})


def _rewritten(partial: Path, name: str, change: Callable[[Path], object]) -> None:
    """Change a file and its entry in state.json: as a program would that knows the format."""
    state = _state(partial)
    change(state / name)
    listed = json.loads((state / "state.json").read_text())
    listed["files"] = digests_of(state)
    del listed["files"]["state.json"]
    (state / "state.json").write_text(json.dumps(listed))


def _tensors(change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        values = load_file(path)
        change(values)
        path.unlink()
        save_file(values, path)

    return edit


def _first_moment(values: dict[str, object]) -> object:
    return values.pop(next(name for name in sorted(values) if name.endswith("/exp_avg")))


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("optimizers/model.safetensors", Path.unlink, r"lacks optimizers/model\.safetensors"),
        ("slots/si/path.safetensors", Path.unlink, r"lacks slots/si/path\.safetensors"),
        ("model.safetensors", Path.unlink, r"lacks model\.safetensors"),
        (
            "slots/si/other.safetensors",
            lambda path: shutil.copy(path.with_name("path.safetensors"), path),
            r"has slots/si/other\.safetensors, which the run does not use",
        ),
        (
            "slots/si/path.safetensors",
            _tensors(lambda values: values.pop("ln_final.bias")),
            r"slots/si/path\.safetensors lacks the tensor 'ln_final.bias'",
        ),
        (
            "optimizers/model.safetensors",
            _tensors(_first_moment),
            r"optimizers/model\.safetensors lacks the tensor '.*/exp_avg'",
        ),
        (
            "optimizers/model.safetensors",
            _tensors(
                lambda values: values.update({"x/step": values["ln_final.bias/step"].clone()})
            ),
            r"has the unexpected tensor 'x/step'",
        ),
    ],
)
def test_what_the_method_needs_is_missing_rather_than_zero(
    world: TrainingWorld,
    killed: Path,
    tmp_path: Path,
    name: str,
    change: Callable[[Path], object],
    said: str,
) -> None:
    _rewritten(_copied(killed, tmp_path), name, change)
    with pytest.raises(Incompatible, match=said + ".*; --force starts over"):
        train_step(_step(world, tmp_path))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"phase": 7}, "has the position of another state"),
        ({"pairs": -1}, "which the run does not have"),
        ({"step": "4"}, "field 'step': expected an integer, got text"),
        ({"plateau": 3}, "field 'plateau': expected an object, got an integer"),
        ({"plateau": {}}, "another version: best, drops, stalled"),
        ({"scaler": {"scale": 1.0}}, "lacks the loss scaler of --precision"),
        ({"best": 1.0}, r"lacks best\.safetensors"),
        ({"zzz": 1}, "zzz"),
    ],
)
def test_a_position_that_the_run_does_not_have_is_refused(
    world: TrainingWorld, killed: Path, tmp_path: Path, fields: dict[str, object], said: str
) -> None:
    def change(path: Path) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    _rewritten(_copied(killed, tmp_path), "position.json", change)
    with pytest.raises(Incompatible, match=said):
        train_step(_step(world, tmp_path))


def test_the_manifest_of_a_state_covers_all_its_files(killed: Path) -> None:
    state = _state(killed / "partial")
    listed = json.loads((state / "state.json").read_text())
    assert set(listed["files"]) == {
        path.relative_to(state).as_posix() for path in state.rglob("*") if path.is_file()
    } - {"state.json"}
    assert {"model.safetensors", "optimizers/model.safetensors"} < listed["files"].keys()
    assert all(entry.keys() == {"bytes", "xxh3_128"} for entry in listed["files"].values())


def test_the_digest_of_the_log_is_that_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path, 0)
    log.append({"step": 0})
    first = log.sync()
    assert first == digests_of(tmp_path)["metrics.jsonl"]
    log.append({"step": 1})
    log.close()
    resumed = MetricsLog(path, first["bytes"])
    assert resumed.sync() == first
    resumed.append({"step": 1})
    assert resumed.sync() == digests_of(tmp_path)["metrics.jsonl"]
    resumed.close()


def _diverging(world: TrainingWorld, root: Path, **how: object) -> TrainRequest:
    step = request(world, "ema", 0, root, buffered=False, **how)
    settings = replace(step.settings, lr=float("inf"), optimizer="sgd", schedule="constant")
    return replace(step, settings=settings)


def test_weights_that_diverge_in_the_last_step_are_not_published(
    world: TrainingWorld, tmp_path: Path
) -> None:
    step = _diverging(world, tmp_path)
    step = replace(step, settings=replace(step.settings, steps=1))
    with pytest.raises(Diverged, match=r"contains NaN or infinity; no state had been saved; a low"):
        train_step(step)
    assert not (tmp_path / "00").exists()


def test_a_state_with_weights_that_are_not_finite_is_not_saved(
    world: TrainingWorld, tmp_path: Path
) -> None:
    step = _diverging(world, tmp_path, save_every="1")
    with pytest.raises(Diverged, match=r"the weights diverged at step 0 of training: .* no state"):
        train_step(step)
    assert not list((tmp_path / ".00.vlcpctl" / "partial").glob("at-*"))


def test_a_state_is_removed_under_another_name(
    world: TrainingWorld, killed: Path, tmp_path: Path
) -> None:
    """A process killed while it removes an old state must not leave half of one as the newest."""
    partial = _copied(killed, tmp_path)
    shutil.copytree(_state(partial), partial / "removing")
    (partial / "removing" / "position.json").unlink()
    train_step(_step(world, tmp_path))
    assert not partial.exists()

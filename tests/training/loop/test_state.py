"""A state is read as it was written, or refused in one line that names its file."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from support.rewritten import forget_pair

from vlcpctl.core.batch import Batch, Features, Terms, Weights
from vlcpctl.core.errors import Diverged, Incompatible, OutputExists
from vlcpctl.core.method import Method, Run, Slot
from vlcpctl.files.digests import digests_of
from vlcpctl.files.manifest import read_manifest
from vlcpctl.testing.battery import (
    TrainingWorld,
    chain,
    checkpoint_bytes,
    in_child,
    kill_at,
    request,
)
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.settings import Settings
from vlcpctl.training.state import MetricsLog, ResumeDirectory, SavedProgress
from vlcpctl.training.train_step import train_step

METHOD = "si"  # with slots of the task and of the stream

Damage = Callable[[Path], object]  # of the partial directory


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


def _edited(name: str, change: Callable[[bytes], bytes]) -> Damage:
    return lambda partial: (partial / name).write_bytes(change((partial / name).read_bytes()))


def _as_directory(saved: Path) -> None:
    (saved / "state.safetensors").unlink()
    (saved / "state.safetensors").mkdir()


def _of_before(partial: Path) -> None:
    (partial / "state.safetensors").unlink()
    (partial / "at-0000-0000000004").mkdir()


def _nested(data: bytes) -> bytes:
    facts = b'{"__metadata__":{"vlcpctl":"' + b"[" * 10**5 + b'"}}'
    return len(facts).to_bytes(8, "little") + facts


DAMAGES: dict[str, tuple[Damage, str]] = {
    "a bit": (_edited("state.safetensors", lambda it: it[:-1] + bytes([it[-1] ^ 1])), "changed"),
    "a step": (_edited("state.safetensors", lambda it: it.replace(b"step", b"pets", 1)), ""),
    "cut short": (_edited("state.safetensors", lambda it: it[:-4]), "cannot read"),
    "empty": (_edited("state.safetensors", lambda it: b""), "cannot read"),
    "nested": (_edited("state.safetensors", _nested), "nested too deeply"),
    "a directory": (_as_directory, "state.safetensors"),
    "of 0.3": (_of_before, "partial"),
    "no log": (lambda partial: (partial / "metrics.jsonl").unlink(), "metrics.jsonl is missing"),
    "log cut": (_edited("metrics.jsonl", lambda it: b""), "metrics.jsonl has changed"),
    "log edited": (_edited("metrics.jsonl", lambda it: it.replace(b"0", b"1", 1)), "metrics.jsonl"),
    "no identity": (
        lambda partial: (partial / "identity.json").unlink(),
        "identity.json is missing",
    ),
    "identity": (_edited("identity.json", lambda it: it + b" "), "identity.json has changed"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_refused_and_started_over_with_force(
    world: TrainingWorld, killed: Path, tmp_path: Path, damage: str
) -> None:
    change, named = DAMAGES[damage]
    change(_copied(killed, tmp_path))
    with pytest.raises(Incompatible) as caught:
        train_step(_step(world, tmp_path))
    said = str(caught.value)
    assert "\n" not in said
    assert named in said
    assert said.endswith("; --force starts over")
    assert not (tmp_path / "00").exists()
    if damage in {"a bit", "of 0.3"}:
        train_step(_step(world, tmp_path, force=True))
        train_step(_step(world, tmp_path / "whole"))
        assert checkpoint_bytes(tmp_path) == checkpoint_bytes(tmp_path / "whole")


def _saved(root: Path, tensors: Weights) -> ResumeDirectory:
    state = ResumeDirectory(root / "out")
    state.claim({}, {}, force=False, accept_inexact=False)
    log = MetricsLog(state.journal, 0)
    state.save(SavedProgress(step=1, best=-torch.inf, scaler={"scale": 2.0}), tensors, log.sync())
    log.close()
    return state


def test_no_changed_byte_is_read(tmp_path: Path) -> None:
    state = _saved(tmp_path, {"model:w": torch.arange(3.0), "model:n": torch.tensor(2)})
    data = state.state.read_bytes()
    for at in range(len(data)):
        state.state.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(Incompatible, match=r"state\.safetensors"):
            state.load()


def test_tensors_of_every_kind_are_read_as_they_were(tmp_path: Path) -> None:
    whole, kinds = torch.randn(4, 6), (torch.bfloat16, torch.float16, torch.int64, torch.bool)
    tensors = {
        "one": whole,
        "two": whole,
        "rows": whole[:2],
        "column": whole[:, 1],
        "turned": whole.t(),
        "number": torch.tensor(3.5),
        "nothing": torch.empty(0, 3),
        **{f"of {kind}": whole.to(kind) for kind in kinds},
    }
    saved, found = _saved(tmp_path, tensors).load() or (None, {})
    assert saved == SavedProgress(step=1, best=-torch.inf, scaler={"scale": 2.0})
    assert found.keys() == tensors.keys()
    for name, value in tensors.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=0)


@dataclass(frozen=True)
class Sharing(Method):
    """Two slots of one tensor, views of it, and one of a weight."""

    name: ClassVar[str] = "sharing"

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        kept = torch.zeros(2, 3)
        return (
            Slot(name="one", lifetime="stream", start=lambda run: {"x": kept, "row": kept[0]}),
            Slot(name="two", lifetime="task", start=lambda run: {"x": kept}),
            Slot(name="none", lifetime="stream", start=lambda run: {}),
            Slot(
                name="weight",
                lifetime="task",
                start=lambda run: {"scale": run.weights["logit_scale"].detach().view(1)},
            ),
        )

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, Terms]:
        return {"kept": run.slot("one")["x"].sum() * run.weights["logit_scale"]}, {}

    def after_step(self, run: Run, batch: Batch, aux: Terms, *, stepped: bool) -> None:
        run.slot("two")["x"].add_(run.slot("weight")["scale"])


def test_slots_that_share_memory_resume_exactly(world: TrainingWorld, tmp_path: Path) -> None:
    for step, killed in zip(*(chain(world, "seqf", tmp_path / of) for of in "ab"), strict=True):
        train_step(replace(step, methods=(Sharing(),)))
        cut = replace(killed, methods=(Sharing(),))
        assert in_child(cut, kill_at("step=3")) == -signal.SIGKILL
        train_step(cut)
    assert checkpoint_bytes(tmp_path / "a") == checkpoint_bytes(tmp_path / "b")


def test_the_loss_scaler_of_fp16_resumes_exactly(
    world: TrainingWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With scales at which gradients of so small a model overflow, and back."""
    scaler = partial(torch.amp.GradScaler, init_scale=2.0**19, growth_interval=3)
    monkeypatch.setattr(torch.amp, "GradScaler", scaler)
    whole = request(world, "ctp", 0, tmp_path / "whole", buffered=False)
    whole = replace(whole, settings=replace(whole.settings, precision="fp16"))
    cut = replace(whole, out=tmp_path / "cut" / "00", save_every="2")
    assert in_child(cut, kill_at("step=4")) == -signal.SIGKILL
    saved, _ = ResumeDirectory(cut.out).load() or (SavedProgress(), {})
    assert saved.scaler["scale"] not in {None, 2.0**19}
    train_step(cut)
    train_step(whole)
    assert checkpoint_bytes(tmp_path / "cut") == checkpoint_bytes(tmp_path / "whole")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda it: it.pop("slots/si/path:ln_final.bias"), "lacks .*slots/si/path:ln_final.bias"),
        (lambda it: it.pop("model:ln_final.bias"), "lacks .*model:ln_final.bias"),
        (lambda it: it.update({"slots/si/x:y": torch.zeros(1)}), "unexpected .*slots/si/x:y"),
        (lambda it: it.update({"model:ln_final.bias": torch.zeros(1)}), "has shape"),
        (lambda it: it.clear(), "lacks the tensor"),
    ],
)
def test_what_the_method_needs_is_missing_rather_than_zero(
    world: TrainingWorld,
    killed: Path,
    tmp_path: Path,
    change: Callable[[Weights], object],
    said: str,
) -> None:
    """As another version of a method would leave it: its digests are right."""
    partial = _copied(killed, tmp_path)
    state = ResumeDirectory(tmp_path / "00")
    saved, tensors = state.load() or (SavedProgress(), {})
    change(tensors)
    state.save(saved, tensors, digests_of(partial, ["metrics.jsonl"])["metrics.jsonl"])
    with pytest.raises(Incompatible, match=said + ".*; --force starts over"):
        train_step(_step(world, tmp_path))


def test_a_run_on_data_that_were_rewritten_since_does_not_go_on(
    world: TrainingWorld, killed: Path, tmp_path: Path
) -> None:
    _copied(killed, tmp_path)
    step = _step(world, tmp_path)
    stream = Path(shutil.copytree(step.tasks[0].parent, tmp_path / "stream"))
    task = stream / step.tasks[0].name
    forget_pair(task)
    with pytest.raises(OutputExists, match=r"tasks .*--force replaces it"):
        train_step(replace(step, tasks=(task,)))
    assert not (tmp_path / "00").exists()
    train_step(replace(step, tasks=(task,), force=True))
    made, found = read_manifest(tmp_path / "00", "checkpoint"), read_manifest(task, "task")
    assert (made["tasks"], made["ids"]) == ([found["id"]], {found["content"]: found["id"]})


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


@pytest.fixture
def diverging(
    world: TrainingWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., TrainRequest]:
    """A training whose first step makes the weights infinite, at a rate that no option takes."""
    monkeypatch.setattr(Settings, "__post_init__", lambda _: None)

    def made(steps: int | None = None, **how: object) -> TrainRequest:
        step = request(world, "ema", 0, tmp_path, buffered=False, **how)
        rate: dict[str, Any] = {"lr": float("inf"), "steps": steps or step.settings.steps}
        settings = replace(step.settings, optimizer="sgd", schedule="constant", **rate)
        return replace(step, settings=settings)

    return made


def test_weights_that_diverge_in_the_last_step_are_not_published(
    diverging: Callable[..., TrainRequest], tmp_path: Path
) -> None:
    step = diverging(steps=1)
    with pytest.raises(Diverged, match=r"contains NaN or infinity; no state had been saved; a low"):
        train_step(step)
    assert not (tmp_path / "00").exists()


def test_a_state_with_weights_that_are_not_finite_is_not_saved(
    diverging: Callable[..., TrainRequest],
) -> None:
    step = diverging(save_every="1")
    with pytest.raises(Diverged, match=r"the weights diverged at step 0 of training: .* no state"):
        train_step(step)
    assert ResumeDirectory(step.out).newest() is None

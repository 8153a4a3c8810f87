"""What is refused before a model is loaded: a mistake, its error, and the words to type next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file
from support.commands import buffer, import_checkpoint

from vlcpctl.core.errors import BadInput, UsageError, VlcpError
from vlcpctl.models import dual_encoder
from vlcpctl.testing.battery import TrainingWorld, request, with_fusion_model
from vlcpctl.testing.tiny_stream import make_task
from vlcpctl.training.methods import compose
from vlcpctl.training.plan import make_plan
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.settings import SETTINGS
from vlcpctl.training.train_step import train_step


@dataclass
class Place:
    """A stream, and what is made of it: `seqf/00` and `fused/00` have learned its first task."""

    world: TrainingWorld
    root: Path

    def first(self, names: str = "seqf", *values: str, **how: Any) -> TrainRequest:
        """The first task, with settings and fields of the request as options give them."""
        return _with(request(self.world, names, 0, self.root / "x", buffered=False), values, how)

    def second(self, names: str = "seqf", *values: str, **how: Any) -> TrainRequest:
        """The second task, after the first one by seqf."""
        step = request(self.world, names, 1, self.root / "seqf", buffered=False)
        return _with(replace(step, out=self.root / "out"), values, how)

    def week(self, pairs: int) -> tuple[Path]:
        """A task of so many pairs."""
        path = self.root / f"week-{pairs}"
        return (path if path.exists() else make_task(path, pairs),)

    def buffer(self, policy: str, number: int) -> Path:
        return self.world.buffers[policy][number]


def _with(step: TrainRequest, values: tuple[str, ...], how: dict[str, Any]) -> TrainRequest:
    given = {name: how.pop(name) for name in [*how] if name in SETTINGS}
    origins = how.pop("origins", step.origins | dict.fromkeys(given, "flag"))
    names = "+".join(method.name for method in step.methods)
    settings, methods = replace(step.settings, **given), compose(names, values)
    return replace(step, settings=settings, methods=methods, origins=origins, **how)


@pytest.fixture(scope="module")
def place(world: TrainingWorld, tmp_path_factory: pytest.TempPathFactory) -> Place:
    root = tmp_path_factory.mktemp("place")
    train_step(request(world, "seqf", 0, root / "seqf", buffered=False))
    train_step(request(with_fusion_model(world), "seqf", 0, root / "fused", buffered=False))
    buffer(world.tasks[2], root / "late", size="6", quiet=True)
    weights = root / "weights.safetensors"
    save_file(dict(dual_encoder.build("micro", seed=7).module.state_dict()), weights)
    import_checkpoint(weights, root / "start", model="micro", quiet=True)
    import_checkpoint(weights, root / "stepped", model="micro", step=0, quiet=True)
    return Place(world, root)


CASES: dict[str, tuple[Callable[[Place], TrainRequest], type[VlcpError], str]] = {
    # Tasks, and what they continue from
    "a first task": (lambda at: at.first(from_scratch=True), UsageError, "--from-scratch has no"),
    "a task twice": (lambda at: at.second(tasks=at.world.tasks[1:2] * 2), UsageError, "give it on"),
    "a learned task": (
        lambda at: at.first(origins={}, previous=at.root / "seqf/00"),
        UsageError,
        "already trained on",
    ),
    "joint": (
        lambda at: at.second("joint", origins={}, previous=at.root / "seqf/00"),
        UsageError,
        "joint needs a model that was not trained on any task",
    ),
    "a start with a step": (
        lambda at: at.first("lwf", origins={}, previous=at.root / "stepped"),
        UsageError,
        "without --step",
    ),
    "--accept-inexact": (lambda at: at.first(accept_inexact=True), UsageError, "no unfinished run"),
    # Models
    "--loss of --previous": (lambda at: at.second(loss="softmax"), UsageError, "--loss has no eff"),
    "--loss of a fusion model": (
        lambda at: at.first(model="albef-micro", loss="sigmoid"),
        UsageError,
        "--loss sigmoid is for dual encoders",
    ),
    # Buffers
    "der alone": (lambda at: at.second("der", buffer=None), UsageError, "der needs --buffer"),
    "a buffer of the task": (
        lambda at: at.second("er", buffer=at.buffer("reservoir", 1)),
        UsageError,
        "use the buffer made before this task",
    ),
    "a first task with a later one": (
        lambda at: at.first(buffer=at.root / "late"),
        UsageError,
        "use the buffer made before this task",
    ),
    "no place": (
        lambda at: at.second("er", replay="share=0.95"),
        UsageError,
        "use a smaller share or a larger --batch-size",
    ),
    # Batches and processes
    "one pair": (
        lambda at: at.first(tasks=at.week(1), origins={}, batch_size=64),
        BadInput,
        "--buffer",
    ),
    "few pairs": (
        lambda at: at.first(tasks=at.week(3), origins={}, batch_size=64, nproc=4),
        UsageError,
        "use at most 3",
    ),
    "--captions": (lambda at: at.first(captions="all"), UsageError, "--captions all has no effect"),
    "--warmup": (lambda at: at.first(warmup=0.99), UsageError, "use a smaller share"),
    "a rest of machines": (lambda at: at.first(nproc=4, nodes=3), UsageError, "by --nodes 3"),
    "no meeting": (lambda at: at.first(nproc=4, nodes=2), UsageError, "--rendezvous HOST:PORT"),
    "one machine": (lambda at: at.first(rendezvous="a:1"), UsageError, "without --nodes"),
    "--local-loss": (lambda at: at.first(local_loss=True), UsageError, "use --nproc"),
    "a part of a text": (
        lambda at: at.second("incclip", "incclip.count=5", nproc=2),
        UsageError,
        "set a multiple of 2",
    ),
    "a part of a pair": (
        lambda at: at.second("incclip", "incclip.memory_batch=3", nproc=2),
        UsageError,
        "set a multiple of 2",
    ),
    "--tf32": (lambda at: at.first(tf32=True, device="cpu"), UsageError, "--tf32 has no effect"),
    # Methods
    "a queue of groups": (
        lambda at: at.first("ctp", "ctp.keep_queue=true", "ctp.queue=8", negatives="distinct"),
        UsageError,
        "use --negatives all",
    ),
    "--reference": (
        lambda at: at.second(reference=at.world.tasks[0]),
        UsageError,
        "--reference has no effect",
    ),
    "--reference at first": (
        lambda at: at.first("zscl", reference=at.world.tasks[0]),
        UsageError,
        "in a first task",
    ),
    # Adapters
    "--lora alone": (lambda at: at.first(lora="2"), UsageError, "--lora needs --previous"),
    "--lora above": (lambda at: at.second(lora="9"), UsageError, "use a smaller one"),
    "--lora and dha": (lambda at: at.second("dha", lora="2"), UsageError, "dha, whose hooks"),
    "--lora and afec": (
        lambda at: at.second("afec", lora="2", fresh_state=True),
        UsageError,
        "afec, which trains a second model",
    ),
    "--lora and incclip": (
        lambda at: at.second("incclip", lora="2", fresh_state=True),
        UsageError,
        "give --set incclip.clip=false",
    ),
    "--lora and fusion": (
        lambda at: at.second(lora="2", previous=at.root / "fused/00"),
        UsageError,
        "without --lora",
    ),
    # Inputs that nothing uses
    "--teacher": (
        lambda at: at.second("ewc", teacher=at.root / "start", fresh_state=True),
        UsageError,
        "--teacher has no effect",
    ),
    "--replay": (
        lambda at: at.second("lwf", replay="share=0.5"),
        UsageError,
        "--replay has no effect",
    ),
    "--fresh-state": (lambda at: at.second(fresh_state=True), UsageError, "--fresh-state has no"),
    "--blend-buffers": (
        lambda at: at.second("ewc", blend_buffers=True, fresh_state=True),
        UsageError,
        "--blend-buffers has no effect",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_refused(place: Place, case: str) -> None:
    made, error, said = CASES[case]
    with pytest.raises(VlcpError) as refused:
        make_plan(made(place))
    assert type(refused.value) is error, refused.value
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "made",
    [
        lambda at: at.second("ctp", "ctp.keep_queue=true", negatives="all", fresh_state=True),
        lambda at: at.first("ctp", "ctp.keep_queue=true", "ctp.queue=0", negatives="distinct"),
        lambda at: at.first("ewc+ctp", negatives="distinct"),  # whose importances are kept, too
        lambda at: at.second("lwf", previous=at.root / "stepped"),  # the next task of that run
        lambda at: at.second("lwf", teacher=at.root / "stepped"),
    ],
)
def test_what_looks_like_one_is_planned(
    place: Place, made: Callable[[Place], TrainRequest]
) -> None:
    make_plan(made(place))

"""What is refused before a model is loaded: a mistake, and the words to type next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file
from support.commands import buffer, import_checkpoint

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.models import dual_encoder
from vlcpctl.testing.battery import TrainingWorld, request, with_fusion_model
from vlcpctl.testing.tiny_stream import make_task
from vlcpctl.training.methods import compose
from vlcpctl.training.plan import make_plan
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.settings import SETTINGS
from vlcpctl.training.train_step import train_step

PATHS = ("previous", "teacher", "buffer", "reference")
Step = Callable[..., TrainRequest]


@pytest.fixture(scope="module")
def place(world: TrainingWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`seqf/00` and `fused/00` have learned the first task; `late` is a buffer of the third."""
    root = tmp_path_factory.mktemp("place")
    train_step(request(world, "seqf", 0, root / "seqf", buffered=False))
    train_step(request(with_fusion_model(world), "seqf", 0, root / "fused", buffered=False))
    buffer(world.tasks[2], root / "late", size="6", quiet=True)
    (root / "own").symlink_to(world.buffers["reservoir"][1])  # of the second task
    (root / "task").symlink_to(world.tasks[0])
    weights = root / "weights.safetensors"
    save_file(dict(dual_encoder.build("micro", seed=7).module.state_dict()), weights)
    import_checkpoint(weights, root / "start", model="micro", quiet=True)
    import_checkpoint(weights, root / "stepped", model="micro", step=0, quiet=True)
    return root


@pytest.fixture
def step(place: Path, world: TrainingWorld, tmp_path: Path) -> Step:
    """The first task, or the second after the first by seqf, by a method with options."""

    def made(number: int, method: str, /, pairs: int = 0, **how: Any) -> TrainRequest:
        names, *values = method.split()
        asked = request(world, names, number, place / "seqf", buffered=False)
        for name in {*PATHS} & how.keys():
            how[name] = how[name] and place / how[name]
        given = {name: how.pop(name) for name in [*how] if name in SETTINGS}
        # The model of a checkpoint is no option's.
        is_given = asked.previous is not None or "previous" not in how
        origins = asked.origins | dict.fromkeys(given, "flag") if is_given and not pairs else {}
        if pairs:
            how["tasks"] = (make_task(tmp_path / "week", pairs),)
        settings, methods = replace(asked.settings, **given), compose(names, values)
        changed = {"out": tmp_path / "out", "origins": origins, **how}
        return replace(asked, settings=settings, methods=methods, **changed)

    return made


MISTAKES: tuple[tuple[int, str, dict[str, Any], str], ...] = (
    # What a task continues from
    (0, "seqf", {"from_scratch": True}, "--from-scratch"),
    (0, "seqf", {"previous": "seqf/00"}, "already trained on"),
    (1, "joint", {"previous": "seqf/00"}, "not trained on any task"),
    (0, "lwf", {"previous": "stepped"}, "without --step"),
    (0, "seqf", {"accept_inexact": True}, "no unfinished run"),
    (1, "seqf", {"loss": "softmax"}, "--loss"),
    (0, "seqf", {"model": "albef-micro", "loss": "sigmoid"}, "dual encoders"),
    # Buffers
    (1, "der", {"buffer": None}, "--buffer"),
    (1, "er", {"buffer": "own"}, "the buffer made before this task"),
    (0, "seqf", {"buffer": "late"}, "the buffer made before this task"),
    (1, "er", {"replay": "share=0.95"}, "larger --batch-size"),
    # Batches and processes
    (0, "seqf", {"pairs": 3, "batch_size": 64, "nproc": 4}, "at most 3"),
    (0, "seqf", {"captions": "all"}, "--captions"),
    (0, "seqf", {"warmup": 0.99}, "a smaller share"),
    (0, "seqf", {"nproc": 4, "nodes": 3}, "--nodes 3"),
    (0, "seqf", {"nproc": 4, "nodes": 2}, "--rendezvous HOST:PORT"),
    (0, "seqf", {"rendezvous": "a:1"}, "--nodes"),
    (0, "seqf", {"local_loss": True}, "--nproc"),
    (1, "incclip incclip.count=5", {"nproc": 2}, "a multiple of 2"),
    (1, "incclip incclip.memory_batch=3", {"nproc": 2}, "a multiple of 2"),
    (0, "seqf", {"tf32": True, "device": "cpu"}, "--tf32"),
    # Methods
    (0, "ctp ctp.keep_queue=true ctp.queue=8", {"negatives": "distinct"}, "--negatives all"),
    (1, "seqf", {"reference": "task"}, "--reference"),
    (0, "zscl", {"reference": "task"}, "in a first task"),
    (1, "ewc", {"teacher": "start", "fresh_state": True}, "--teacher"),
    (1, "lwf", {"replay": "share=0.5"}, "--replay"),
    (1, "seqf", {"fresh_state": True}, "--fresh-state"),
    (1, "ewc", {"blend_buffers": True, "fresh_state": True}, "--blend-buffers"),
    # Adapters
    (0, "seqf", {"lora": "2"}, "--previous"),
    (1, "seqf", {"lora": "9"}, "a smaller one"),
    (1, "dha", {"lora": "2"}, "dha, whose hooks"),
    (1, "afec", {"lora": "2", "fresh_state": True}, "afec, which trains a second model"),
    (1, "incclip", {"lora": "2", "fresh_state": True}, "incclip.clip=false"),
    (1, "seqf", {"lora": "2", "previous": "fused/00"}, "without --lora"),
)


@pytest.mark.parametrize(("number", "method", "how", "word"), MISTAKES)
def test_a_mistake_is_refused(
    step: Step, number: int, method: str, how: dict[str, Any], word: str
) -> None:
    with pytest.raises(UsageError) as refused:
        make_plan(step(number, method, **how))
    assert word in str(refused.value)


def test_one_pair_is_no_data_for_a_contrast(step: Step) -> None:
    with pytest.raises(BadInput, match="--buffer"):
        make_plan(step(0, "seqf", pairs=1, batch_size=64))


@pytest.mark.parametrize(
    ("number", "method", "how"),
    [
        (1, "ctp ctp.keep_queue=true", {"negatives": "all", "fresh_state": True}),
        (0, "ctp ctp.keep_queue=true ctp.queue=0", {"negatives": "distinct"}),
        (0, "ewc+ctp", {"negatives": "distinct"}),  # whose importances are kept, too
        (1, "lwf", {"previous": "stepped"}),  # the next task of that run
        (1, "lwf", {"teacher": "stepped"}),
        (0, "ewc", {"teacher": "start"}),
        (0, "joint", {"previous": "start"}),
    ],
)
def test_what_looks_like_one_is_planned(
    step: Step, number: int, method: str, how: dict[str, Any]
) -> None:
    make_plan(step(number, method, **how))

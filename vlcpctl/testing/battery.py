"""A method over a stream: in one interpreter, in a process per task, in processes killed."""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vlcpctl.core.method import Method
from vlcpctl.data.buffer import update as buffers
from vlcpctl.data.buffer.policies import BufferSize
from vlcpctl.data.buffer.request import BufferRequest
from vlcpctl.data.precomputed.features import StoredProjections
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.data.tasks.task import Split, open_stream, open_task
from vlcpctl.files.manifest import read_manifest
from vlcpctl.methods.plugins.registry import MethodRegistry
from vlcpctl.testing.tiny_stream import make_pair, make_stream
from vlcpctl.training.methods import compose, settings_of_methods
from vlcpctl.training.plan import make_plan
from vlcpctl.training.presets import resolve
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.train_step import train_step

ENDS = ["before-rename", "renamed"]  # the last points of a run

TASKS, IMAGES, BATCH = 3, 12, 4
WIDTH = 8  # of the micro models' projections

FLAGS = {"model": "micro", "batch_size": BATCH, "epochs": 2, "lr": 1e-2, "image_size": 16}


class Buffers(dict[str, list[Path]]):
    """The buffers after each task by policy; those of a policy are made when they are used."""

    def __init__(self, directory: Path, tasks: list[Path]) -> None:
        super().__init__()
        self._directory, self._tasks = directory, tasks

    def __missing__(self, policy: str) -> list[Path]:
        self[policy] = _buffers(self._directory, self._tasks, policy)
        return self[policy]


@dataclass
class TrainingWorld:
    """A tiny stream, and the buffers that grow along it."""

    tasks: list[Path]
    buffers: Buffers
    flags: dict[str, object] = field(default_factory=lambda: dict(FLAGS))


def make_world(directory: Path, pair: Callable[[int], Pair] = make_pair) -> TrainingWorld:
    """Three tasks of twelve pairs, and buffers of six after each."""
    stream = make_stream(directory / "stream", TASKS, IMAGES, pair=pair)
    tasks = [task.path for task in open_stream(stream)]
    return TrainingWorld(tasks, Buffers(directory, tasks))


def with_fusion_model(world: TrainingWorld) -> TrainingWorld:
    """The same data for a fusion model."""
    return dataclasses.replace(world, flags={**world.flags, "model": "albef-micro"})


def _buffers(directory: Path, tasks: list[Path], policy: str) -> list[Path]:
    made: list[Path] = []
    for number, task in enumerate(tasks):
        out = directory / f"{policy}-{number}"
        request = BufferRequest(
            task=open_task(task),
            previous=open_task(made[-1]) if made else None,
            policy=policy,
            size=BufferSize(count=6, text=6),
            seed=0,
            stores_features=policy != "herding",
        )
        plan = buffers.plan_update(request)
        buffers.write_buffer(out, request, plan, _features, stored_projections)
        made.append(out)
    return made


def _features(split: Split, rows: np.ndarray) -> np.ndarray:
    drawn = np.random.default_rng(len(rows)).normal(size=(len(rows), 4)).astype(np.float32)
    normalised: np.ndarray = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return normalised


def stored_projections(split: Split, rows: np.ndarray, width: int = WIDTH) -> StoredProjections:
    """Projections that depend on the images alone."""
    numbers = [int(split.column("source_key")[row]) for row in rows]
    draws = [np.random.default_rng(number).normal(size=(2, width)) for number in numbers]
    sides = np.array(draws, dtype=np.float16).reshape(-1, 2, width)
    return StoredProjections(
        sides[:, 0], sides[:, 1], split.caption_counts()[rows], ["m"] * len(rows)
    )


def request(
    world: TrainingWorld,
    names: str,
    number: int,
    root: Path,
    *,
    buffered: bool,
    registry: MethodRegistry | None = None,
    **how: Any,
) -> TrainRequest:
    """The train-step of one task of the stream; `joint` takes all tasks up to this one.

    Tasks are trained at `root`, in order. After the first one the buffer is replayed if a method
    needs it, or if `buffered`; the first task is the reference of those that need one. `how` are
    further fields of the request.
    """
    methods = compose(names, registry=registry)
    joint = any(method.from_unseen for method in methods)
    settings, origins = resolve("tiny", world.flags, settings_of_methods(methods))
    first = number == 0 or joint
    needs_buffer = any(method.needs(first=False).buffer for method in methods)
    refers = any(method.needs(first=first).reference for method in methods)
    policy = policy_of(methods) or "reservoir"
    replays = (buffered or needs_buffer) and not first
    return TrainRequest(
        tasks=tuple(world.tasks[: number + 1]) if joint else (world.tasks[number],),
        out=root / f"{number:02d}",
        run=names,
        methods=methods,
        settings=settings,
        origins={} if not first else origins,
        previous=None if first else root / f"{number - 1:02d}",
        buffer=world.buffers[policy][number - 1] if replays else None,
        reference=world.tasks[0] if refers else None,
        **how,
    )


def policy_of(methods: Sequence[Method]) -> str:
    """The policy of the buffer that methods need or their papers have; "" if none has one."""
    needed = [method.needs(first=False).policy for method in methods]
    usual = [method.usual_policy for method in methods]
    return next((one for one in needed + usual if one), "")


def chain(world: TrainingWorld, names: str, root: Path, **how: Any) -> list[TrainRequest]:
    """The train-steps of the whole stream, which save a state every second step."""
    return [
        request(world, names, number, root, **{"buffered": False, "save_every": "2", **how})
        for number in range(TASKS)
    ]


def points_of(step: TrainRequest) -> list[str]:
    """Where to kill: before the first save, right after it, near the end of each phase, at its end.

    A process that was killed resumes from the last save, every second step, to the next point.
    """
    points = []
    for number, phase in enumerate(make_plan(step).phases):
        opening = ["step=0", "saved"] if number == 0 else ["step=0"]
        closing = [
            f"step={last}" for last in range(max(len(opening), phase.steps - 3), phase.steps)
        ]
        points += [*opening, *closing, f"phase={number}"]
    return [*points, *ENDS]


def require_exact_resume(steps: Callable[[Path], Sequence[TrainRequest]], root: Path) -> None:
    """Train a stream in one interpreter, in a process per task, and in processes that are killed.

    `steps` returns the train-steps of the stream in a directory. Raises AssertionError if a process
    fails or the checkpoints are not the same bytes.
    """
    in_one_interpreter(steps(root / "one"))
    for step in steps(root / "apart"):
        assert in_child(step) == 0, f"the process of {step.out.name} failed"
    for step in steps(root / "killed"):
        for point in points_of(step):
            code = in_child(step, kill_at(point))
            assert code == -signal.SIGKILL, f"{point} of {step.out.name} was not reached"
        assert in_child(step) == 0, f"{step.out.name} did not resume after the last kill"
    expected = checkpoint_bytes(root / "one")
    assert len(expected) >= 2 * TASKS
    for name, what in (("apart", "in processes of their own"), ("killed", "killed and resumed")):
        found = checkpoint_bytes(root / name)
        assert found.keys() == expected.keys(), f"other files {what}: {sorted(found)}"
        differing = [file for file, value in expected.items() if found[file] != value]
        assert not differing, f"other bytes {what}: {', '.join(differing)}"


def in_one_interpreter(requests: Sequence[TrainRequest]) -> None:
    """Every task through the library, in this very process."""
    for step in requests:
        train_step(step)


def in_child(step: TrainRequest, observe: Callable[[str], None] = lambda point: None) -> int:
    """One train-step in a forked child; its exit status, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        gc.freeze()  # a collection would copy what the child shares with its parent
        code = 1
        try:
            train_step(step, observe)
            code = 0
        finally:  # a child must not run the parent's tests
            if code:
                traceback.print_exc()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def kill_at(point_to_kill: str) -> Callable[[str], None]:
    """An observer that kills its own process, as `kill -9` would, at a point of the run."""

    def observe(point: str) -> None:
        if point == point_to_kill:
            os.kill(os.getpid(), signal.SIGKILL)

    return observe


def checkpoint_bytes(root: Path) -> dict[str, bytes]:
    """What must be equal: every safetensors file and every journal below a directory."""
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(_reproducible_files(root))
    }


def _reproducible_files(root: Path) -> Iterator[Path]:
    for manifest in root.glob("[0-9][0-9]/checkpoint.json"):
        read_manifest(manifest.parent, "checkpoint")
        yield from manifest.parent.rglob("*.safetensors")
        yield manifest.parent / "metrics.jsonl"

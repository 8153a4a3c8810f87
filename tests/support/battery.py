"""A method over a stream: in one interpreter, in a process per task, in processes killed."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from support.tiny_stream import make_pair, make_stream

from vlcpctl.core.manifest import read_manifest
from vlcpctl.data.buffer import update as buffers
from vlcpctl.data.buffer.size import BufferSize
from vlcpctl.data.precomputed.stored_features import StoredProjections
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.data.tasks.task import Split, open_stream, open_task
from vlcpctl.training.config.composition import compose, settings_of_methods
from vlcpctl.training.config.request import Request
from vlcpctl.training.config.settings import resolve
from vlcpctl.training.train_step import train_step

TASKS, IMAGES, BATCH = 3, 12, 4
WIDTH = 8  # of the micro models' projections

FLAGS = {"model": "micro", "batch_size": BATCH, "epochs": 2, "lr": 1e-2, "image_size": 16}


@dataclass
class TrainingWorld:
    """A tiny stream, and the buffers that grow along it."""

    tasks: list[Path]
    buffers: dict[str, list[Path]]  # by policy
    flags: dict[str, object] = field(default_factory=lambda: dict(FLAGS))


def make_world(directory: Path, pair: Callable[[int], Pair] = make_pair) -> TrainingWorld:
    """Three tasks of twelve pairs, and buffers of six after each."""
    stream = make_stream(directory / "stream", TASKS, IMAGES, pair=pair)
    tasks = [task.path for task in open_stream(stream)]
    made = {policy: _buffers(directory, tasks, policy) for policy in ("reservoir", "herding")}
    return TrainingWorld(tasks, made)


def with_fusion_model(world: TrainingWorld) -> TrainingWorld:
    """The same data for a fusion model."""
    return dataclasses.replace(world, flags={**world.flags, "model": "albef-micro"})


def _buffers(directory: Path, tasks: list[Path], policy: str) -> list[Path]:
    made: list[Path] = []
    for number, task in enumerate(tasks):
        out = directory / f"{policy}-{number}"
        request = buffers.Request(
            task=open_task(task),
            previous=open_task(made[-1]) if made else None,
            policy=policy,
            size=BufferSize(count=6, text=6),
            seed=0,
            stores_features=policy == "reservoir",
        )
        plan = buffers.plan_update(request)
        buffers.write_buffer(out, request, plan, _features, stored_projections)
        made.append(out)
    return made


def _features(split: Split, rows: np.ndarray) -> np.ndarray:
    drawn = np.random.default_rng(len(rows)).normal(size=(len(rows), 4)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def stored_projections(split: Split, rows: np.ndarray, width: int = WIDTH) -> StoredProjections:
    """Projections that depend on the images alone."""
    numbers = [int(split.column("source_key")[row]) for row in rows]
    draws = [np.random.default_rng(number).normal(size=(2, width)) for number in numbers]
    sides = np.array(draws, dtype=np.float16).reshape(-1, 2, width)
    return StoredProjections(
        sides[:, 0], sides[:, 1], split.caption_counts()[rows], ["m"] * len(rows)
    )


def request(
    world: TrainingWorld, names: str, number: int, root: Path, *, buffered: bool, **how: object
) -> Request:
    """The train-step of one task of the stream; `joint` takes all tasks up to this one."""
    methods = compose(names)
    joint = any(method.from_unseen for method in methods)
    settings, origins = resolve("tiny", world.flags, settings_of_methods(methods))
    first = number == 0 or joint
    needs = [method.needs(first=False) for method in methods]
    policies = [need.policy for need in needs] + [method.usual_policy for method in methods]
    policy = next((one for one in policies if one), "reservoir")
    replays = (buffered or any(need.buffer for need in needs)) and not first
    return Request(
        tasks=tuple(world.tasks[: number + 1]) if joint else (world.tasks[number],),
        out=root / f"{number:02d}",
        run=names,
        methods=methods,
        settings=settings,
        origins={} if not first else origins,
        previous=None if first else root / f"{number - 1:02d}",
        buffer=world.buffers[policy][number - 1] if replays else None,
        **how,  # type: ignore[arg-type]
    )


def in_one_interpreter(requests: Sequence[Request]) -> None:
    """Every task through the library, in this very process."""
    for step in requests:
        train_step(step)


def in_child(step: Request, observe: Callable[[str], None] = lambda point: None) -> int:
    """One train-step in a forked child; its exit status, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        try:
            train_step(step, observe)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a child must not run the parent's tests
            import traceback

            traceback.print_exc()
            os._exit(1)
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

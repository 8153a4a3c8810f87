"""Average the weights of two checkpoints of the same model (WiSE-FT, Wortsman et al., 2022)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.checkpoint import (
    ParentCheckpoint,
    all_tensors,
    open_parent,
    write_checkpoint,
)
from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.model_facts import facts_of_encoder, model_facts
from vlcpctl.checkpoints.step_config import config_id
from vlcpctl.core.atomic import already_made
from vlcpctl.core.batch import Weights
from vlcpctl.core.errors import Incompatible
from vlcpctl.core.params import blend_, copy_of
from vlcpctl.core.staging import Staging
from vlcpctl.core.tensors import require_same_names
from vlcpctl.core.versions import data_was
from vlcpctl.models.encoders import Encoder

METHOD = "interpolate"


@dataclass(frozen=True, kw_only=True)
class InterpolationRequest:
    """Two checkpoints, the output path of each average, and the run name of their rows."""

    first: Path
    second: Path
    outputs: tuple[tuple[float, Path], ...]  # alpha, and the path of its checkpoint
    run: str
    force: bool = False


def interpolate(request: InterpolationRequest) -> Iterator[Path]:
    """Write the averages that do not exist yet, and yield the path of each once it is finished.

    Raises Incompatible if the two checkpoints are of different models, and OutputExists if
    something else is at an output path.
    """
    with ExitStack() as locks:  # of all outputs, before any is examined
        for _, out in request.outputs:
            locks.enter_context(Staging(out).locked_to_look())
        yield from _interpolate(request)


def _interpolate(request: InterpolationRequest) -> Iterator[Path]:
    first, second = open_parent(request.first), open_parent(request.second)
    missing = [
        alpha
        for alpha, out in request.outputs
        if not already_made(
            out, "checkpoint", identity(request, first, second, alpha), force=request.force
        )
    ]
    average = _Average(first, second) if missing else None
    known = model_facts(second.path, second.manifest)  # what the model is called
    for alpha, out in request.outputs:
        if average is not None and alpha in missing:
            encoder = average.at(alpha)
            facts = facts_of_encoder(encoder, known["name"], known["pretrained"])
            manifest = replace(_manifest(request, first, second, alpha), model=facts)
            write_checkpoint(out, encoder, manifest, parent=second)
        yield out


def identity(
    request: InterpolationRequest, first: ParentCheckpoint, second: ParentCheckpoint, alpha: float
) -> dict[str, Any]:
    """The facts that decide the average, with contents in place of paths."""
    return {
        "method": METHOD,
        "run": request.run,
        "checkpoints": [first.manifest.content, second.manifest.content],
        "alpha": alpha,
    }


class _Average:
    """A model that is set to averages of two checkpoints' weights."""

    def __init__(self, first: ParentCheckpoint, second: ParentCheckpoint) -> None:
        start, self.encoder = first.encoder(), second.encoder()
        _refuse_other_model(start, self.encoder, first, second)
        self.first, self.second = all_tensors(start), all_tensors(self.encoder)
        what = f"{second.path} is a different model than {first.path}: it"
        require_same_names(self.second, self.first, what)

    def at(self, alpha: float) -> Encoder:
        """The model with (1 - alpha) * first + alpha * second; integer counters are the second's.

        It is the same object every time, with other weights.
        """
        averaged = {n: t for n, t in self.first.items() if t.is_floating_point()}
        weights: Weights = {**self.second, **copy_of(averaged)}
        blend_({name: weights[name] for name in averaged}, 1 - alpha, (alpha, self.second))
        live = {**self.encoder.weights(), **self.encoder.buffers()}
        for name, tensor in live.items():
            tensor.data.copy_(weights[name])
        return self.encoder


def _refuse_other_model(
    one: Encoder, other: Encoder, first: ParentCheckpoint, second: ParentCheckpoint
) -> None:
    """Refuse checkpoints of different models."""
    # Equal shapes are not enough: a different activation or image transform has the same shapes.
    for what in ("family", "config", "transform"):
        if getattr(one, what) != getattr(other, what):
            raise Incompatible(
                f"{second.path} is a different model than {first.path}: its {what} differs; "
                "only checkpoints of the same model can be averaged"
            )
    learns = [encoder.weights()["logit_scale"].requires_grad for encoder in (one, other)]
    if learns[0] != learns[1]:
        words = ["learned" if learned else "fixed" for learned in learns]
        raise Incompatible(
            f"{first.path} has a {words[0]} temperature and {second.path} a {words[1]} one; "
            "only checkpoints with the same kind of --temperature can be averaged"
        )


def _manifest(
    request: InterpolationRequest, first: ParentCheckpoint, second: ParentCheckpoint, alpha: float
) -> CheckpointManifest:
    """The manifest of an average: the tasks of both, else as the second's."""
    one, other = first.manifest, second.manifest
    rewritten = data_was([one, other])
    versions = one.versions | other.versions
    learned: dict[str, tuple[str, str, int | None]] = {}  # by the first id of each task
    for made in (one, other):
        for task, name, step in zip(made.tasks, made.task_names, made.task_steps, strict=True):
            known = learned.get(versions.first(task), (task, name, step))[0]
            # Of two versions of a task, the older one is recorded: it has the pairs of both.
            older = task if task in rewritten.get(known, ()) else known
            learned[versions.first(task)] = (older, name, step)
    return CheckpointManifest(
        identity=identity(request, first, second, alpha),
        run=request.run,
        method=METHOD,
        alpha=alpha,
        seed=other.seed,
        buffer=other.buffer,
        stream=other.stream or one.stream,
        stream_step=other.stream_step,
        step=max((step for step in (one.step, other.step) if step is not None), default=None),
        task_steps=[step for _, _, step in learned.values()],
        tasks=[task for task, _, _ in learned.values()],
        task_names=[name for _, name, _ in learned.values()],
        data_was=rewritten,
        parents=[one.content, other.content],
        configs=[config_id(one), config_id(other)],
        **_start(one, other),
    )


def _start(one: CheckpointManifest, other: CheckpointManifest) -> dict[str, Any]:
    """The facts about the checkpoint that the run of an average started from."""
    if other.start is None and one.origin is not None:
        return {"start": one.content}
    first = other if other.start is not None else one
    return {"start": first.start, "start_config": first.start_config}


def result(path: Path) -> dict[str, Any]:
    """The fields that the command prints for a checkpoint it has written."""
    made = CheckpointManifest.read(path)
    return {
        "path": str(path),
        "content": made.content,
        "run": made.run,
        "method": made.method,
        "alpha": made.alpha,
        "step": made.step,
    }

"""Average the weights of two checkpoints of the same model (WiSE-FT, Wortsman et al., 2022)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.checkpoint import Parent, all_tensors, hashes, link_slots, open_parent
from vlcpctl.core.atomic import already_made, new_directory
from vlcpctl.core.batch import Weights
from vlcpctl.core.errors import Incompatible
from vlcpctl.core.hashing import content_id
from vlcpctl.core.manifest import read_manifest, write_manifest
from vlcpctl.core.params import blend_, copy_of
from vlcpctl.core.tensors import require_same_names
from vlcpctl.models import encoders
from vlcpctl.models.encoders import Encoder

METHOD = "interpolate"


@dataclass(frozen=True, kw_only=True)
class Request:
    """Two checkpoints, the output path of each average, and the run name of their rows."""

    first: Path
    second: Path
    places: tuple[tuple[float, Path], ...]  # alpha, and the path of its checkpoint
    run: str
    force: bool = False


def interpolate(request: Request) -> Iterator[Path]:
    """Write the averages that do not exist yet, and yield the path of each once it is finished.

    Raises Incompatible if the two checkpoints are of different models, and OutputExists if
    something else is at an output path.
    """
    first, second = open_parent(request.first), open_parent(request.second)
    missing = [
        alpha
        for alpha, out in request.places
        if not already_made(
            out, "checkpoint", identity(request, first, second, alpha), force=request.force
        )
    ]
    average = _Average(first, second) if missing else None
    for alpha, out in request.places:
        if average is not None and alpha in missing:
            about = identity(request, first, second, alpha)
            with new_directory(out, "checkpoint.json") as directory:
                encoders.save(average.at(alpha), directory)
                link_slots(second, directory / "method")
                files = hashes(directory)
                content = content_id({"files": files, "identity": about})
                body = {**_body(request, first, second, alpha), "files": files}
                write_manifest(directory, "checkpoint", about, content, body)
        yield out


def identity(request: Request, first: Parent, second: Parent, alpha: float) -> dict[str, Any]:
    """The facts that decide the average, with contents in place of paths."""
    return {
        "method": METHOD,
        "run": request.run,
        "checkpoints": [first.content, second.content],
        "alpha": alpha,
    }


class _Average:
    """A model that is set to averages of two checkpoints' weights."""

    def __init__(self, first: Parent, second: Parent) -> None:
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


def _refuse_other_model(one: Encoder, other: Encoder, first: Parent, second: Parent) -> None:
    """Refuse checkpoints of different models."""
    # Equal shapes are not enough: a different activation or image transform has the same shapes.
    for what in ("family", "config", "view"):
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
            "only two with the same kind of --temperature can be averaged"
        )


def _body(request: Request, first: Parent, second: Parent, alpha: float) -> dict[str, Any]:
    """The manifest's entries besides the identity, the same as train-step's."""
    names, learned = (
        {
            task: told
            for one in (first, second)
            for task, told in zip(one.tasks, one.manifest[entry], strict=True)
        }
        for entry in ("task_names", "task_steps")
    )
    steps = [one.manifest["step"] for one in (first, second)]
    latest = second.manifest
    return {
        "run": request.run,
        "method": METHOD,
        "alpha": alpha,
        "seed": latest["seed"],
        "buffer": latest["buffer"],
        "stream": latest["stream"] or first.manifest["stream"],
        "step": max((step for step in steps if step is not None), default=None),
        "tasks": list(names),
        "task_names": list(names.values()),
        "task_steps": list(learned.values()),
        "stream_step": latest["stream_step"],
        "pairs": 0,
        "train_seconds": 0.0,
        "parents": [first.content, second.content],
        "fresh_state": False,
        "origins": {},
    }


def result(path: Path) -> dict[str, Any]:
    """The fields that the command prints for a checkpoint it has written."""
    manifest = read_manifest(path, "checkpoint")
    names = ("content", "run", "method", "alpha", "step")
    return {"path": str(path), **{name: manifest[name] for name in names}}

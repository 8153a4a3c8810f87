"""What a saved state must contain: exactly what the run, at that position, would have saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from vlcpctl.core.errors import Incompatible
from vlcpctl.core.tensors import require_same_names
from vlcpctl.training.config.phases import PhasePlan
from vlcpctl.training.loop.resume import START_OVER, SavedProgress
from vlcpctl.training.loop.train_run import TrainRun

MODEL, BEST, OPTIMIZERS, SLOTS = "model", "best", "optimizers/", "slots/"


def require_complete(
    run: TrainRun,
    phases: Sequence[PhasePlan],
    saved: SavedProgress,
    tensors: Mapping[str, Mapping[str, Tensor]],
    out: Path,
) -> None:
    """Raise Incompatible if something that the run needs is missing, or something is left over.

    `tensors` are those of the state by file and name. What is missing must not start at zero.
    """
    what = f"the saved state of {out}"
    _require_position(phases, saved, what)
    wanted = _expected_tensors(run, saved)
    optimizers = {
        f"{OPTIMIZERS}{phase.weights or MODEL}" for phase in phases[: saved.phase + 1]
    }  # each is created when its first phase starts
    _require_files(tensors.keys(), wanted.keys() | optimizers, what)
    try:
        for name, values in wanted.items():
            require_same_names(dict(tensors[name]), values, f"{what}, {name}.safetensors")
        for name in sorted(optimizers):
            _require_optimizer(tensors[name], run.trained, f"{what}, {name}.safetensors")
    except Incompatible as error:
        raise Incompatible(f"{error}{START_OVER}") from error


def _expected_tensors(run: TrainRun, saved: SavedProgress) -> dict[str, Mapping[str, Tensor]]:
    """Tensors by file and name, with the shapes that they must have, except the optimizers'."""
    everything = run.saved()
    slots = {
        f"{SLOTS}{method}/{slot}": values
        for method, named in run.slots.items()
        for slot, values in named.items()
    }
    best = {BEST: everything} if saved.best is not None else {}
    return {MODEL: everything, **best, **slots}


def _require_position(phases: Sequence[PhasePlan], saved: SavedProgress, what: str) -> None:
    if not (
        0 <= saved.phase < len(phases)
        and 0 < saved.step <= phases[saved.phase].steps
        and saved.pairs >= 0
        and saved.plateau.drops >= 0
    ):
        raise Incompatible(
            f"{what} is at phase {saved.phase}, step {saved.step}, which the run does not have"
            f"{START_OVER}"
        )


def _require_files(found: Iterable[str], wanted: Iterable[str], what: str) -> None:
    missing, unexpected = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    if missing:
        raise Incompatible(f"{what} lacks {missing[0]}.safetensors{START_OVER}")
    if unexpected:
        raise Incompatible(
            f"{what} has {unexpected[0]}.safetensors, which the run does not use{START_OVER}"
        )


def _require_optimizer(
    found: Mapping[str, Tensor], weights: Mapping[str, Tensor], what: str
) -> None:
    """Refuse an optimizer's state with tensors of no weight, or with parts of it missing."""
    fields: dict[str, set[str]] = {}
    for path, value in found.items():
        name, _, field = path.rpartition("/")
        if name not in weights:
            raise Incompatible(f"{what} has the unexpected tensor {path!r}")
        if value.shape not in (weights[name].shape, ()):
            raise Incompatible(f"{what}: {path!r} has shape {tuple(value.shape)}")
        fields.setdefault(name, set()).add(field)
    every = set().union(*fields.values())
    for name, own in fields.items():
        if own != every:
            raise Incompatible(f"{what} lacks the tensor {f'{name}/{min(every - own)}'!r}")

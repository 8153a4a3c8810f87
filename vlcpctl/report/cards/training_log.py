"""metrics.jsonl as curves of a bounded number of points."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.files.digests import changed_prefix
from vlcpctl.files.inputs import open_regular, parse_json
from vlcpctl.models.checkpoint_files import LOG
from vlcpctl.report.cards.search import FoundCheckpoint

MOST_BYTES = 1 << 27  # of a log: about a million optimizer steps
MOST_TERMS = 200  # of a log

_TRAINS = "train"  # the phase whose terms have no prefix
_HEAD = re.compile(rb'\{"phase": "([^"\\]{1,100})", "step": (\d{1,12})[,}]')
_VALIDATES = b'"val_'


@dataclass(frozen=True)
class TermCurve:
    """One term of a log: optimizer steps (N,), values (N,) with NaN where a line is broken."""

    term: str
    steps: NDArray[np.float64]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class TrainingLog:
    """The curves of one train-step; `steps` is the number of optimizer steps of its training."""

    steps: int
    curves: tuple[TermCurve, ...]


def read_training_log(checkpoint: FoundCheckpoint, most: int) -> TrainingLog | None:
    """The log of a checkpoint, with at most `most` rows of each phase; None if it has none.

    Rows are evenly spaced by their place in the file, the first and the last among them. A curve
    is broken where the file lacks steps or a value is not finite. Raises BadInput if the file is
    not what the checkpoint recorded, is too large, or is not a training log.
    """
    path = checkpoint.path / LOG
    entry = checkpoint.manifest.digests.get(LOG)
    if entry is None and not path.exists():
        return None
    problem = changed_prefix(path, entry) if entry and "bytes" in entry else None
    if problem is not None:
        raise BadInput(problem)
    lines = _lines(path)
    groups: dict[tuple[str, bool], list[tuple[int, bytes]]] = {}
    for number, line in enumerate(lines, 1):
        head = _HEAD.match(line)
        if head is None:
            raise BadInput(f"{path}:{number} is not a row of a training log")
        phase = head[1].decode("utf-8", "replace")
        groups.setdefault((phase, _VALIDATES in line), []).append((int(head[2]), line))
    curves = [one for key, rows in groups.items() for one in _curves(path, key[0], rows, most)]
    if len(curves) > MOST_TERMS:
        raise BadInput(f"{path} has {len(curves)} terms, more than {MOST_TERMS}")
    ends = [rows[-1][0] + 1 for (phase, _), rows in groups.items() if phase == _TRAINS]
    return TrainingLog(max(ends, default=0), tuple(curves))


def _lines(path: Path) -> list[bytes]:
    try:
        with open_regular(path) as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadInput(unreadable(path, error)) from error
    if len(data) > MOST_BYTES:
        raise BadInput(f"cannot read {path}: it has more than {MOST_BYTES} bytes")
    return data.splitlines()


def _curves(
    path: Path, phase: str, rows: Sequence[tuple[int, bytes]], most: int
) -> Iterator[TermCurve]:
    """The curves of the rows of one phase, or of its validations."""
    steps = np.array([step for step, _ in rows], dtype=np.float64)
    strides = np.diff(steps)
    if (strides <= 0).any():
        raise BadInput(f"{path}: the steps of phase {phase!r} are not in order")
    kept = thinned(len(rows), most)
    values = [_values(path, rows[place][1]) for place in kept]
    # Where steps are further apart than usual, rows are missing.
    usual = np.median(strides) if len(strides) else 1.0
    before = np.searchsorted(np.flatnonzero(strides > usual), kept)  # missing rows before each
    breaks = np.flatnonzero(np.diff(before))
    middles = (steps[kept[breaks]] + steps[kept[breaks + 1]]) / 2
    for name in dict.fromkeys(name for row in values for name in row):
        found = np.array([row.get(name, math.nan) for row in values])
        term = name if phase == _TRAINS else f"{phase}: {name}"
        at = np.insert(steps[kept], breaks + 1, middles)
        yield TermCurve(term, at, np.insert(found, breaks + 1, math.nan))


def thinned(count: int, most: int) -> NDArray[np.int64]:
    """The places of at most `most` (two or more) of `count` rows, evenly spaced with both ends.

    >>> thinned(10, 4).tolist(), thinned(3, 4).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    if count <= most:
        return np.arange(count)
    return np.arange(most) * (count - 1) // (most - 1)


def _values(path: Path, line: bytes) -> dict[str, float]:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise BadInput(f"{path} has a row that is not readable JSON: {error}") from error
    return {
        name: float(value) if math.isfinite(value) else math.nan
        for name, value in row.items()
        if name != "step" and isinstance(value, int | float) and not isinstance(value, bool)
    }

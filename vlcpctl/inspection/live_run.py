"""The state of a train-step that may still run, from the files that it writes. Torch-free."""

from __future__ import annotations

import math
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeGuard

from vlcpctl.core.errors import BadInput, Diverged, Interrupted
from vlcpctl.files.locks import holder_of
from vlcpctl.files.manifest import kind_of
from vlcpctl.files.outputs import Output, output_of
from vlcpctl.inspection.journal_tail import JournalTail
from vlcpctl.training.loop.metrics_log import FILE_NAME as JOURNAL
from vlcpctl.training.loop.state import Ended, PhaseSteps, ProgressFile

Status = Literal[
    "not started", "starting", "running", "finished", "diverged", "interrupted", "failed", "died"
]
SCHEMA = "vlcpctl.watch/1"
RATE_S = 30.0  # over which the rate is measured
LEAST_S = 2.0  # before which it is that of the whole process
REMOTE_S = 120.0  # since the last row, for which a process on another host counts as running
_DEPTH = 3  # of directories that are searched for runs
_ENDINGS: Mapping[int, Status] = {
    Diverged.exit_code: "diverged",
    Interrupted.exit_code: "interrupted",
}
# Names of numbers in rows that are not terms of the loss.
_NOT_TERMS = frozenset({"phase", "step", "loss", "lr"})


@dataclass(frozen=True, kw_only=True)
class RunState:
    """A train-step as it is now; steps are those of all phases, rates per second.

    `terms` are the numbers of the last optimizer step, the loss first, and `recent` those of
    earlier steps of the same phase, oldest first, with the last. `error` is the exit code and the
    message of a run that failed.
    """

    path: Path
    status: Status
    process: str = ""
    progress: ProgressFile | None = None
    phase: str = ""
    phase_done: int = 0
    phase_steps: int = 0
    done: int = 0
    total: int = 0
    rate: float | None = None
    left_s: float | None = None
    terms: Mapping[str, float]
    recent: Mapping[str, tuple[float, ...]]
    validation: Mapping[str, float] | None = None
    error: Ended | None = None

    @property
    def is_over(self) -> bool:
        """Whether no process works on it, so that nothing changes any more."""
        return self.status not in {"not started", "starting", "running"}

    @property
    def pairs_per_second(self) -> float | None:
        """The rate in pairs; None while it is unknown."""
        if self.rate is None or self.progress is None:
            return None
        return self.rate * self.progress.batch_size

    def as_json(self) -> dict[str, Any]:
        """The state as a JSON object, without the recent values."""
        found = asdict(self)
        more = {"pairs_per_second": self.pairs_per_second}
        left_out = {"recent", "progress", "process"}
        known = {name: value for name, value in found.items() if name not in left_out}
        error = {"error": known.pop("error")}  # last
        return {"schema": SCHEMA, **known, **more, "path": str(self.path), **error}


class LiveRun:
    """Looks at one train-step again and again; `out` is its checkpoint, which need not exist."""

    def __init__(self, out: Path) -> None:
        self.out, self._output = out, Output(out)
        self._tail = JournalTail(self._output.partial / JOURNAL)
        self._samples: deque[tuple[float, int]] = deque()
        self._started: float | None = None

    def look(self) -> RunState:
        """The state now. Files that are being replaced give the state before or after."""
        # The lock first: a process that ends in between has then finished, and not died.
        holder = holder_of(self._output.lock)
        progress = None
        with suppress(BadInput):
            progress = ProgressFile.read(self._output.partial)
        if progress is not None and progress.started != self._started:
            self._started = progress.started
            self._tail.forget()  # a resumed run has cut its journal, which may have grown again
            self._samples.clear()
        self._tail.read()
        return self._state(self._status(holder, progress), holder, progress)

    def _status(self, holder: dict[str, Any] | None, progress: ProgressFile | None) -> Status:
        if holder is not None:
            is_it = progress is not None and holder.get("pid") in {None, progress.pid}
            return "running" if is_it else "starting"
        if kind_of(self.out) == "checkpoint" and progress is None:
            return "finished"
        if progress is None:
            return "died" if self._tail.steps else "not started"
        if progress.ended:
            return _ENDINGS.get(progress.ended.code, "failed")
        if kind_of(self.out) == "checkpoint" and self.out.stat().st_mtime >= progress.started:
            return "finished"  # killed between the checkpoint and the removal of its state
        # A process on another host, whose lock is not seen here, may have written a row just now.
        modified = self._tail.modified or progress.started
        is_elsewhere = progress.host != socket.gethostname()
        return "running" if is_elsewhere and time.time() - modified < REMOTE_S else "died"

    def _state(
        self, status: Status, holder: dict[str, Any] | None, progress: ProgressFile | None
    ) -> RunState:
        rows = self._tail.steps
        last = rows[-1] if rows else {}
        phase, done, phase_done = _place(progress, last)
        rate = self._rate(done, progress) if status == "running" and progress else None
        total = sum(phase.steps for phase in progress.phases) if progress else 0
        terms = _terms(last)
        of_phase = [row for row in rows if row.get("phase") == last.get("phase")]
        validated = self._tail.validations[-1] if self._tail.validations else None
        return RunState(
            path=self.out,
            status=status,
            process=_process(holder, progress),
            progress=progress,
            phase=phase.name if phase else "",
            phase_done=phase_done,
            phase_steps=phase.steps if phase else 0,
            done=done,
            total=total,
            rate=rate,
            left_s=(total - done) / rate if rate else None,
            terms=terms,
            recent={
                name: tuple(row[name] for row in of_phase if _is_number(row.get(name)))
                for name in terms
            },
            validation=validated and {n: one for n, one in validated.items() if _is_number(one)},
            error=progress.ended if progress else None,
        )

    def _rate(self, done: int, progress: ProgressFile) -> float | None:
        """Steps per second lately, or of the whole process as long as little was seen of it."""
        now = time.monotonic()
        if not self._samples or self._samples[-1][1] != done:
            self._samples.append((now, done))
        while len(self._samples) > 2 and now - self._samples[1][0] > RATE_S:
            self._samples.popleft()
        (first, before), (last, after) = self._samples[0], self._samples[-1]
        if last - first >= LEAST_S and after > before:
            return (after - before) / (last - first)
        seconds = (self._tail.modified or 0) - progress.started
        own = done - progress.first
        return own / seconds if own > 0 and seconds > 0 else None


def running_below(directory: Path) -> list[Path]:
    """The checkpoints below a directory that train-steps are writing now, newest process first."""
    held = [out for out in _unfinished(directory) if holder_of(Output(out).lock) is not None]
    return sorted(held, key=_changed, reverse=True)


def last_below(directory: Path) -> Path | None:
    """The checkpoint below a directory, finished or not, that was written last; None without."""
    return max([*_unfinished(directory), *_finished(directory)], key=_changed, default=None)


def _unfinished(directory: Path) -> Iterator[Path]:
    """The outputs below a directory that have the state of a train-step."""
    for depth in range(_DEPTH):
        for journal in directory.glob("*/" * depth + f".*.vlcpctl/partial/{JOURNAL}"):
            output = output_of(journal.parent.parent)
            if output is not None:
                yield output


def _finished(directory: Path) -> Iterator[Path]:
    """The checkpoints below a directory that train-step wrote."""
    for depth in range(_DEPTH):
        for journal in directory.glob("*/" * depth + f"*/{JOURNAL}"):
            if kind_of(journal.parent) == "checkpoint":
                yield journal.parent


def _changed(out: Path) -> float:
    """When a row was written last."""
    return max(map(_modified, (Output(out).partial / JOURNAL, out / JOURNAL)))


def _modified(path: Path) -> float:
    """When a file was written last; 0 if there is none: a run that ends moves its journal."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _place(
    progress: ProgressFile | None, row: Mapping[str, Any]
) -> tuple[PhaseSteps | None, int, int]:
    """The phase of a row of the journal, and the steps done in all phases and in this one."""
    if progress is None:
        return None, 0, 0
    before = 0
    for phase in progress.phases:
        step = row.get("step", -1) - phase.offset
        if row.get("phase") == phase.name and 0 <= step < phase.steps:
            return phase, before + step + 1, step + 1
        before += phase.steps
    return (progress.phases[0] if progress.phases else None), progress.first, 0


def _terms(row: Mapping[str, Any]) -> dict[str, float]:
    """The loss, then its terms, of a row."""
    names = ["loss", *(name for name in row if name not in _NOT_TERMS)]
    return {name: row[name] for name in names if _is_number(row.get(name))}


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)


def _process(holder: dict[str, Any] | None, progress: ProgressFile | None) -> str:
    if holder and {"pid", "host"} <= holder.keys():
        return f"process {holder['pid']} on {holder['host']}"
    return f"process {progress.pid} on {progress.host}" if progress else ""

"""Evaluation rows in trackers: the names of their values, and the runs that they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import Thread
from typing import Any, Self

from vlcpctl.core.ending import at_signal
from vlcpctl.files.ids import content_id
from vlcpctl.files.rows import run_label
from vlcpctl.tracking.trackers import EVALUATION, TrackedRun, Trackers

AT_SIGNAL_S = 10.0
BEFORE = -1  # the step of a checkpoint that was not trained on the stream
_USUAL = {"cross-modal", "all-classes", "lbfgs", "angles"}  # protocols that names leave out


def row_values(row: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a row by name: EVALUATOR/DATA/METRIC, as in a report's tables.

    >>> row = {"evaluator": "retrieval", "protocol": "cross-modal", "task": "00-smileys"}
    >>> row |= {"gallery": "own", "split": "test", "metrics": {"i2t_r1": 50.0, "rm": None}}
    >>> row_values(row)
    {'retrieval/00-smileys/i2t_r1': 50.0}
    """
    protocol = row.get("protocol") or ""
    evaluator = [row["evaluator"], "" if protocol in _USUAL else protocol, row.get("map_variant")]
    prefix = f"{'-'.join(filter(None, evaluator))}/{_data_name(row)}"
    metrics = row["metrics"].items()
    return {f"{prefix}/{name}": value for name, value in metrics if value is not None}


def _data_name(row: Mapping[str, Any]) -> str:
    """The task or data set, with what else tells the rows of one checkpoint apart."""
    parts = [str(row["task"])]
    if row["gallery"] == "merged":
        parts.append(f"0-{row['task_step']}")
    if row["split"] not in {"test", "query+gallery"}:
        parts.append(row["split"])
    if since := row.get("since"):
        step = "start" if since["step"] is None else f"{since['step']:02d}"
        parts.append(f"since-{step}")
    return ".".join(parts)


class RowLog:
    """Logs evaluation rows as they are measured, those of each run and seed to a run of its own."""

    def __init__(self, destinations: Sequence[str]) -> None:
        self._destinations = destinations
        self._open: dict[tuple[str, int], Trackers] = {}
        self._closing = ExitStack()

    def log(self, row: Mapping[str, Any]) -> None:
        """Log the metrics of a row at the step of its checkpoint in the stream."""
        if not self._destinations:
            return
        run, seed = run_label(row["run"], row.get("alpha")), row["seed"]
        if (run, seed) not in self._open:
            trackers = Trackers.of(self._destinations, _tracked(run, seed, row))
            self._open[run, seed] = self._closing.enter_context(trackers)
        step = BEFORE if row["step"] is None else row["step"]
        self._open[run, seed].log(row_values(row), step)

    @classmethod
    @contextmanager
    def opened(cls, destinations: Sequence[str]) -> Iterator[Self]:
        """Within the block, rows can be logged; a signal closes the log, too."""
        log = cls(destinations)
        with at_signal(log._close_at_signal), log._closing:
            yield log

    def _close_at_signal(self) -> None:
        """Close, but wait at most AT_SIGNAL_S: the signal may have interrupted the library."""

        def close() -> None:
            for trackers in self._open.values():
                trackers.close(1)

        closing = Thread(target=close, daemon=True)
        closing.start()
        closing.join(AT_SIGNAL_S)


def _tracked(run: str, seed: int, row: Mapping[str, Any]) -> TrackedRun:
    about = {name: row.get(name) for name in ("run", "method", "seed", "preset", "buffer")}
    settings = (row.get("config") or {}).get("values", {})
    return TrackedRun(
        run=run,
        seed=seed,
        part=EVALUATION,
        id=content_id([EVALUATION, run, seed]),
        config={**about, **settings},
    )

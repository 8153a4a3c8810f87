"""Runs and their score matrices: the data classes that tables, charts and gates share."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from vlcpctl.files.rows import EarlierCheckpoint, Row
from vlcpctl.metrics.forgetting import Matrix

if TYPE_CHECKING:
    from vlcpctl.report.scores.summary import Spread

START = -1  # the step of a model not yet trained on the stream


def step_of(model: Row | EarlierCheckpoint) -> int:
    """The step of a checkpoint; START for a model not yet trained on the stream."""
    return START if model.step is None else model.step


def is_outside(row: Row) -> bool:
    """Whether a row is of data outside the stream of its run."""
    return row.gallery == "own" and row.task_step is None


def is_upper_bound(run: str, method: str) -> bool:
    """Whether a run is joint training, by its method or its name."""
    return method == "joint" or "joint" in run.lower().replace("_", "-").split("-")


@dataclass(frozen=True)
class SeedScores:
    """One metric of one seed: R and M, both (steps, tasks), and the model at the start (tasks,).

    `outside` has the last model's scores on the data sets outside the stream (sets,).
    """

    own: Matrix
    merged: Matrix
    start: Matrix
    outside: Matrix = field(default_factory=lambda: np.empty(0))

    def of(self, gallery: str) -> Matrix:
        """The matrix of a gallery: own, merged, or "start", the own one below the start's row.

        That of "outside" has one row, of the last model: (1, sets).
        """
        if gallery == "outside":
            return self.outside[None, :]
        if gallery == "merged":
            return self.merged
        return self.own if gallery == "own" else np.vstack([self.start, self.own])


@dataclass(frozen=True)
class RunScores:
    """One run on one stream: `scores` has, per metric key, the scores of every seed.

    `starts` has the names of the models that its seeds start from, where these are known; `outside`
    has the data sets outside the stream that it was evaluated on. `without` are tasks that do not
    count in summary metrics, by their place; the last one that was learned is not among them.
    Tables and maps of steps and tasks show the last `recent` of them; None: all.
    """

    name: str
    method: str
    buffer: str | None
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    steps: int
    final_only: bool
    galleries: frozenset[str]
    scores: dict[str, tuple[SeedScores, ...]]
    starts: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    without: frozenset[int] = frozenset()
    unmeasured: frozenset[int] = frozenset()  # of those, the tasks that no run was evaluated on
    recent: int | None = None

    @property
    def first_shown(self) -> int:
        """The first step and task that tables of steps and tasks show."""
        return max(0, self.steps - self.recent) if self.recent else 0

    @property
    def counted(self) -> list[int]:
        """The tasks that count, of those that it has learned, or of all without a step."""
        tasks = range(self.steps or len(self.tasks))
        return [task for task in tasks if task not in self.without]

    def matrix(self, scores: SeedScores, gallery: str) -> Matrix:
        """The matrix of a gallery, of own galleries and the start only the tasks that count."""
        found = scores.of(gallery)
        if not self.without or gallery not in {"own", "start"}:
            return found
        ahead = range(self.steps, found.shape[1])
        rows = self.counted if gallery == "own" else [0, *(step + 1 for step in self.counted)]
        return found[np.ix_(rows, [*self.counted, *ahead])]

    @cached_property
    def summaries(self) -> dict[tuple[str, str], Spread | None]:
        """What `summarise` has found so far, by metric key and name of the summary."""
        return {}

    @cached_property
    def looked_ahead(self) -> bool:
        """Whether every model was evaluated on the tasks after its own, in any metric key."""
        return any(
            not any(
                np.isnan(one.own[step, [task for task in self.counted if task > step]]).any()
                for one in of_seeds
                for step in self.counted
            )
            for of_seeds in self.scores.values()
        )

    @property
    def group(self) -> str:
        """The block of the comparison table that the run belongs to, as papers group them."""
        if is_upper_bound(self.name, self.method):
            return "Joint training (upper bound)"
        return "Memory buffer" if self.buffer else "Memory free"


@dataclass(frozen=True)
class TransferScores:
    """One run on data outside its stream: per metric key and seed, scores by step (or START).

    `is_mean` if it is the mean over several data sets, which have scores of their own.
    """

    run: str
    task: str
    scores: dict[str, tuple[dict[int, float], ...]]
    is_mean: bool = False
    seeds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Track:
    """Runs that can be compared, of one evaluator, protocol, variant and split.

    `outside_runs` were trained, but evaluated here on data outside the stream only.
    """

    evaluator: str
    protocol: str
    map_variant: str | None
    split: str
    keys: tuple[str, ...]
    runs: tuple[RunScores, ...]
    transfers: tuple[TransferScores, ...]
    outside_runs: tuple[RunScores, ...] = ()

    def runs_with(self, gallery: str) -> tuple[RunScores, ...]:
        """The runs that a number on this gallery is about."""
        return (*self.runs, *self.outside_runs) if gallery == "outside" else self.runs

    @property
    def title(self) -> str:
        """Such as "retrieval, cross-modal, test split"."""
        variant = f"map_variant {self.map_variant}" if self.map_variant else ""
        parts = (self.evaluator, self.protocol, variant, f"{self.split} split")
        return ", ".join(part for part in parts if part)

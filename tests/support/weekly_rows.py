"""Rows and ranks of weekly updates, from which of its queries each model answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.eval_rows import current, row
from support.rank_files import write_ranks

from vlcpctl.evaluation.rank_files import SavedRanks

Right = Iterable[int]  # the samples that a model answers, of those numbered from 0
START = None  # the step of the model before the first week


@dataclass
class Weeks:
    """Rows and files of ranks of a run `ctp`, of a guard and tasks of weeks, as they are added.

    A sample is an image with one caption, right at rank 1 in both directions or wrong at 20, so
    that every recall is the share of samples that are right.
    """

    path: Path
    rows: list[dict[str, Any]] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    @property
    def ranks(self) -> list[SavedRanks]:
        """The files of ranks, opened."""
        return [SavedRanks.open(path) for path in self.files]

    def add(
        self, data: str, step: int | None, right: Right, of: int, task: int | None = None
    ) -> None:
        """Add what the model after a step answers of a guard, or of the task of a step."""
        known = set(right)
        checkpoint = "S" if step is START else f"c{step}"
        about: dict[str, Any] = {"task": data, "step": step, "checkpoint": checkpoint}
        (one,) = current([row(**about, task_step=task)], start=None if step is START else "S")
        score = 100 * len(known) / of
        names = [f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)]
        names += ["i2t_rmean", "t2i_rmean", "rm"]
        one |= {"metrics": dict.fromkeys(names, score), "n_images": of}
        if step is START:
            one |= {"run": "production", "method": "imported", "config": None}
        rank = {f"{key:05d}": [1 if key in known else 20] for key in range(of)}
        path = self.path / f"{data}-{checkpoint}.parquet"
        about = {name: one[name] for name in ("run", "step", "checkpoint", "data", "task")}
        self.rows.append(one)
        self.files.append(write_ranks(path, {"i2t": rank, "t2i": rank}, **about))

    def guard(self, scores: Sequence[Right], of: int, data: str = "golden") -> None:
        """Add a guard: what the start answers of it, and the model of each week."""
        for number, right in enumerate(scores):
            self.add(data, number - 1 if number else START, right, of)

    def stream(self, scores: Mapping[int, Sequence[Right]], of: int) -> None:
        """Add the task of each week: what the model that learned it answers, and those after it."""
        for task, models in scores.items():
            for later, right in enumerate(models):
                self.add(f"{task:02d}-week", task + later, right, of, task)

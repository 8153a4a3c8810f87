"""Spatial disorder between checkpoints: which are compared on which tasks, and their angles.

Each checkpoint embeds every task once, and its embeddings are dropped after their last use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, final

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput, Incompatible, UsageError
from vlcpctl.data.tasks.task import Task
from vlcpctl.evaluation.evaluator import Evaluator, Session
from vlcpctl.evaluation.membership import RunCheckpoint, TaskPlace
from vlcpctl.evaluation.rows import Row, checkpoint_fields, own_rows, place_of
from vlcpctl.evaluation.samples import Samples
from vlcpctl.files.rows import run_label

_MEASURED = ("metrics", "degrees", "n_images", "n_texts")


@final
@dataclass(kw_only=True)
class Spatial(Evaluator):
    """Angles between the embeddings of two checkpoints, on each task."""

    tasks: tuple[Task, ...]
    between: str = "neighbours"
    split: str = "test"
    _by: dict[Path, Session] = field(default_factory=dict, init=False)  # embeds with a checkpoint
    _left: list[Session] = field(default_factory=list, init=False)  # still to be compared

    def plan(self) -> list[Session]:
        """See `Evaluator`; raises UsageError if the checkpoints cannot be paired."""
        for task in self.tasks:
            if not task.counts.get(self.split):
                known = ", ".join(name for name, count in task.counts.items() if count)
                raise BadInput(
                    f"{task.path} has no images in split {self.split!r} (it has: {known})"
                )
        places = [place_of(task, self.split) for task in self.tasks]
        found = self.read_checkpoints()
        paths, checkpoints = list(found), list(found.values())
        manifests = [one.manifest for one in checkpoints]
        self._by = {path: Session(self, path, one.manifest) for path, one in found.items()}
        sessions = []
        for before, after in _pairs(paths, manifests, self.between):
            rows = self._rows(checkpoints[before], checkpoints[after], places)
            sessions.append(Session(self, paths[after], manifests[after], rows, paths[before]))
        self._left = list(sessions)
        return sessions

    def line(self, session: Session, row: Row) -> str:
        """See `Evaluator`."""
        then, now = (
            f"{run_label(about['run'], about.get('alpha'))} step {about['step']}"
            for about in (row.fields["since"], row.fields)
        )
        return f"{then} -> {now}: {row.fields['task']}"

    def measure(self, session: Session, row: Row) -> dict[str, Any]:
        """See `Evaluator`; raises Incompatible for embeddings of different width."""
        from vlcpctl.evaluation.embedding import embed
        from vlcpctl.evaluation.spatial.angles import spatial

        assert session.before is not None
        by = self._by[session.before], self._by[session.checkpoint]
        (task,) = row.tasks
        # All tasks at once: then the model is dropped.
        before, after = ([embed(one, source) for source in self._sources][task] for one in by)
        for one in by:
            one.drop_model()
        widths = [one.image_ID.shape[1] for one in (before, after)]
        if widths[0] != widths[1]:
            raise Incompatible(
                f"{session.before} has embeddings of {widths[0]} channels and "
                f"{session.checkpoint} of {widths[1]}: angles between them are not defined"
            )
        return spatial(self._sources[task].captioned, before, after, self.device)

    def finish(self, session: Session) -> None:
        """Drop the embeddings that no later comparison needs, to bound memory."""
        self._left.remove(session)
        needed = {path for one in self._left for path in (one.before, one.checkpoint)}
        for path, one in self._by.items():
            if path not in needed:
                one.drop()

    @cached_property
    def _sources(self) -> list[Samples]:
        return [Samples(task, self.split, self.limit) for task in self.tasks]

    def _rows(
        self, before: RunCheckpoint, after: RunCheckpoint, places: Sequence[TaskPlace]
    ) -> list[Row]:
        about = checkpoint_fields(before)
        names = ("run", "step", "alpha", "checkpoint")
        common: dict[str, Any] = {
            "evaluator": "spatial",
            "protocol": "angles",
            "split": self.split,
            "limit": self.limit,
            "options": self.arithmetic_options(),
            "since": {name: about[name] for name in names if name in about},
        }
        return own_rows(after, places, common, _MEASURED)


def _pairs(
    paths: Sequence[Path], manifests: Sequence[CheckpointManifest], between: str
) -> list[tuple[int, int]]:
    """The earlier and the later checkpoint of each comparison."""
    if len(manifests) < 2:
        raise UsageError("there is nothing to compare: give at least two checkpoints")
    _refuse_twins(paths, manifests)
    chains = _chains(manifests)
    if len(manifests) == 2 and len(chains) == 2:
        return [(0, 1)]  # of two runs: in the order given
    lonely = [chain[0] for chain in chains if len(chain) == 1]
    if lonely:
        path, name = paths[lonely[0]], _run_of(manifests[lonely[0]])
        raise UsageError(
            f"{path} is the only checkpoint of run {name!r} here; give another of that run, or "
            "leave it out (two runs are compared with one checkpoint of each)"
        )
    return [pair for chain in chains for pair in _along(chain, between)]


def _refuse_twins(paths: Sequence[Path], manifests: Sequence[CheckpointManifest]) -> None:
    """Refuse checkpoints of equal run, seed and step: their rows could not be distinguished."""
    seen: dict[tuple[str, int, int | None], Path] = {}
    for path, manifest in zip(paths, manifests, strict=True):
        run, seed, step = key = (_run_of(manifest), manifest.seed, manifest.step)
        first = seen.setdefault(key, path)
        if first != path:
            raise UsageError(
                f"{first} and {path} are both run {run!r}, seed {seed}, step {step}: "
                "their rows could not be distinguished; train one again with another --run"
            )


def _along(chain: list[int], between: str) -> list[tuple[int, int]]:
    """The pairs of a chain to compare, ordered by their later checkpoint."""
    places = range(len(chain))
    neighbours = {*pairwise(places), (0, len(chain) - 1)}
    wanted = combinations(places, 2) if between == "all" else neighbours
    pairs = sorted(wanted, key=lambda pair: pair[::-1])
    return [(chain[before], chain[after]) for before, after in pairs]


def _chains(manifests: Sequence[CheckpointManifest]) -> list[list[int]]:
    """The checkpoints of each run and seed in order of step, after the run's parent if given.

    Averages with different alpha are different runs, as in reports. A checkpoint that only starts
    other runs, such as an imported model, is not a chain of its own.
    """
    steps = [-1 if manifest.step is None else manifest.step for manifest in manifests]
    runs: dict[tuple[str, int], list[int]] = {}
    for number, manifest in enumerate(manifests):
        runs.setdefault((_run_of(manifest), manifest.seed), []).append(number)
    number_of = {manifest.content: number for number, manifest in enumerate(manifests)}
    chains, starts = [], set()
    for members in runs.values():
        members.sort(key=lambda number: steps[number])
        start = number_of.get(manifests[members[0]].parent or "")
        starts.add(start)
        chains.append(members if start is None else [start, *members])
    return [chain for chain in chains if len(chain) > 1 or chain[0] not in starts]


def _run_of(manifest: CheckpointManifest) -> str:
    """The run's name in reports."""
    return run_label(manifest.run, manifest.alpha)

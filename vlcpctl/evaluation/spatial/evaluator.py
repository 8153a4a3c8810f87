"""Spatial disorder between checkpoints: which are compared on which tasks, and their angles.

Each checkpoint embeds every task once, and its embeddings are dropped after their last use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput, Incompatible, UsageError, unknown_name
from vlcpctl.data.tasks.task import Task
from vlcpctl.evaluation.evaluator import Evaluator, Job, Plan, Session
from vlcpctl.evaluation.membership import RunCheckpoint, TaskPlace
from vlcpctl.evaluation.planned_rows import PlannedRow, checkpoint_fields, own_rows, place_of
from vlcpctl.evaluation.search.backends import choose
from vlcpctl.evaluation.splits import EvalSplit
from vlcpctl.files.rows import run_label

if TYPE_CHECKING:
    from vlcpctl.evaluation.search.gallery import Embeddings

BETWEEN = ("neighbours", "all")
_MEASURED = ("metrics", "degrees", "n_images", "n_texts")


@final
@dataclass(frozen=True, kw_only=True)
class Spatial(Evaluator):
    """Angles between the embeddings of two checkpoints, on each task."""

    tasks: tuple[Task, ...]
    between: str = "neighbours"
    split: str = "test"
    _embedded: dict[Path, list[Embeddings]] = field(default_factory=dict, init=False)

    def plan(self) -> Plan:
        """See `Evaluator`; raises UsageError if the checkpoints cannot be paired."""
        if self.between not in BETWEEN:
            raise UsageError(unknown_name("value of --between:", self.between, BETWEEN))
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
        jobs = []
        for before, after in _pairs(paths, manifests, self.between):
            rows = self._rows(checkpoints[before], checkpoints[after], places)
            jobs.append(Job(paths[after], manifests[after], rows, before=paths[before]))
        return Plan(self, jobs)

    def line(self, job: Job, row: PlannedRow) -> str:
        then, now = (
            f"{run_label(about['run'], about.get('alpha'))} step {about['step']}"
            for about in (row.fields["since"], row.fields)
        )
        return f"{then} -> {now}: {row.fields['task']}"

    def measure(self, session: Session, row: PlannedRow) -> dict[str, Any]:
        """See `Evaluator`; raises Incompatible for embeddings of different width."""
        from vlcpctl.evaluation.spatial.angles import spatial

        earlier, later = session.job.before, session.checkpoint
        assert earlier is not None
        before, after = (self._by(path, session) for path in (earlier, later))
        one, other = (embedded[0].image_ID.shape[1] for embedded in (before, after))
        if one != other:
            raise Incompatible(
                f"{earlier} has embeddings of {one} channels and {later} of {other}: angles "
                "between them are not defined"
            )
        (task,) = row.tasks
        backend = choose("auto", session.compute.device)
        return asdict(spatial(before[task], after[task], backend))

    def finish(self, session: Session) -> None:
        """Drop the embeddings that no later comparison needs, to bound memory."""
        jobs = session.plan.jobs
        left = jobs[jobs.index(session.job) + 1 :]
        needed = {path for job in left for path in (job.before, job.checkpoint)}
        for path in self._embedded.keys() - needed:
            del self._embedded[path]

    def _by(self, checkpoint: Path, session: Session) -> list[Embeddings]:
        """The embeddings of each task by a checkpoint, computed at first use."""
        from vlcpctl.evaluation.embedding import embed

        if checkpoint not in self._embedded:
            encoder = session.load(checkpoint)
            self._embedded[checkpoint] = [
                embed(encoder, source, checkpoint, session.compute) for source in self._sources
            ]
        return self._embedded[checkpoint]

    @cached_property
    def _sources(self) -> list[EvalSplit]:
        return [EvalSplit(task, self.split, self.limit) for task in self.tasks]

    def _rows(
        self, before: RunCheckpoint, after: RunCheckpoint, places: Sequence[TaskPlace]
    ) -> list[PlannedRow]:
        about = checkpoint_fields(before)
        names = ("run", "step", "alpha", "checkpoint")
        common: dict[str, Any] = {
            "evaluator": "spatial",
            "protocol": "angles",
            "split": self.split,
            "limit": self.limit,
            "options": {},  # none decides the numbers
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

"""Spatial disorder: how angles between embeddings change between checkpoints (Mod-X).

Each checkpoint embeds every task once, and its embeddings are dropped after their last use.
Shapes: I distinct images, T distinct texts, P pairs, Q queries, D dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, final

import numpy as np

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.data.tasks.task import Task
from vlcpctl.evaluation.evaluator import Evaluator, Session
from vlcpctl.evaluation.membership import RunCheckpoint, TaskPlace
from vlcpctl.evaluation.rows import Row, checkpoint_fields, own_rows, place_of
from vlcpctl.evaluation.samples import Samples, require_split
from vlcpctl.evaluation.search.galleries import UNITE, Captioned, Embeddings, Search, gather
from vlcpctl.evaluation.search.vectors import Ids, exact_scores
from vlcpctl.files.rows import run_label
from vlcpctl.metrics.angles import (
    CHANGE_BINS,
    ROTATION_BINS,
    Angles,
    pair_changes,
    rotations,
    self_angle_changes,
    shares,
    tally,
)

_MEASURED = ("metrics", "degrees", "n_images", "n_texts")


@final
@dataclass(kw_only=True)
class Spatial(Evaluator):
    """Angles between the embeddings of two checkpoints, on each task."""

    tasks: tuple[Task, ...]
    between: str = "neighbours"
    split: str = "test"
    # Still to be compared: by the session with the rows, those that embed the two checkpoints.
    _compared: dict[Session, tuple[Session, Session]] = field(default_factory=dict, init=False)

    def plan(self) -> list[Session]:
        """See `Evaluator`; raises UsageError if the checkpoints cannot be paired."""
        for task in self.tasks:
            require_split(task, self.split)
        places = [place_of(task, self.split) for task in self.tasks]
        found = self.read_checkpoints()
        paths, checkpoints = list(found), list(found.values())
        embedding = [Session(self, path, one.manifest) for path, one in found.items()]
        for before, after in _pairs(paths, [one.manifest for one in checkpoints], self.between):
            rows = self._rows(checkpoints[before], checkpoints[after], places)
            session = Session(self, paths[after], checkpoints[after].manifest, rows)
            self._compared[session] = embedding[before], embedding[after]
        return list(self._compared)

    def measure(self, session: Session, row: Row) -> dict[str, Any]:
        """See `Evaluator`; raises Incompatible for embeddings of different width."""
        from vlcpctl.evaluation.embedding import embed

        by = self._compared[session]
        (task,) = row.tasks
        # All tasks at once: then the model is dropped.
        before, after = ([embed(one, source) for source in self._sources][task] for one in by)
        for one in by:
            one.drop_model()
        widths = [one.image_ID.shape[1] for one in (before, after)]
        if widths[0] != widths[1]:
            raise Incompatible(
                f"{by[0].checkpoint} has embeddings of {widths[0]} channels and "
                f"{by[1].checkpoint} of {widths[1]}: angles between them are not defined"
            )
        return spatial(self._sources[task].captioned, before, after, self.device)

    def finish(self, session: Session) -> None:
        """Drop the embeddings that no later comparison needs, to bound memory."""
        for one in self._compared.pop(session):
            if not any(one in pair for pair in self._compared.values()):
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
    found = []
    for chain in chains:  # its pairs, ordered by their later checkpoint
        neighbours = {*pairwise(chain), (chain[0], chain[-1])}
        wanted = combinations(chain, 2) if between == "all" else neighbours
        found += sorted(wanted, key=lambda pair: [chain.index(one) for one in pair[::-1]])
    return found


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


def spatial(
    samples: Captioned, before: Embeddings, after: Embeddings, device: str
) -> dict[str, Any]:
    """Measure how angles changed from an earlier model to a later one: the fields of a row.

    `metrics` are means in degrees and shares in percent (None without angles), `degrees` counts of
    angles by degree. Identical content is one sample. A pair counts in `imav_i2t` if the earlier
    model ranks a text of the image first, and in `imav_t2i` if it ranks an image of the text first;
    of several right answers, the nearest makes the pair.
    """
    images = before.image_ID[:], after.image_ID[:]
    texts = before.text_TD[:], after.text_TD[:]
    found = {
        "sam_image": self_angle_changes(*images),
        "sam_text": self_angle_changes(*texts),
        "ram_image": tally(rotations(*images)),
        "ram_text": tally(rotations(*texts)),
    }
    ways = gather([samples], UNITE).searches(before, before)  # a gallery of one part keeps its rows
    for way, search in ways.items():
        image_P, text_P = _first_pairs(search, device).T[:: 1 if way == "i2t" else -1]
        then, now = ((one.image_ID[image_P], one.text_TD[text_P]) for one in (before, after))
        found[f"imav_{way}"] = tally(pair_changes(then, now))
    return {
        "metrics": _metrics(found),
        "degrees": {name: np.trim_zeros(one.counts, "b").tolist() for name, one in found.items()},
        "n_images": len(before.image_ID),
        "n_texts": len(before.text_TD),
    }


def _metrics(found: Mapping[str, Angles]) -> dict[str, float | None]:
    metrics: dict[str, float | None] = {}
    for measure, angles in found.items():
        ends = ROTATION_BINS if measure.startswith("ram") else CHANGE_BINS
        metrics[f"{measure}_mean"] = angles.mean if angles.count else None
        values = shares(angles.counts, ends) if angles.count else [None] * len(ends)
        for low, high, value in zip((0, *ends), ends, values, strict=False):
            metrics[f"{measure}_{low}_{high}"] = value
    return metrics


def _first_pairs(search: Search, device: str) -> Ids:
    """(P, 2) rows of queries with a right answer at rank 1, and of the best of their right answers.

    A tie is never a hit.
    """
    from vlcpctl.evaluation.search.count import ranks

    worst, _ = ranks(search, device, top=1)
    owner_A, right_A = search.right_A2.T
    score_A = exact_scores(search.query_QD, search.gallery_GD, owner_A, right_A)
    order = np.lexsort((score_A, owner_A))
    ends_Q = np.searchsorted(owner_A, np.arange(len(search)), side="right")
    best_Q = right_A[order][ends_Q - 1]
    (first,) = np.nonzero(worst[0] == 0)
    return np.stack([first, best_Q[first]], 1)

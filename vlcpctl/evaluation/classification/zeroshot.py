"""Zero-shot classification: its prompts, its rows, and the accuracies of checkpoints.

The prompts are embedded once, then the images in one pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
import pyarrow as pa

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput, UsageError, unknown_name
from vlcpctl.data.classification.data_sets import CLASSES, DataSet, TaskData, open_data_sets
from vlcpctl.data.classification.prompts import read_templates
from vlcpctl.data.tasks.class_names import distinct_labels
from vlcpctl.data.tasks.skips import Tolerance
from vlcpctl.evaluation.embedding_cache import Cached, key_of
from vlcpctl.evaluation.evaluator import Job, Plan, Session, ShardedEvaluator
from vlcpctl.evaluation.membership import RunCheckpoint, TaskPlace
from vlcpctl.evaluation.planned_rows import (
    PlannedRow,
    data_fields,
    own_rows,
    place_of,
    row_fields,
)
from vlcpctl.evaluation.rank_files import Named, RankFile, plan_ranks
from vlcpctl.evaluation.search.index import Ids, Vectors
from vlcpctl.evaluation.search.queries import ExactRanks
from vlcpctl.files.ids import content_id
from vlcpctl.files.parts import Parts, Result
from vlcpctl.metrics.accuracy import accuracies, mean_accuracies, tally
from vlcpctl.metrics.recall import count_touched

if TYPE_CHECKING:
    from vlcpctl.evaluation.classification.labelled_sets import LabelledSet
    from vlcpctl.evaluation.embedding import TextBatches

_NAMES_SHOWN = 3
_MEASURED = ("metrics", "n_images", "n_ties", "n_skipped")


@dataclass(frozen=True)
class ZeroshotData:
    """A data set with the prompts of its classes; `digest` is a hash of both."""

    data: DataSet
    prompts: list[list[str]]
    digest: str

    @cached_property
    def candidates(self) -> Ids:
        """(C,) the candidate of each class: classes with the same prompts are one candidate."""
        numbers: dict[tuple[str, ...], int] = {}
        found = [numbers.setdefault(tuple(sorted(own)), len(numbers)) for own in self.prompts]
        return np.array(found, dtype=np.int64)

    @cached_property
    def first_classes(self) -> Ids:
        """(K,) the first class of each candidate, ascending."""
        first: Ids = np.unique(self.candidates, return_index=True)[1]
        return first

    @property
    def candidate_prompts(self) -> list[list[str]]:
        """The prompts of each candidate."""
        return [self.prompts[place] for place in self.first_classes.tolist()]

    @property
    def united(self) -> int:
        """How many classes share their candidate with an earlier class."""
        return len(self.prompts) - len(self.first_classes)


@dataclass(frozen=True)
class ZeroshotResult:
    """The accuracies in percent over `n_images`; `n_ties` of these depend on how a tie counts."""

    metrics: dict[str, float]
    n_images: int
    n_ties: int
    n_skipped: int


@final
@dataclass(frozen=True, kw_only=True)
class Zeroshot(ShardedEvaluator):
    """Accuracies on data sets, and their averages.

    `words` are names or paths of data sets; `data` is the directory of those given by name.
    """

    words: tuple[str, ...]
    data: Path | None = None
    templates: Path | None = None
    classes: str = "all"
    split: str = "test"
    tolerance: Tolerance  # of images that cannot be read
    save_ranks: Path | None = None
    out: Path | None = None  # of the rows
    force: bool = False

    queries: ClassVar[str] = "image"

    def plan(self) -> Plan:
        """See `Evaluator`."""
        if self.classes not in CLASSES:
            raise UsageError(unknown_name("value of --classes:", self.classes, CLASSES))
        places = [place_of(one.data, self.split) for one in self._data_sets]
        jobs = [
            Job(path, one.manifest, self._rows(one, places))
            for path, one in self.read_checkpoints().items()
        ]
        # An average has no queries of its own.
        rows = [row for row in Plan(self, jobs).rows if len(row.tasks) == 1]
        ranks = plan_ranks(self.save_ranks, rows, self.out, force=self.force)
        return Plan(self, jobs, ranks)

    def line(self, job: Job, row: PlannedRow) -> str:
        if len(row.tasks) > 1:
            return f"{job.label}: {row.fields['task']}"
        (number,) = row.tasks
        one = self._data_sets[number]
        texts = sum(map(len, one.prompts))
        return f"{job.label}: {one.data.name}, {len(one.prompts)} classes, {texts} prompts"

    def measure(self, session: Session, row: PlannedRow) -> dict[str, Any]:
        """See `Evaluator`; raises TooManySkipped if too many images cannot be read."""
        found = [self._result(session, number) for number in row.tasks]
        return asdict(found[0] if len(found) == 1 else _average(found))

    def embedded(self) -> dict[str, Any]:
        """See `ShardedEvaluator`."""
        data = [one.data for one in self._data_sets]
        tasks = [one.task for one in data if isinstance(one, TaskData)]
        others = [one for one in data if not isinstance(one, TaskData)]
        return {
            "checkpoints": [CheckpointManifest.read(path).content for path in self.checkpoints],
            "tasks": [task.content for task in tasks],
            "data_sets": [one.content(self.split) for one in others],
            "prompts": [one.digest for one in self._data_sets],
            "split": self.split,
            "limit": self.limit,
        }

    def embed(self, session: Session) -> None:
        """See `ShardedEvaluator`; an average has no images of its own."""
        shards = session.compute.shards
        assert shards is not None
        for given, opened in zip(self._data_sets, self._sets, strict=True):
            self._keep_prompts(session, given, shards)
            opened.keep(session, f"{session.checkpoint} on {opened.name}", shards)

    @cached_property
    def _data_sets(self) -> list[ZeroshotData]:
        """The data sets with their prompts, of which those that coincide are named."""
        templates = read_templates(self.templates) if self.templates else None
        found = []
        for data in open_data_sets(self.words, self.data, self.classes):
            data.check(self.split)
            prompts = data.prompts(templates)
            digest = content_id([list(data.classes), prompts])
            found.append(ZeroshotData(data, prompts, digest))
            _check_united(found[-1])
        return found

    @cached_property
    def _sets(self) -> list[LabelledSet]:
        """The split of each data set, read once for all checkpoints."""
        from vlcpctl.evaluation.classification.labelled_sets import LabelledSet

        return [LabelledSet(one.data, self.split, self.limit) for one in self._data_sets]

    def _rows(self, checkpoint: RunCheckpoint, places: Sequence[TaskPlace]) -> list[PlannedRow]:
        """A row for each data set, and one with the mean over those outside streams."""
        common = {"evaluator": "zeroshot", "split": self.split, "limit": self.limit}
        each = [
            {
                **_protocol(
                    self.classes if isinstance(one.data, TaskData) else "all",
                    one.digest,
                    one.united,
                ),
                "n_classes": len(one.prompts),
                "prompts": one.digest,
            }
            for one in self._data_sets
        ]
        found = own_rows(checkpoint, places, common, _MEASURED, each)
        # A model without a run yet, evaluated alone, may start any stream: tasks do not count.
        has_run = bool(checkpoint.chain.tasks) or checkpoint.chain.step is not None
        outside = [
            number
            for number, (place, row) in enumerate(zip(places, found, strict=True))
            if row.fields["task_step"] is None and (has_run or place.stream is None)
        ]
        if len(outside) < 2:
            return found
        # The mean over the stream is in forgetting-report.
        members = [self._data_sets[number] for number in outside]
        digest = content_id([one.digest for one in members])
        average = {
            **common,
            "gallery": "own",
            "task_step": None,
            "stream": None,
            "task": f"average of {len(members)}",
            "tasks": [one.data.name for one in members],
            **data_fields([places[number] for number in outside]),
            **_protocol("all", digest, sum(one.united for one in members)),
            "prompts": digest,
        }
        return [*found, PlannedRow(tuple(outside), row_fields(checkpoint, average), _MEASURED)]

    def _result(self, session: Session, number: int) -> ZeroshotResult:
        """The accuracies on one data set, computed once for its own row and for the average."""
        own = next(row for row in session.job.rows if row.tasks == (number,))
        return session.once(number, lambda: self._classify(session, own))

    def _classify(self, session: Session, row: PlannedRow) -> ZeroshotResult:
        """The accuracies on one data set, computed in one pass over its images."""
        from vlcpctl.evaluation.classification.class_vectors import class_ranks

        (number,) = row.tasks
        given = self._data_sets[number]
        # Tasks of a stream often share their prompts.
        class_KD = session.once(given.digest, lambda: self._embed_classes(session, given))
        opened, classes = self._sets[number], len(given.prompts)
        file, device = session.plan.ranks, session.compute.device
        labels, flaws = opened.images.labels, list(opened.images.flaws)
        nothing = np.empty(0, dtype=np.int64)
        counts, n_ties = tally(nothing, nothing, classes), 0
        what = f"{session.checkpoint} on {opened.name}"
        for rows, image_BD, bad in opened.embed(session, what):
            flaws += bad
            candidate_B = given.candidates[labels[rows]]
            is_exact = file is not None
            found = class_ranks(image_BD, candidate_B, class_KD, device, is_exact=is_exact)
            if file is not None:
                self._save_ranks(file, row, rows, found.exact())
            ranks = found.ranks()
            counts += tally(ranks.worst, labels[rows], classes)
            n_ties += count_touched(ranks.worst, ranks.best)
        opened.check_flaws(flaws, self.tolerance)
        metrics = accuracies(counts, len(class_KD))
        return ZeroshotResult(metrics, int(counts.images_C.sum()), n_ties, len(flaws))

    def _save_ranks(self, file: RankFile, row: PlannedRow, rows: Ids, exact: ExactRanks) -> None:
        """Add the ranks (B,) of the classes of the images in `rows` (B,)."""
        (number,) = row.tasks
        opened = self._sets[number]
        keys = pa.array([opened.images.key(place) for place in rows.tolist()], pa.string())
        classes = pa.array(distinct_labels(opened.data.classes), pa.string())
        labels = classes.take(pa.array(opened.images.labels[rows]))
        candidates = classes.take(pa.array(self._data_sets[number].first_classes))
        file.add(row, "i2c", (Named(keys), Named(candidates)), exact, labels)

    def _keep_prompts(self, session: Session, given: ZeroshotData, shards: Parts) -> None:
        """Store a shard's share of the embeddings that `_embed_classes` averages."""
        from vlcpctl.evaluation.classification.class_vectors import prompt_batches
        from vlcpctl.models.embed import require_finite

        prompts = given.candidate_prompts
        work = prompt_batches(prompts, session.compute.batch_size)

        def results(numbers: range) -> Iterator[Result]:
            for text_PD in session.results(work, numbers):
                require_finite(text_PD, f"{session.checkpoint} on {given.data.name}, class names")
                yield (text_PD,)

        # Tasks of a stream often share their prompts: those are stored once.
        shards.keep_arrays(_prompts_of(session, prompts), len(work.batches), results)

    def _embed_classes(self, session: Session, given: ZeroshotData) -> Vectors:
        """(K, D) the candidates, by the model or from the cache."""
        from vlcpctl.evaluation.classification.class_vectors import class_vectors

        compute, what = session.compute, f"{session.checkpoint} on {given.data.name}"
        cache, size, shards = compute.cache, compute.batch_size, compute.shards
        prompts = given.candidate_prompts

        def results(work: TextBatches, numbers: Sequence[int]) -> Iterator[Vectors]:
            if shards is None:
                return session.results(work, numbers)
            kept = shards.arrays(_prompts_of(session, prompts), len(numbers))
            return (text_PD for (text_PD,) in kept)

        def embedded() -> Vectors:
            return class_vectors(session.encoder, prompts, size, what, results)

        if cache is None:
            return embedded()
        about = {"what": "classes", "prompts": content_id(prompts)}
        key = key_of(session.checkpoint, compute.device, size, about)
        found = cache.get(key)
        if found is None:
            found = Cached(embedded(), ())
            cache.put(key, found)
        return found.embeddings


def _prompts_of(session: Session, prompts: list[list[str]]) -> dict[str, Any]:
    """What identifies the embeddings of prompts in a shard."""
    content = session.job.manifest.content
    return {"checkpoint": content, "what": "prompts", "prompts": content_id(prompts)}


def _check_united(found: ZeroshotData) -> None:
    """Say which classes have the prompts of another, as two pairs of ImageNet's have.

    Raises BadInput if all have the same: a hit in any would be a hit.
    """
    if not found.united:
        return
    if len(found.first_classes) == 1:
        raise BadInput(
            f"{found.data.name}: all {len(found.prompts)} classes have the same prompts, so there "
            "is nothing to choose from; write prompts that differ"
        )
    first = set(found.first_classes.tolist())
    twins = [name for number, name in enumerate(found.data.classes) if number not in first]
    shown = ", ".join(twins[:_NAMES_SHOWN]) + (", ..." if len(twins) > _NAMES_SHOWN else "")
    say(
        f"{found.data.name}: classes with the same prompts as an earlier one ({len(twins)}: "
        f"{shown}) are united with it: a hit in either is a hit"
    )


def _average(several: Sequence[ZeroshotResult]) -> ZeroshotResult:
    return ZeroshotResult(
        metrics=mean_accuracies([one.metrics for one in several]),
        n_images=sum(one.n_images for one in several),
        n_ties=sum(one.n_ties for one in several),
        n_skipped=sum(one.n_skipped for one in several),
    )


def _protocol(which: str, digest: str, united: int) -> dict[str, Any]:
    """The protocol, and the options that decide the numbers.

    `united` is among them only where classes were united: a tie with such a class is no miss.
    """
    options: dict[str, Any] = {"classes": which, "prompts": digest}
    if united:
        options["united"] = united
    return {"protocol": f"{which}-classes", "options": options}

"""The plan of a zero-shot evaluation: its prompts, and its rows without their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput, UsageError, unknown_name
from vlcpctl.core.hashing import content_id
from vlcpctl.data.classification.data_sets import CLASSES, DataSet, TaskData, open_data_sets
from vlcpctl.data.classification.prompts import TemplatesFile, read_templates
from vlcpctl.data.tasks.skips import Tolerance
from vlcpctl.evaluation.jobs import Job, read_checkpoints
from vlcpctl.evaluation.membership import RunCheckpoint, TaskPlace
from vlcpctl.evaluation.planned_rows import (
    PlannedRow,
    data_fields,
    own_fields,
    place_of,
    row_fields,
)
from vlcpctl.evaluation.rank_files import RankFile, plan_ranks
from vlcpctl.evaluation.search.index import Ids

_NAMES_SHOWN = 3
_MEASURED = ("metrics", "n_images", "n_ties", "n_skipped")


@dataclass(frozen=True, kw_only=True)
class ZeroShotRequest:
    """The options of a zero-shot evaluation.

    `words` are names or paths of data sets; `data` is the directory of those given by name.
    """

    words: tuple[str, ...]
    checkpoints: tuple[Path, ...]
    data: Path | None
    templates: Path | None
    classes: str
    split: str
    run: str | None
    limit: int | None
    tolerance: Tolerance  # of images that cannot be read
    save_ranks: Path | None = None
    out: Path | None = None  # of the rows
    force: bool = False


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
    def united(self) -> int:
        """How many classes share their candidate with an earlier class."""
        return len(self.prompts) - len(self.first_classes)


@dataclass(frozen=True)
class ZeroshotPlan:
    """The data sets and planned rows, known before a model is loaded."""

    request: ZeroShotRequest
    data_sets: list[ZeroshotData]
    jobs: list[Job]
    ranks: RankFile | None = None  # still to be written

    def lines(self) -> Iterator[str]:
        """The plan as lines of text."""
        for job in self.jobs:
            for row in job.rows:
                yield f"{job.label}: {self._words(row)}"
        if self.ranks is not None:
            yield f"ranks of every image to {self.ranks.out}"

    def _words(self, row: PlannedRow) -> str:
        if len(row.tasks) > 1:
            return str(row.fields["task"])
        (number,) = row.tasks
        one = self.data_sets[number]
        texts = sum(map(len, one.prompts))
        return f"{one.data.name}, {len(one.prompts)} classes, {texts} prompts"


def make_plan(request: ZeroShotRequest) -> ZeroshotPlan:
    """The data sets and jobs of a request, after checking its inputs.

    Raises UsageError for options that do not fit, and BadInput for unusable data.
    """
    if request.classes not in CLASSES:
        raise UsageError(unknown_name("value of --classes:", request.classes, CLASSES))
    templates = read_templates(request.templates) if request.templates else None
    found = open_data_sets(request.words, request.data, request.classes)
    data_sets = [_with_prompts(one, templates, request.split) for one in found]
    places = [place_of(one.data, request.split) for one in data_sets]
    planner = _RowPlanner(request, data_sets, places)
    checkpoints = read_checkpoints(request.checkpoints, request.run)
    jobs = [Job(path, one.manifest, planner.rows(one)) for path, one in checkpoints.items()]
    # An average has no queries of its own.
    rows = [row for job in jobs for row in job.rows if len(row.tasks) == 1]
    ranks = plan_ranks(request.save_ranks, rows, request.out, force=request.force)
    return ZeroshotPlan(request, data_sets, jobs, ranks)


def _with_prompts(data: DataSet, templates: TemplatesFile | None, split: str) -> ZeroshotData:
    data.check(split)
    prompts = data.prompts(templates)
    found = ZeroshotData(data, prompts, content_id([list(data.classes), prompts]))
    _note_united(found)
    return found


def _note_united(found: ZeroshotData) -> None:
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


@dataclass(frozen=True)
class _RowPlanner:
    """Plans the rows of any checkpoint on the data sets."""

    request: ZeroShotRequest
    data_sets: Sequence[ZeroshotData]
    places: Sequence[TaskPlace]

    def rows(self, checkpoint: RunCheckpoint) -> list[PlannedRow]:
        """A row for each data set, and one with the mean over those outside streams."""
        steps = checkpoint.steps(self.places)
        found = []
        members = zip(self.data_sets, self.places, steps, strict=True)
        for number, (one, place, step) in enumerate(members):
            which = self.request.classes if isinstance(one.data, TaskData) else "all"
            more = {"n_classes": len(one.prompts), "prompts": one.digest}
            where = {
                **own_fields(place, step, checkpoint.digits),
                **_protocol(which, one.digest, one.united),
            }
            fields = row_fields(checkpoint, where, {**self._common(), **more})
            found.append(PlannedRow((number,), fields, _MEASURED))
        outside = self._outside(checkpoint, steps)
        return [*found, self._average(checkpoint, outside)] if len(outside) > 1 else found

    def _outside(self, checkpoint: RunCheckpoint, steps: Sequence[int | None]) -> list[int]:
        """The numbers of the data sets outside the stream.

        A model without a run yet, evaluated alone, may start any stream: tasks do not count.
        """
        has_run = bool(checkpoint.chain.tasks) or checkpoint.chain.step is not None
        return [
            number
            for number, (place, step) in enumerate(zip(self.places, steps, strict=True))
            if step is None and (has_run or place.stream is None)
        ]

    def _average(self, checkpoint: RunCheckpoint, members: list[int]) -> PlannedRow:
        """The row with the mean over data sets; that over the stream is in forgetting-report."""
        digest = content_id([self.data_sets[number].digest for number in members])
        where = {
            "task_step": None,
            "stream": None,
            "task": f"average of {len(members)}",
            "tasks": [self.data_sets[number].data.name for number in members],
            **data_fields([self.places[number] for number in members]),
            **_protocol("all", digest, sum(self.data_sets[number].united for number in members)),
        }
        fields = row_fields(checkpoint, where, {**self._common(), "prompts": digest})
        return PlannedRow(tuple(members), fields, _MEASURED)

    def _common(self) -> dict[str, Any]:
        request = self.request
        about = {"evaluator": "zeroshot", "gallery": "own"}
        return {**about, "split": request.split, "limit": request.limit}


def _protocol(which: str, digest: str, united: int) -> dict[str, Any]:
    """The protocol, and the options that decide the numbers.

    `united` is among them only where classes were united: a tie with such a class is no miss.
    """
    options: dict[str, Any] = {"classes": which, "prompts": digest}
    if united:
        options["united"] = united
    return {"protocol": f"{which}-classes", "options": options}

"""The plan of a zero-shot evaluation: its prompts, and its rows without their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.console import warn
from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.core.hashing import content_id
from vlcpctl.data.classification.data_sets import CLASSES, DataSet, TaskData, open_data_sets
from vlcpctl.data.classification.prompts import TemplatesFile, read_templates
from vlcpctl.data.tasks.skips import Tolerance
from vlcpctl.evaluation.jobs import Job, read_manifests
from vlcpctl.evaluation.planned_rows import (
    PlannedRow,
    checkpoint_fields,
    place_of,
    row_fields,
    steps_of,
)

_NAMES_SHOWN = 3
_MEASURED = ("metrics", "n_images", "n_ties", "n_skipped")


@dataclass(frozen=True, kw_only=True)
class Request:
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


@dataclass(frozen=True)
class ZeroshotData:
    """A data set with the prompts of its classes; `digest` is a hash of both."""

    data: DataSet
    prompts: list[list[str]]
    digest: str


@dataclass(frozen=True)
class ZeroshotPlan:
    """The data sets and planned rows, known before a model is loaded."""

    request: Request
    data_sets: list[ZeroshotData]
    jobs: list[Job]

    def lines(self) -> Iterator[str]:
        """The plan as lines of text."""
        for job in self.jobs:
            for row in job.rows:
                yield f"{job.label}: {self._words(row)}"

    def _words(self, row: PlannedRow) -> str:
        if len(row.tasks) > 1:
            return str(row.fields["task"])
        (number,) = row.tasks
        one = self.data_sets[number]
        texts = sum(map(len, one.prompts))
        return f"{one.data.name}, {len(one.prompts)} classes, {texts} prompts"


def make_plan(request: Request) -> ZeroshotPlan:
    """The data sets and jobs of a request, after checking its inputs.

    Raises UsageError for options that do not fit, and BadInput for unusable data.
    """
    if request.classes not in CLASSES:
        raise UsageError(unknown_name("value of --classes:", request.classes, CLASSES))
    templates = read_templates(request.templates) if request.templates else None
    found = open_data_sets(request.words, request.data, request.classes)
    data_sets = [_with_prompts(one, templates, request.split) for one in found]
    manifests = read_manifests(request.checkpoints, request.run)
    jobs = [Job(path, one, _rows(one, data_sets, request)) for path, one in manifests.items()]
    return ZeroshotPlan(request, data_sets, jobs)


def _with_prompts(data: DataSet, templates: TemplatesFile | None, split: str) -> ZeroshotData:
    data.check(split)
    prompts = data.prompts(templates)
    _warn_of_twins(data, prompts)
    return ZeroshotData(data, prompts, content_id([list(data.classes), prompts]))


def _warn_of_twins(data: DataSet, prompts: list[list[str]]) -> None:
    """Warn of classes with equal prompts, which no model can distinguish: ImageNet has two."""
    seen: set[tuple[str, ...]] = set()
    twins = []
    for name, texts in zip(data.classes, map(tuple, prompts), strict=True):
        if texts in seen:
            twins.append(name)
        seen.add(texts)
    if twins:
        shown = ", ".join(twins[:_NAMES_SHOWN]) + (", ..." if len(twins) > _NAMES_SHOWN else "")
        warn(
            f"{data.name}: classes with the same prompts as another ({len(twins)}: {shown}) tie "
            "with it, and a tie counts as wrong"
        )


def _rows(
    manifest: CheckpointManifest, data_sets: Sequence[ZeroshotData], request: Request
) -> list[PlannedRow]:
    places = [place_of(one.data) for one in data_sets]
    steps = steps_of(manifest, places)
    found = []
    for number, (one, place, step) in enumerate(zip(data_sets, places, steps, strict=True)):
        where = {"task_step": step, "stream": place.stream, "task": place.slug}
        which = request.classes if isinstance(one.data, TaskData) else "all"
        more = {"n_classes": len(one.prompts), "prompts": one.digest}
        fields = _fields(manifest, request, [place.slug], which, {**where, **more})
        found.append(PlannedRow((number,), fields, _MEASURED))
    outside = [number for number, step in enumerate(steps) if step is None]
    if len(outside) > 1:
        found.append(_average(manifest, request, data_sets, outside))
    return found


def _average(
    manifest: CheckpointManifest,
    request: Request,
    data_sets: Sequence[ZeroshotData],
    members: list[int],
) -> PlannedRow:
    """The row with the mean over data sets outside the stream.

    The mean over the stream's tasks is in forgetting-report.
    """
    where = {"task_step": None, "stream": None, "task": f"average of {len(members)}"}
    more = {"prompts": content_id([data_sets[number].digest for number in members])}
    names = [data_sets[number].data.name for number in members]
    fields = _fields(manifest, request, names, "all", {**where, **more})
    return PlannedRow(tuple(members), fields, _MEASURED)


def _fields(
    manifest: CheckpointManifest,
    request: Request,
    names: list[str],
    which: str,
    more: dict[str, Any],
) -> dict[str, Any]:
    common = {"evaluator": "zeroshot", "protocol": f"{which}-classes", "gallery": "own"}
    limit = {"limit": request.limit} if request.limit else {}
    return row_fields(
        checkpoint_fields(manifest), more, names, {**common, "split": request.split, **limit}
    )

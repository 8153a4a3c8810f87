"""The plan of a zero-shot evaluation: its prompts, and its rows without their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.core.console import warn
from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.core.hashing import content_id
from vlcpctl.data.classification.data_sets import CLASSES, DataSet, TaskData, open_data_sets
from vlcpctl.data.classification.prompts import TemplatesFile, read_templates
from vlcpctl.evaluation.jobs import ClassificationJob, cells_in, make_jobs, place_of
from vlcpctl.evaluation.planned_rows import Cell, about_of, fields_of, steps_of

_NAMES_SHOWN = 3


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


@dataclass(frozen=True)
class Subject:
    """A data set with its prompts; `digest` is a hash of classes and prompts."""

    data: DataSet
    prompts: list[list[str]]
    digest: str


@dataclass(frozen=True)
class ZeroshotPlan:
    """The data sets and planned rows, known before a model is loaded."""

    subjects: list[Subject]
    jobs: list[ClassificationJob]

    def cells(self) -> list[Cell]:
        """The planned rows of all checkpoints."""
        return cells_in(self.jobs)

    def lines(self) -> Iterator[str]:
        """The plan as lines of text."""
        for job in self.jobs:
            for cell in job.cells:
                yield f"{job.manifest['run']} step {job.manifest['step']}: {self._words(cell)}"

    def _words(self, cell: Cell) -> str:
        if len(cell.tasks) > 1:
            return str(cell.fields["task"])
        (number,) = cell.tasks
        subject = self.subjects[number]
        texts = sum(map(len, subject.prompts))
        return f"{subject.data.name}, {len(subject.prompts)} classes, {texts} prompts"


def make_plan(request: Request) -> ZeroshotPlan:
    """The data sets and jobs of a request, after checking its inputs.

    Raises UsageError for options that do not fit, and BadInput for unusable data.
    """
    if request.classes not in CLASSES:
        raise UsageError(unknown_name("value of --classes:", request.classes, CLASSES))
    templates = read_templates(request.templates) if request.templates else None
    data_sets = open_data_sets(request.words, request.data, request.classes)
    subjects = [_subject(one, templates, request.split) for one in data_sets]
    jobs = make_jobs(
        request.checkpoints, request.run, lambda manifest: _cells(manifest, subjects, request)
    )
    return ZeroshotPlan(subjects, jobs)


def _subject(data: DataSet, templates: TemplatesFile | None, split: str) -> Subject:
    data.check(split)
    prompts = data.prompts(templates)
    _warn_of_twins(data, prompts)
    return Subject(data, prompts, content_id([list(data.classes), prompts]))


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


def _cells(manifest: dict[str, Any], subjects: Sequence[Subject], request: Request) -> list[Cell]:
    places = [place_of(subject.data) for subject in subjects]
    steps = steps_of(manifest, places)
    found = []
    for number, (subject, place, step) in enumerate(zip(subjects, places, steps, strict=True)):
        where = {"task_step": step, "stream": place.stream, "task": place.slug}
        which = request.classes if isinstance(subject.data, TaskData) else "all"
        more = {"n_classes": len(subject.prompts), "prompts": subject.digest}
        fields = _fields(manifest, request, [place.slug], which, {**where, **more})
        found.append(Cell((number,), fields))
    outside = [number for number, step in enumerate(steps) if step is None]
    if len(outside) > 1:
        found.append(_average(manifest, request, subjects, outside))
    return found


def _average(
    manifest: dict[str, Any], request: Request, subjects: Sequence[Subject], members: list[int]
) -> Cell:
    """The row with the mean over data sets outside the stream.

    The mean over the stream's tasks is in forgetting-report.
    """
    where = {"task_step": None, "stream": None, "task": f"average of {len(members)}"}
    more = {"prompts": content_id([subjects[number].digest for number in members])}
    names = [subjects[number].data.name for number in members]
    return Cell(tuple(members), _fields(manifest, request, names, "all", {**where, **more}))


def _fields(
    manifest: dict[str, Any], request: Request, names: list[str], which: str, more: dict[str, Any]
) -> dict[str, Any]:
    common = {"evaluator": "zeroshot", "protocol": f"{which}-classes", "gallery": "own"}
    limit = {"limit": request.limit} if request.limit else {}
    return fields_of(about_of(manifest), more, names, {**common, "split": request.split, **limit})

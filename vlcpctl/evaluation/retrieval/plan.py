"""The plan of a retrieval evaluation: its options, splits and rows, before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.core.atomic import already_made
from vlcpctl.core.errors import BadInput, Incompatible, UsageError, unknown_name
from vlcpctl.core.option_rules import GoesWith, refuse_idle
from vlcpctl.core.versions import Versions
from vlcpctl.data.tasks.task import Task
from vlcpctl.evaluation.jobs import Job, read_checkpoints
from vlcpctl.evaluation.membership import RunCheckpoint, TaskPlace
from vlcpctl.evaluation.planned_rows import GALLERIES, PlannedRow, gallery_rows, place_of
from vlcpctl.evaluation.rank_files import RankFile, plan_ranks
from vlcpctl.metrics.average_precision import DEFAULT_VARIANT, VARIANTS
from vlcpctl.models.configuration import fusion_configuration

DUPLICATES = ("unite", "separate")

CROSS_MODAL, MULTI_MODAL = PROTOCOLS = ("cross-modal", "multi-modal")
_TWO_SPLITS = ("query", "gallery")
_USUAL_SPLIT = "test"
_IDLE = (
    GoesWith("map_variant", "protocol", (MULTI_MODAL,)),
    GoesWith("save_embeddings", "protocol", (CROSS_MODAL,)),
    GoesWith("save_ranks", "protocol", (CROSS_MODAL,)),
)
_MEASURED = {
    CROSS_MODAL: ("metrics", "n_images", "n_texts", "n_ties"),
    MULTI_MODAL: ("metrics", "n_queries", "n_gallery", "n_ties", "n_alone"),
}


@dataclass(frozen=True, kw_only=True)
class RetrievalRequest:
    """The options of an evaluation; None for `split` and `map_variant` means the default."""

    tasks: tuple[Task, ...]
    checkpoints: tuple[Path, ...]
    gallery: str
    protocol: str
    map_variant: str | None
    split: str | None
    duplicates: str
    run: str | None
    limit: int | None
    save_embeddings: Path | None
    force: bool
    save_ranks: Path | None = None
    out: Path | None = None  # of the rows

    @property
    def splits(self) -> tuple[str, ...]:
        """The split to evaluate on, or the splits of queries and gallery."""
        return splits_of(self.tasks, self.protocol, self.split)


@dataclass(frozen=True)
class SavedEmbeddings:
    """A directory of embeddings to write, and its identity."""

    out: Path
    identity: dict[str, Any]


@dataclass(frozen=True)
class RetrievalPlan:
    """The planned rows, and the embeddings and ranks that are still to be saved."""

    request: RetrievalRequest
    jobs: list[Job]
    embeddings: dict[Path, SavedEmbeddings]
    ranks: RankFile | None = None

    def lines(self) -> Iterator[str]:
        """The plan as lines of text."""
        for job in self.jobs:
            for row in job.rows:
                names = ", ".join(row.fields["tasks"])
                yield f"{job.label}: {row.fields['gallery']} gallery of {names}"
            if job.checkpoint in self.embeddings:
                yield f"{job.label}: embeddings to {self.embeddings[job.checkpoint].out}"
        if self.ranks is not None:
            yield f"ranks of every query to {self.ranks.out}"


def make_plan(request: RetrievalRequest) -> RetrievalPlan:
    """The plan of a request, after checking its inputs.

    Raises UsageError for options that do not fit, BadInput for an unusable task or checkpoint, and
    Incompatible for a model that the protocol cannot evaluate.
    """
    _check_names(request)
    places = [_place(task, request.splits) for task in request.tasks]
    found = read_checkpoints(request.checkpoints, request.run)
    if request.protocol == MULTI_MODAL:
        for path in request.checkpoints:
            require_fusion(path)
        for task in request.tasks:
            require_classes(task)
    jobs = [Job(path, one.manifest, _rows(one, places, request)) for path, one in found.items()]
    embeddings = _embeddings(found, places, request)
    if not any(job.rows for job in jobs):
        raise UsageError(
            "there is nothing to evaluate: no checkpoint was trained on tasks that make a complete "
            "merged gallery; --gallery own does not need the other tasks"
        )
    rows = [row for job in jobs for row in job.rows]
    ranks = plan_ranks(request.save_ranks, rows, request.out, force=request.force)
    return RetrievalPlan(request, jobs, embeddings, ranks)


def _check_names(request: RetrievalRequest) -> None:
    for kind, name, known in (
        ("gallery", request.gallery, GALLERIES),
        ("value of --duplicates:", request.duplicates, DUPLICATES),
    ):
        if name not in known:
            raise UsageError(unknown_name(kind, name, known))
    check_options(request)
    names = [path.name for path in request.checkpoints]
    again = [name for name in names if names.count(name) > 1]
    if request.save_embeddings and again:
        raise UsageError(
            "--save-embeddings makes one directory per checkpoint name, but two are named "
            f"{again[0]}; evaluate them in separate commands"
        )


def _place(task: Task, splits: tuple[str, ...]) -> TaskPlace:
    for split in splits:
        if split not in task.counts:
            known = ", ".join(task.counts)
            raise BadInput(f"{task.path} has no split {split!r} (it has: {known}); see --split")
        if task.counts[split] == 0:
            raise BadInput(f"{task.path}: split {split} has no images")
    return place_of(task)


def _rows(
    checkpoint: RunCheckpoint, places: list[TaskPlace], request: RetrievalRequest
) -> list[PlannedRow]:
    common: dict[str, Any] = {"protocol": request.protocol, "split": "+".join(request.splits)}
    common |= {"limit": request.limit, "options": _options(request)}
    # Also as fields of their own, as in rows of schema 1.0, but only when not the default.
    if request.duplicates != "unite":
        common["duplicates"] = request.duplicates
    if request.map_variant not in {None, DEFAULT_VARIANT}:
        common["map_variant"] = request.map_variant
    return gallery_rows(checkpoint, places, request.gallery, common, _MEASURED[request.protocol])


def _options(request: RetrievalRequest) -> dict[str, Any]:
    """The options that decide the numbers; batch size, device and backend do not."""
    options = {"duplicates": request.duplicates}
    if request.protocol == MULTI_MODAL:
        options["map_variant"] = request.map_variant or DEFAULT_VARIANT
    return options


def _embeddings(
    checkpoints: dict[Path, RunCheckpoint], places: list[TaskPlace], request: RetrievalRequest
) -> dict[Path, SavedEmbeddings]:
    """The embeddings to save of each checkpoint, without those that are already saved."""
    if request.save_embeddings is None:
        return {}
    found = {}
    for path, checkpoint in checkpoints.items():
        identity = {
            "checkpoint": checkpoint.manifest.content,
            "tasks": [place.content for place in places],
            "split": "+".join(request.splits),
            "limit": request.limit,
        }
        several = len(checkpoints) > 1
        out = request.save_embeddings / path.name if several else request.save_embeddings
        versions = Versions.of(task.manifest for task in request.tasks)
        force = request.force
        if not already_made(out, "embeddings", identity, force=force, versions=versions):
            found[path] = SavedEmbeddings(out, identity)
    return found


def check_options(request: RetrievalRequest) -> None:
    """Raise UsageError for an unknown protocol, or an option without effect on the chosen one."""
    if request.protocol not in PROTOCOLS:
        raise UsageError(unknown_name("protocol", request.protocol, PROTOCOLS))
    refuse_idle(_IDLE, vars(request))
    if request.map_variant is not None and request.map_variant not in VARIANTS:
        raise UsageError(unknown_name("value of --map-variant:", request.map_variant, VARIANTS))


def splits_of(tasks: Iterable[Task], protocol: str, split: str | None) -> tuple[str, ...]:
    """The splits to evaluate on: `split` if given, else (query, gallery) if tasks have them.

    Without either it is `test`. Raises UsageError if only some tasks have query and gallery.
    """
    if split is not None or protocol == CROSS_MODAL:
        return (split or _USUAL_SPLIT,)
    has_two = {task.path: set(_TWO_SPLITS) <= set(task.counts) for task in tasks}
    if all(has_two.values()):
        return _TWO_SPLITS
    if any(has_two.values()):
        one, other = (
            next(path for path in has_two if has_two[path] is has) for has in (True, False)
        )
        raise UsageError(
            f"{one} has splits query and gallery, but {other} does not; "
            "use --split to name one that all tasks have"
        )
    return (_USUAL_SPLIT,)


def require_classes(task: Task) -> None:
    """Raise BadInput for a task without class labels: they decide which items are relevant."""
    if not task.manifest.labels:
        raise BadInput(
            f"{task.path} has no class labels, which multi-modal retrieval needs; "
            "use 'vlcpctl split --label-column'"
        )


def require_fusion(checkpoint: Path) -> None:
    """Raise Incompatible for a dual encoder, which has no joint feature of an image and a text."""
    if fusion_configuration(str(checkpoint)) is None:
        raise Incompatible(
            f"--protocol multi-modal needs a fusion model, such as albef-tiny: {checkpoint} is a "
            "dual encoder; use --protocol cross-modal"
        )

"""The plan of a retrieval evaluation: its options, splits and rows, before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from vlcpctl.core.atomic import already_made
from vlcpctl.core.errors import BadInput, Incompatible, UsageError, unknown_name
from vlcpctl.core.manifest import read_manifest
from vlcpctl.data.tasks.task import Task
from vlcpctl.evaluation.jobs import RetrievalJob
from vlcpctl.evaluation.planned_rows import GALLERIES, Place, cells
from vlcpctl.metrics.average_precision import DEFAULT_VARIANT, VARIANTS
from vlcpctl.models.configuration import fusion_configuration

DUPLICATES = ("unite", "separate")

CROSS_MODAL, MULTI_MODAL = PROTOCOLS = ("cross-modal", "multi-modal")
_TWO_SPLITS = ("query", "gallery")
_USUAL_SPLIT = "test"


@dataclass(frozen=True, kw_only=True)
class Request:
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

    @property
    def splits(self) -> tuple[str, ...]:
        """The split to evaluate on, or the splits of queries and gallery."""
        return splits_of(self.tasks, self.protocol, self.split)


def make_plan(request: Request) -> list[RetrievalJob]:
    """The jobs of a request, after checking its inputs.

    Raises UsageError for options that do not fit, BadInput for an unusable task or checkpoint, and
    Incompatible for a model that the protocol cannot evaluate.
    """
    _check_names(request)
    places = [_place(task, request.splits) for task in request.tasks]
    manifests = [read_manifest(path, "checkpoint") for path in request.checkpoints]
    if request.protocol == MULTI_MODAL:
        for path in request.checkpoints:
            require_fusion(path)
        for task in request.tasks:
            require_classes(task)
    jobs = [
        _job(path, manifest, places, request)
        for path, manifest in zip(request.checkpoints, manifests, strict=True)
    ]
    if not any(job.cells for job in jobs):
        raise UsageError(
            "there is nothing to evaluate: no checkpoint was trained on tasks that make a complete "
            "merged gallery; --gallery own does not need the other tasks"
        )
    return jobs


def _check_names(request: Request) -> None:
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


def _place(task: Task, splits: tuple[str, ...]) -> Place:
    for split in splits:
        if split not in task.counts:
            known = ", ".join(task.counts)
            raise BadInput(f"{task.path} has no split {split!r} (it has: {known}); see --split")
        if task.counts[split] == 0:
            raise BadInput(f"{task.path}: split {split} has no images")
    return Place(task.slug, task.step, task.manifest.get("stream"), task.content)


def _job(
    path: Path, manifest: dict[str, Any], places: list[Place], request: Request
) -> RetrievalJob:
    if request.run:
        manifest["run"] = request.run
    split = "+".join(request.splits)
    common: dict[str, Any] = {"protocol": request.protocol, "split": split}
    # Recorded only when not the default, so that rows of a default evaluation keep their fields.
    if request.duplicates != "unite":
        common["duplicates"] = request.duplicates
    if request.map_variant not in {None, DEFAULT_VARIANT}:
        common["map_variant"] = request.map_variant
    if request.limit:
        common["limit"] = request.limit
    identity = {
        "checkpoint": manifest["content"],
        "tasks": [place.content for place in places],
        "split": split,
        "limit": request.limit,
    }
    out = _embeddings_of(path, request)
    if out is not None and already_made(out, "embeddings", identity, force=request.force):
        out = None
    return RetrievalJob(
        path, manifest, cells(manifest, places, request.gallery, common), out, identity
    )


def _embeddings_of(path: Path, request: Request) -> Path | None:
    several = len(request.checkpoints) > 1
    out = request.save_embeddings
    return out / path.name if out is not None and several else out


class Asked(Protocol):
    """The options that apply to only one of the protocols."""

    @property
    def protocol(self) -> str: ...
    @property
    def map_variant(self) -> str | None: ...
    @property
    def save_embeddings(self) -> Path | None: ...


def check_options(asked: Asked) -> None:
    """Raise UsageError for an unknown protocol, or an option without effect on the chosen one."""
    if asked.protocol not in PROTOCOLS:
        raise UsageError(unknown_name("protocol", asked.protocol, PROTOCOLS))
    if asked.protocol == CROSS_MODAL and asked.map_variant is not None:
        raise UsageError(
            f"--map-variant {asked.map_variant} has no effect with --protocol cross-modal: only "
            "--protocol multi-modal computes mean average precision"
        )
    if asked.map_variant is not None and asked.map_variant not in VARIANTS:
        raise UsageError(unknown_name("value of --map-variant:", asked.map_variant, VARIANTS))
    if asked.protocol == MULTI_MODAL and asked.save_embeddings is not None:
        raise UsageError(
            "--save-embeddings has no effect with --protocol multi-modal: it stores embeddings of "
            "images and of texts, which only --protocol cross-modal computes"
        )


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
    if not task.manifest.get("labels"):
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

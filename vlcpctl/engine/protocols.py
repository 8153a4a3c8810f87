"""What the retrieval protocols measure on, and what they ask of options, tasks and checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from vlcpctl.core.errors import BadInput, Incompatible, UsageError, unknown_name
from vlcpctl.data.task import Task
from vlcpctl.metrics.average_precision import VARIANTS
from vlcpctl.models.configuration import fusion_configuration

CROSS_MODAL, MULTI_MODAL = PROTOCOLS = ("cross-modal", "multi-modal")
_TWO_SPLITS = ("query", "gallery")
_USUAL_SPLIT = "test"


class Asked(Protocol):
    """The options that belong to one protocol or the other."""

    @property
    def protocol(self) -> str: ...
    @property
    def map_variant(self) -> str | None: ...
    @property
    def save_embeddings(self) -> Path | None: ...


def check_options(asked: Asked) -> None:
    """Refuse what would have no effect."""
    if asked.protocol not in PROTOCOLS:
        raise UsageError(unknown_name("protocol", asked.protocol, PROTOCOLS))
    if asked.protocol == CROSS_MODAL and asked.map_variant is not None:
        raise UsageError(
            f"--map-variant {asked.map_variant}: cross-modal retrieval has recalls; "
            "mean average precision is of --protocol multi-modal"
        )
    if asked.map_variant is not None and asked.map_variant not in VARIANTS:
        raise UsageError(f"--map-variant: {unknown_name('variant', asked.map_variant, VARIANTS)}")
    if asked.protocol == MULTI_MODAL and asked.save_embeddings is not None:
        raise UsageError(
            "--save-embeddings keeps an image and a text embedding of each pair, and --protocol "
            "multi-modal makes one of both; take --protocol cross-modal to keep them"
        )


def splits_of(tasks: Iterable[Task], protocol: str, split: str | None) -> tuple[str, ...]:
    """The splits to measure on: the one named, the queries' and the gallery's, or `test`."""
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
            f"{one} has splits query and gallery, and {other} has not; "
            "name one that all tasks have with --split"
        )
    return (_USUAL_SPLIT,)


def require_classes(task: Task) -> None:
    """Refuse a task without class labels, which say what is right in multi-modal retrieval."""
    if not task.manifest.get("labels"):
        raise BadInput(
            f"{task.path} has no class labels, by which multi-modal retrieval judges; "
            "give 'vlcpctl split' a --label-column"
        )


def require_fusion(checkpoint: Path) -> None:
    """Refuse a model that has no feature of an image and a text together."""
    if fusion_configuration(str(checkpoint)) is None:
        raise Incompatible(
            f"--protocol multi-modal: {checkpoint} is a dual encoder, which fuses no image with a "
            "text; take --protocol cross-modal, or a fusion model such as albef-tiny"
        )

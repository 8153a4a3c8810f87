"""The retrieval protocols: their splits, and what they require of options, tasks and models."""

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

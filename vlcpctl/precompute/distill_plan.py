"""The plan of distill: a request checked against its inputs. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import UsageError
from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.buffer.update import open_buffer
from vlcpctl.data.tasks.keys import Keys
from vlcpctl.data.tasks.task import Split, Task, open_task
from vlcpctl.models.configuration import checkpoint_transform
from vlcpctl.training.presets import refuse_idle_settings, resolve
from vlcpctl.training.settings import Settings

AUGMENTATION = ("crop", "crop_scale", "flip", "randaugment", "jpeg_decode", "resize")
VIEWS = 4
PAIRS_OF_A_PART = 256


@dataclass(frozen=True, kw_only=True)
class DistillRequest:
    """The inputs and options of distill.

    None for `views` means the default number, and for `preset` the teacher's own augmentation.
    """

    tasks: tuple[Path, ...]
    teacher: Path
    out: Path
    buffer: Path | None = None
    views: int | None = None
    preset: str | None = None
    augmentation: Mapping[str, Any]
    seed: int = 0


@dataclass(frozen=True)
class DistillPlan:
    """A checked request, its opened splits, and the image transform and number of its views."""

    request: DistillRequest
    sources: Sequence[str]  # ids of the tasks and the buffer
    splits: Sequence[Split]
    transform: ImageTransform
    views: int
    identity: dict[str, Any]

    @cached_property
    def pair_rows(self) -> np.ndarray:
        """(K, 2) index of the split and row of every pair; a key in several splits counts once."""
        found = [np.empty((0, 2), dtype=np.int64)]
        for source, split in enumerate(self.splits):
            is_new = split.keys.firsts()
            for earlier in self.splits[:source]:
                is_new &= ~split.keys.among(earlier.keys)
            row = np.flatnonzero(is_new)
            found.append(np.stack([np.full(len(row), source), row], axis=1))
        return np.concatenate(found)

    @property
    def parts(self) -> int:
        """The number of parts that the pairs are cut into."""
        return -(-len(self.pair_rows) // PAIRS_OF_A_PART)

    def part(self, number: int) -> np.ndarray:
        """The rows of `pair_rows` in a part, (n, 2)."""
        start = number * PAIRS_OF_A_PART
        return self.pair_rows[start : start + PAIRS_OF_A_PART]

    @cached_property
    def caption_counts(self) -> np.ndarray:
        """(K,) int: the number of captions of each pair."""
        return np.concatenate([split.caption_counts(row) for split, row in self._rows()])

    def keys(self) -> Keys:
        """The key of each of the K pairs."""
        return Keys.joined([split.keys.take(row) for split, row in self._rows()])

    def _rows(self) -> Iterator[tuple[Split, np.ndarray]]:
        """Each split with the rows of its pairs; the pairs are in this order."""
        source, row = self.pair_rows.T
        return ((split, row[source == number]) for number, split in enumerate(self.splits))

    def lines(self) -> Iterator[str]:
        """The plan as lines of text."""
        settings = ", ".join(f"{name} {getattr(self.transform, name)}" for name in AUGMENTATION)
        views = "1 view" if self.views == 1 else f"{self.views} views"
        captions = int(self.caption_counts.sum())
        yield f"distill: {len(self.pair_rows)} images in {views} each, {captions} captions"
        yield f"  views: {settings}"


def make_plan(request: DistillRequest) -> DistillPlan:
    """Open the inputs of a request and check that they fit together.

    Raises BadInput if an input is not what its option needs, and UsageError for options without
    effect or an unknown augmentation.
    """
    tasks = [open_task(path) for path in request.tasks]
    buffer = open_buffer(request.buffer) if request.buffer else None
    teacher = CheckpointManifest.read(request.teacher)
    settings = _settings(request, teacher)
    augmentation = {name: getattr(settings, name) for name in AUGMENTATION}
    transform = replace(checkpoint_transform(request.teacher), **augmentation)
    views = _views(request, transform)
    identity = {
        "teacher": teacher.content,
        "tasks": [task.content for task in tasks],
        "buffer": buffer.content if buffer else None,
        "views": views,
        "seed": request.seed,
        "transform": transform.facts(),
    }
    sources = [*tasks, *([buffer] if buffer else [])]
    splits = [_train_split(task) for task in sources]
    return DistillPlan(request, [one.id for one in sources], splits, transform, views, identity)


def _settings(request: DistillRequest, teacher: CheckpointManifest) -> Settings:
    """The augmentation of the preset, else of the teacher's training; options win over both."""
    inherited: dict[str, Any] = {}
    if request.preset is None:
        trained = teacher.identity.get("settings")
        if trained is None:
            why = "was merged from others" if teacher.is_merged else "was not trained by vlcpctl"
            raise UsageError(
                f"{request.teacher} {why}, so its augmentation is not known; "
                "pass the --preset that train-step will use"
            )
        # A run that lacks one of them had its default.
        given = {name: trained[name] for name in AUGMENTATION if name in trained}
        inherited = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in given.items()
        }
    from_options = {**inherited, **request.augmentation}
    settings, _ = resolve(request.preset or "tiny", from_options, {})
    refuse_idle_settings(settings, dict.fromkeys(request.augmentation, "flag"))
    return settings


def _views(request: DistillRequest, transform: ImageTransform) -> int:
    if transform.varies:
        return request.views or VIEWS
    if (request.views or 1) > 1:
        raise UsageError(
            f"--views {request.views} has no effect: without augmentation all views are equal "
            f"(crop {transform.crop}, no flip, no randaugment)"
        )
    if request.seed:
        raise UsageError(
            f"--seed {request.seed} has no effect: without augmentation nothing is drawn at random"
        )
    return 1


def _train_split(task: Task) -> Split:
    task.require("train")
    return task.split("train")

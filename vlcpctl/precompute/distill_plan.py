"""What distill is to do, checked against its inputs. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
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

AUGMENTATION = ("crop", "crop_scale", "flip", "randaugment", "jpeg_decode", "resize")
VIEWS = 4
PAIRS_OF_A_PART = 256


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """The inputs and options of distill, and what follows from them, K pairs in parts.

    None for `views` means the default number, and for `preset` the teacher's own augmentation. What
    follows raises BadInput if an input is not what its option needs, and UsageError for options
    without effect or an unknown augmentation; `identity` depends on all of it.
    """

    tasks: tuple[Path, ...]
    teacher: Path
    out: Path
    buffer: Path | None = None
    views: int | None = None
    preset: str | None = None
    augmentation: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What decides the targets."""
        tasks, buffer = self.sources[: len(self.tasks)], self.sources[len(self.tasks) :]
        return {
            "teacher": self._teacher.content,
            "tasks": [task.content for task in tasks],
            "buffer": buffer[0].content if buffer else None,
            "views": self.view_count,
            "seed": self.seed,
            "transform": self.transform.facts(),
        }

    @cached_property
    def sources(self) -> list[Task]:
        """The tasks and, last, the buffer."""
        buffers = [open_buffer(self.buffer)] if self.buffer else []
        return [*map(open_task, self.tasks), *buffers]

    @cached_property
    def splits(self) -> list[Split]:
        """The training splits of the sources."""
        for source in self.sources:
            source.require("train")
        return [source.split("train") for source in self.sources]

    @cached_property
    def _teacher(self) -> CheckpointManifest:
        return CheckpointManifest.read(self.teacher)

    @cached_property
    def transform(self) -> ImageTransform:
        """How images become views: as the preset says, else the teacher's training; options win."""
        inherited: dict[str, Any] = {}
        if self.preset is None:
            trained = self._teacher.identity.get("settings")
            if trained is None:
                is_merged = self._teacher.is_merged
                why = "was merged from others" if is_merged else "was not trained by vlcpctl"
                raise UsageError(
                    f"{self.teacher} {why}, so its augmentation is not known; "
                    "pass the --preset that train-step will use"
                )
            # A run that lacks one of them had its default.
            given = {name: trained[name] for name in AUGMENTATION if name in trained}
            inherited = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in given.items()
            }
        settings, _ = resolve(self.preset or "tiny", {**inherited, **self.augmentation}, {})
        refuse_idle_settings(settings, dict.fromkeys(self.augmentation, "flag"))
        augmentation = {name: getattr(settings, name) for name in AUGMENTATION}
        return replace(checkpoint_transform(self.teacher), **augmentation)

    @cached_property
    def view_count(self) -> int:
        """The number of views of each image, V."""
        if self.transform.varies:
            return self.views or VIEWS
        if (self.views or 1) > 1:
            raise UsageError(
                f"--views {self.views} has no effect: without augmentation all views are equal "
                f"(crop {self.transform.crop}, no flip, no randaugment)"
            )
        if self.seed:
            raise UsageError(
                f"--seed {self.seed} has no effect: without augmentation nothing is drawn at random"
            )
        return 1

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
        views = "1 view" if self.view_count == 1 else f"{self.view_count} views"
        captions = int(self.caption_counts.sum())
        yield f"distill: {len(self.pair_rows)} images in {views} each, {captions} captions"
        yield f"  views: {settings}"

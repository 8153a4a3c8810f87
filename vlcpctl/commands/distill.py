"""`vlcpctl distill`: precompute a teacher's embeddings of tasks."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from vlcpctl.commands.shared import Computed, Planned, Shared, Stored
from vlcpctl.core.console import emit, say
from vlcpctl.core.options import (
    DATA,
    EXECUTION,
    INPUT,
    Auto,
    MaybePath,
    OnePath,
    Paths,
    argument,
    like,
    option,
    required,
)
from vlcpctl.training.settings import Settings

if TYPE_CHECKING:
    from vlcpctl.files.parts import Parts
    from vlcpctl.precompute.compute_options import ComputeOptions
    from vlcpctl.precompute.distill_plan import Distillation


AUGMENTATION = ("crop", "crop_scale", "flip", "randaugment", "jpeg_decode", "resize")


class Distill(Planned, Computed, Stored):
    r"""Precompute a teacher's embeddings of tasks, so that training does not run the teacher.

    Computes the raw embeddings of every image, in several augmented views, and of every caption.
    With train-step --targets, the teacher is not run, and it is not loaded unless a method needs
    its weights. Visit n of an image, from 0, trains with view n mod --views. The
    augmentation, the teacher, the tasks and the buffer must be those of train-step, which checks
    them.

    If it is interrupted, run the same command again: it resumes and ends with the same bytes.
    --nproc shares the work between processes of one command. Several commands, perhaps on different
    machines, can share it with --num-shards and --shard-index; the last one to finish completes
    --out.

    Examples:
      vlcpctl distill stream/01-* --teacher run/00 -o targets/01
      vlcpctl distill stream/01-* --teacher run/00 --buffer buffer/00 \
          --preset modx --views 35 -o targets/01
      vlcpctl train-step stream/01-* -o run/01 --method modx --previous run/00 \
          --targets targets/01
    """

    tasks: Paths = argument("TASK", "Task directories", kw_only=False, stored=True)
    teacher: OnePath = required(
        "Checkpoint to compute embeddings with, usually the previous one", "DIR", INPUT
    )
    buffer: MaybePath = option(
        "Buffer that train-step will replay; its pairs are embedded too",
        "DIR",
        INPUT,
        usual=True,
        stored=True,
    )
    views: int | None = option(
        "Augmented views per image",
        "N",
        DATA,
        otherwise="4, or 1 without random augmentation",
        within="[1, 10000]",
        usual=True,
    )
    preset: str | None = option(
        "Preset whose augmentation to use",
        "NAME",
        DATA,
        otherwise="the teacher's settings",
        offers="presets",
        usual=True,
    )
    crop: str | None = like(Settings, "crop", default=None)
    crop_scale: tuple[float, float] | None = like(Settings, "crop_scale", default=None)
    flip: bool | None = like(Settings, "flip", default=None)
    randaugment: tuple[int, int] | None = like(Settings, "randaugment", default=None)
    jpeg_decode: str | None = like(Settings, "jpeg_decode", default=None)
    resize: str | None = like(Settings, "resize", default=None)
    batch_size: int = option(
        "Images or texts to encode at once", "N", EXECUTION, default=256, within="[1, inf)"
    )
    num_shards: int = option(
        "Number of commands that share the work",
        "N",
        EXECUTION,
        default=1,
        within="[1, inf)",
        usual=True,
    )
    shard_index: int = option(
        "Index of this command, from 0 to --num-shards - 1",
        "I",
        EXECUTION,
        default=0,
        within="[0, inf)",
        usual=True,
    )
    workers: Auto = like(Shared, "workers", default=None)

    def execute(self) -> None:
        from vlcpctl.distributed.ranks import processes
        from vlcpctl.files.parts import parts_of
        from vlcpctl.precompute.compute_options import ComputeOptions
        from vlcpctl.precompute.distill_plan import Distillation

        shard = parts_of(
            self.out, self.num_shards, self.shard_index, force=self.force and self.num_shards > 1
        )
        assert shard is not None
        given = {name: getattr(self, name) for name in AUGMENTATION}
        plan = Distillation(
            tasks=tuple(dict.fromkeys(self.tasks)),
            teacher=self.teacher,
            out=self.out,
            buffer=self.buffer,
            views=self.views,
            preset=self.preset,
            augmentation={name: value for name, value in given.items() if value is not None},
            seed=self.seed,
        )
        compute = ComputeOptions(
            batch_size=self.batch_size,
            device=self.device,
            workers=self.workers,
            threads=self.threads,
            nproc=processes(self.nproc),
        )
        _ = plan.identity  # all inputs are checked
        for line in plan.lines():
            say(line)
        say(f"  {compute}")
        if not self.dry_run and self._make(plan, compute, shard):
            emit(_result(self.out) if self.json else self.out)

    def _make(self, plan: Distillation, compute: ComputeOptions, shard: Parts) -> bool:
        """Whether the directory is complete now; otherwise other shards are still missing."""
        from vlcpctl.core.words import counted, duration
        from vlcpctl.files.finished import already_made
        from vlcpctl.files.manifest import read_manifest
        from vlcpctl.files.parts import drop_parts

        out = self.out
        if already_made(out, "targets", plan.identity, force=self.force):
            say(f"distill: {out} is already finished")
            drop_parts(out)
            return True
        from vlcpctl.precompute.distill import distill

        started = time.monotonic()
        if not distill(plan, compute, shard, force=self.force):
            return False
        made = read_manifest(out, "targets")
        pairs = f"{counted(made['pairs'], 'pair')} in {counted(made['views'], 'view')}"
        took = duration(time.monotonic() - started)
        say(f"distill: {pairs}, {made['width']} channels, in {took}")
        return True


def _result(out: Path) -> str:
    from vlcpctl.files.manifest import read_manifest

    manifest = read_manifest(out, "targets")
    names = ("content", "pairs", "views", "width")
    return json.dumps({"path": str(out), **{name: manifest[name] for name in names}})

"""`vlcpctl distill`: precompute a teacher's embeddings of tasks."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcpctl.commands import options
from vlcpctl.core.console import emit, say
from vlcpctl.training.config.settings import Settings

if TYPE_CHECKING:
    from vlcpctl.files.parts import Parts
    from vlcpctl.precompute.compute_options import ComputeOptions
    from vlcpctl.precompute.distill_plan import DistillPlan

Tasks = Annotated[list[Path], typer.Argument(metavar="TASK", help="Task directories.")]
Teacher = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        help="Checkpoint to compute embeddings with, usually the previous one.",
        rich_help_panel=options.INPUT,
    ),
]
Buffer = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Buffer that train-step will replay; its pairs are embedded too (default: none).",
        rich_help_panel=options.INPUT,
    ),
]
Views = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=10_000,
        metavar="N",
        help="Augmented views per image (default: 4, or 1 without random augmentation).",
        rich_help_panel=options.DATA,
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Preset whose augmentation to use (default: the teacher's settings).",
        rich_help_panel=options.DATA,
    ),
]
BatchSize = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="Images or texts to encode at once.",
        rich_help_panel=options.EXECUTION,
    ),
]
NumShards = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="Number of commands that share the work.",
        rich_help_panel=options.EXECUTION,
    ),
]
ShardIndex = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="I",
        help="Index of this command, from 0 to --num-shards - 1.",
        rich_help_panel=options.EXECUTION,
    ),
]


@options.with_fields(
    Settings, only=("crop", "crop_scale", "flip", "randaugment", "jpeg_decode", "resize")
)
def run(
    tasks: Tasks,
    out: options.Out,
    teacher: Teacher,
    buffer: Buffer = None,
    views: Views = None,
    preset: Preset = None,
    *,
    batch_size: BatchSize = 256,
    num_shards: NumShards = 1,
    shard_index: ShardIndex = 0,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    workers: options.Workers = None,
    nproc: options.Nproc = None,
    threads: options.Threads = options.DEFAULT_THREADS,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    **augmentation: Any,
) -> None:
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
    options.start(quiet=quiet, threads=threads)
    from vlcpctl.distributed.ranks import processes
    from vlcpctl.files.parts import parts_of
    from vlcpctl.precompute.compute_options import ComputeOptions
    from vlcpctl.precompute.distill_plan import DistillRequest, make_plan

    shard = parts_of(out, num_shards, shard_index, force=force and num_shards > 1)
    assert shard is not None
    request = DistillRequest(
        tasks=tuple(dict.fromkeys(tasks)),
        teacher=teacher,
        out=out,
        buffer=buffer,
        views=views,
        preset=preset,
        augmentation={name: one for name, one in augmentation.items() if one is not None},
        seed=seed,
    )
    compute = ComputeOptions(
        batch_size=batch_size,
        device=device,
        workers=workers,
        threads=threads,
        nproc=processes(nproc),
    )
    plan = make_plan(request)
    for line in plan.lines():
        say(line)
    say(f"  {compute}")
    if dry_run:
        return
    if _make_targets(plan, compute, shard, force=force):
        emit(_result(out) if as_json else out)


def _make_targets(plan: DistillPlan, compute: ComputeOptions, shard: Parts, *, force: bool) -> bool:
    """Whether the directory is complete now; otherwise other shards are still missing."""
    from vlcpctl.files.finished import already_made
    from vlcpctl.files.parts import drop_parts

    out = plan.request.out
    if already_made(out, "targets", plan.identity, force=force):
        say(f"distill: {out} is already finished")
        drop_parts(out)
        return True
    from vlcpctl.precompute.distill import distill

    started = time.monotonic()
    is_complete = distill(plan, compute, shard, force=force)
    if is_complete:
        say(f"distill: {_summary(out, time.monotonic() - started)}")
    return is_complete


def _summary(out: Path, seconds: float) -> str:
    """What the targets contain and how long this command computed, in one line."""
    from vlcpctl.core.words import counted, duration
    from vlcpctl.files.manifest import read_manifest

    manifest = read_manifest(out, "targets")
    pairs = f"{counted(manifest['pairs'], 'pair')} in {counted(manifest['views'], 'view')}"
    return f"{pairs}, {manifest['width']} channels, in {duration(seconds)}"


def _result(out: Path) -> str:
    from vlcpctl.files.manifest import read_manifest

    manifest = read_manifest(out, "targets")
    names = ("content", "pairs", "views", "width")
    return json.dumps({"path": str(out), **{name: manifest[name] for name in names}})

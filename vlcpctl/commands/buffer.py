"""`vlcpctl buffer`: choose which pairs of a task to keep for replay."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vlcpctl.commands import options
from vlcpctl.core.console import emit, say, warn
from vlcpctl.core.errors import BadInput, UsageError

if TYPE_CHECKING:
    import numpy as np

    from vlcpctl.data.buffer import size as buffer_size
    from vlcpctl.data.precomputed.stored_features import StoredProjections
    from vlcpctl.data.tasks.task import Split, Task
    from vlcpctl.distributed.pool import Pool
    from vlcpctl.models.encoders import Encoder
    from vlcpctl.precompute.pair_features import Results

Previous = Annotated[
    Path | None,
    typer.Option(
        "--previous",
        metavar="DIR",
        help="Buffer of the earlier tasks; it is not changed (default: start with an empty one).",
        rich_help_panel=options.INPUT,
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="Checkpoint that computes the features, for herding, kmeans and --store-features "
        "(default: none).",
        rich_help_panel=options.INPUT,
    ),
]
StoreFeatures = Annotated[
    bool,
    typer.Option(
        "--store-features",
        help="Store the projections of new pairs, computed by --checkpoint; the methods der and "
        "derpp need them.",
        rich_help_panel=options.DATA,
    ),
]
Policy = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="Rule that chooses pairs: reservoir, ring, herding, kmeans or random.",
        rich_help_panel=options.METHOD,
    ),
]
Variant = Annotated[
    str,
    typer.Option(
        "--variant",
        metavar="NAME",
        help="Details of the policy: paper, or ctp to match the CTP authors' code.",
        rich_help_panel=options.METHOD,
    ),
]
Size = Annotated[
    str | None,
    typer.Option(
        "--size",
        metavar="N|P%",
        help="Size of the buffer: a number of images (10000), or a share of each task (5%); "
        "required unless --add is given.",
        rich_help_panel=options.METHOD,
    ),
]
Of = Annotated[
    str | None,
    typer.Option(
        "--of",
        metavar="N|stream",
        help="Total that a percentage --size refers to: a number of images, or the whole stream "
        "(default: each task).",
        rich_help_panel=options.METHOD,
    ),
]
Add = Annotated[
    int | None,
    typer.Option(
        "--add",
        min=1,
        metavar="N",
        help="Append N random images of the task and evict none, with --policy random; replaces "
        "--size.",
        rich_help_panel=options.METHOD,
    ),
]

Candidates = Annotated[
    int | None,
    typer.Option(
        "--candidates",
        min=1,
        metavar="N",
        help="Number of images that herding and kmeans choose from, drawn at random (default: "
        "50000, or 5 times as many as they keep; more than 300000 only by this option).",
        rich_help_panel=options.METHOD,
    ),
]


def run(
    task: Annotated[
        Path,
        typer.Argument(metavar="TASK", help="Task directory that the model was just trained on."),
    ],
    out: options.Out,
    previous: Previous = None,
    checkpoint: Checkpoint = None,
    policy: Policy = "reservoir",
    variant: Variant = "paper",
    size: Size = None,
    of: Of = None,
    add: Add = None,
    candidates: Candidates = None,
    store_features: StoreFeatures = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    nproc: options.Nproc = None,
    threads: options.Threads = options.DEFAULT_THREADS,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    r"""Choose which pairs of a task to keep for replay, in addition to earlier ones.

    The result is a task directory that contains its images, so the old task can be deleted.
    Policies:

      reservoir  uniform sample of all pairs so far, whatever the order of tasks
      ring       same number of pairs from each task
      herding    from each task, pairs that preserve its mean feature (MoF)
      kmeans     from each task, pairs nearest to the centres of its clusters
      random     from each task, random pairs

    herding, kmeans and random divide the buffer among the tasks in proportion to their sizes;
    with --add, random appends pairs of every task instead. Of a task, herding and kmeans choose
    among at most 50,000 images (or 5 times as many as they keep, if that is more; --candidates sets
    it), because their time grows with the product of both numbers: from a larger task a random
    sample is drawn first, and a warning says so.

    --variant ctp reproduces the CTP authors' code for reservoir, herding and kmeans: each quota is
    rounded on its own, so the buffer can be slightly larger than --size; of an earlier task, the
    items that come first in the data set are kept; the reservoir draws from Python's random
    generator (the authors' code corresponds to --seed 42).

    --store-features stores the raw projections of each new image and of all its captions, in half
    precision. Earlier items keep the projections of the checkpoint that added them.

    Examples:
      vlcpctl buffer stream/00-smileys -o buffer/00 --policy reservoir --size 500
      vlcpctl buffer stream/01-people -o buffer/01 --previous buffer/00 \
          --policy reservoir --size 500
      vlcpctl buffer stream/00-smileys -o mof/00 --policy herding --size 5% \
          --checkpoint run/00
    """
    options.start(quiet=quiet, threads=threads)
    from vlcpctl.data.buffer.manifest import BufferRequest
    from vlcpctl.data.buffer.update import open_buffer, plan_update, write_buffer
    from vlcpctl.files.finished import already_made
    from vlcpctl.files.manifest import content_of

    model = _Model(checkpoint, device, _processes(nproc, checkpoint))
    new, size_ = _check_options(task, checkpoint, policy, variant, (size, of, add), store_features)
    request = BufferRequest(
        task=new,
        previous=open_buffer(previous) if previous else None,
        policy=policy,
        variant=variant,
        size=size_,
        seed=seed,
        checkpoint=content_of(checkpoint, "checkpoint") if checkpoint else None,
        stores_features=store_features,
        candidates=candidates,
    )
    if already_made(out, "task", request.identity(), force=force):
        say(f"buffer: {out} is already finished")
    else:
        plan = plan_update(request)
        say(f"buffer: {plan}")
        for warning in plan.warnings:
            warn(warning)
        if dry_run:
            return
        with model.pool() as pool:
            features, project = partial(_embed, model, pool), partial(_project, model, pool)
            write_buffer(out, request, plan, features, project)
        say(f"buffer: {_summary(out, sum(plan.seen.values()))}")
    emit(_result(out) if as_json else out)


@dataclass(frozen=True)
class _Model:
    """The checkpoint that computes features, if one does, and how it is run."""

    checkpoint: Path | None
    device: str
    nproc: int

    def pool(self) -> AbstractContextManager[Pool]:
        """The processes that run it."""
        from vlcpctl.distributed.pool import pool_of
        from vlcpctl.models.imports import preload

        return pool_of(self.nproc if self.checkpoint else 1, self.device, preload)

    def loaded(self, pool: Pool) -> tuple[Encoder, Results]:
        """The model, and the processes that give its results."""
        from vlcpctl.models.encoders import SavedEncoder

        assert self.checkpoint is not None, "check_policy requires --checkpoint"
        source = SavedEncoder(self.checkpoint)
        encoder = pool.load(source, self.device)
        return encoder, partial(pool.results, source, encoder)


def _check_options(
    task: Path,
    checkpoint: Path | None,
    policy: str,
    variant: str,
    sizes: tuple[str | None, str | None, int | None],
    store_features: bool,
) -> tuple[Task, buffer_size.BufferSize]:
    """The task and the size, after checking that the options are consistent."""
    from vlcpctl.data.buffer.policies import check_policy, check_variant
    from vlcpctl.data.buffer.size import parse_size
    from vlcpctl.data.tasks.task import open_task

    check_policy(
        policy,
        adds=sizes[2] is not None,
        has_checkpoint=checkpoint is not None,
        stores_features=store_features,
    )
    new = open_task(task)
    wanted = parse_size(*sizes, new)
    check_variant(variant, policy, wanted)
    if new.manifest.buffer is not None:
        raise BadInput(f"{task} is a buffer; give a task, and pass the buffer with --previous")
    return new, wanted


def _processes(nproc: int | None, checkpoint: Path | None) -> int:
    """The number of processes that compute features."""
    from vlcpctl.distributed.ranks import processes

    if nproc and checkpoint is None:
        raise UsageError(
            f"--nproc {nproc} has no effect without --checkpoint: "
            "only a model runs in several processes"
        )
    return processes(nproc)


def _embed(model: _Model, pool: Pool, split: Split, rows: np.ndarray) -> np.ndarray:
    """Features (N, D) of rows of a split; called only by herding and kmeans."""
    from vlcpctl.models.embed import require_finite
    from vlcpctl.precompute.pair_features import pair_features

    encoder, results = model.loaded(pool)
    features = pair_features(encoder, split, rows, results)
    require_finite(features, _named(model, split))
    return features


def _project(model: _Model, pool: Pool, split: Split, rows: np.ndarray) -> StoredProjections:
    """Raw projections of rows of a split, to store beside them."""
    from vlcpctl.files.manifest import content_of
    from vlcpctl.models.embed import require_finite
    from vlcpctl.precompute.pair_features import raw_projections

    encoder, results = model.loaded(pool)
    assert model.checkpoint is not None
    maker = content_of(model.checkpoint, "checkpoint")
    found = raw_projections(encoder, split, rows, maker, results)
    for side in (found.image_ND, found.text_TD):
        require_finite(side, f"{_named(model, split)}, at half precision")
    return found


def _named(model: _Model, split: Split) -> str:
    return f"{model.checkpoint} on {split.directory}"


def _summary(out: Path, seen: int) -> str:
    """What was kept of the images seen so far, and its size, in one line."""
    from vlcpctl.core.words import size
    from vlcpctl.data.tasks.task import open_task

    buffer = open_task(out)
    split = buffer.manifest.splits["train"]
    projections = " with projections" if buffer.buffer.features else ""
    return f"{split.images} of {seen} images kept{projections}, {size(split.bytes)}"


def _result(out: Path) -> str:
    from dataclasses import asdict

    from vlcpctl.data.buffer.manifest import BUFFER_NAME
    from vlcpctl.data.tasks.task import open_task

    buffer = open_task(out)
    split = buffer.manifest.splits["train"]
    fields = {name: getattr(split, name) for name in ("images", "captions", "bytes")}
    return json.dumps(
        {
            "path": str(out),
            "content": buffer.content,
            **fields,
            BUFFER_NAME: asdict(buffer.buffer),
        },
        ensure_ascii=False,
    )

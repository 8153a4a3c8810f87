"""`vlcpctl buffer`: choose which pairs of a task to keep for replay."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vlcpctl.commands.shared import Computed, Planned, Stored
from vlcpctl.core.console import emit, say, warn
from vlcpctl.core.errors import BadInput
from vlcpctl.core.options import (
    DATA,
    INPUT,
    METHOD,
    MaybeAmount,
    MaybePath,
    OnePath,
    argument,
    like,
    option,
    switch,
)

if TYPE_CHECKING:
    import numpy as np

    from vlcpctl.data.buffer.policies import BufferSize
    from vlcpctl.data.precomputed.features import StoredProjections
    from vlcpctl.data.tasks.task import Split, Task
    from vlcpctl.distributed.pool import Pool
    from vlcpctl.models.encoders import Encoder
    from vlcpctl.precompute.pair_features import Results


class Buffer(Planned, Computed, Stored):
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

    task: OnePath = argument(
        "TASK", "Task directory that the model was just trained on", kw_only=False, stored=True
    )
    previous: MaybePath = option(
        "Buffer of the earlier tasks; it is not changed",
        "DIR",
        INPUT,
        otherwise="start with an empty one",
        usual=True,
    )
    checkpoint: MaybePath = option(
        "Checkpoint that computes the features, for herding, kmeans and --store-features",
        "DIR",
        INPUT,
        usual=True,
    )
    policy: str = option(
        "Rule that chooses pairs: reservoir, ring, herding, kmeans or random",
        "NAME",
        METHOD,
        default="reservoir",
        choices=("reservoir", "ring", "herding", "kmeans", "random"),
        usual=True,
    )
    variant: str = option(
        "Details of the policy: paper, or ctp to match the CTP authors' code",
        "NAME",
        METHOD,
        default="paper",
        choices=("paper", "ctp"),
    )
    size: MaybeAmount = option(
        "Size of the buffer: a number of images (10000), or a share of each task (5%); required "
        "unless --add is given",
        "N|P%",
        METHOD,
        usual=True,
    )
    of: MaybeAmount = option(
        "Total that a percentage --size refers to: a number of images, or the whole stream",
        "N|stream",
        METHOD,
        otherwise="each task",
    )
    add: int | None = option(
        "Append N random images of the task and evict none, with --policy random; replaces --size",
        "N",
        METHOD,
        within="[1, inf)",
    )
    candidates: int | None = option(
        "Number of images that herding and kmeans choose from, drawn at random",
        "N",
        METHOD,
        otherwise="50000, or 5 times as many as they keep; more than 300000 only by this option",
        within="[1, inf)",
    )
    store_features: bool = switch(
        "Store the projections of new pairs, computed by --checkpoint; the methods der and "
        "derpp need them",
        DATA,
        usual=True,
    )

    nproc: int | None = like(
        Computed,
        "nproc",
        default=None,
        goes_with=("checkpoint", None, "only a model runs in several processes"),
    )

    def execute(self) -> None:
        from vlcpctl.data.buffer.request import BufferRequest
        from vlcpctl.data.buffer.update import open_buffer, plan_update, write_buffer
        from vlcpctl.files.finished import already_made
        from vlcpctl.files.manifest import content_of

        task, size = self._checked()
        request = BufferRequest(
            task=task,
            previous=open_buffer(self.previous) if self.previous else None,
            policy=self.policy,
            variant=self.variant,
            size=size,
            seed=self.seed,
            checkpoint=content_of(self.checkpoint, "checkpoint") if self.checkpoint else None,
            stores_features=self.store_features,
            candidates=self.candidates,
        )
        if already_made(self.out, "task", request.identity(), force=self.force):
            say(f"buffer: {self.out} is already finished")
        else:
            plan = plan_update(request)
            say(f"buffer: {plan}")
            for warning in plan.warnings:
                warn(warning)
            if self.dry_run:
                return
            with self._pool() as pool:
                features, project = partial(self._embed, pool), partial(self._project, pool)
                write_buffer(self.out, request, plan, features, project)
            say(f"buffer: {_summary(self.out, sum(plan.seen.values()))}")
        emit(_result(self.out) if self.json else self.out)

    def _checked(self) -> tuple[Task, BufferSize]:
        """The task and the size, after checking that the options are consistent."""
        from vlcpctl.data.buffer.policies import check_policy, check_variant, parse_size
        from vlcpctl.data.tasks.task import open_task

        check_policy(
            self.policy,
            adds=self.add is not None,
            has_checkpoint=self.checkpoint is not None,
            stores_features=self.store_features,
        )
        task = open_task(self.task)
        wanted = parse_size(self.size, self.of, self.add, task)
        check_variant(self.variant, self.policy, wanted)
        if task.manifest.buffer is not None:
            raise BadInput(f"{self.task} is a buffer; give a task, and pass it with --previous")
        return task, wanted

    def _pool(self) -> AbstractContextManager[Pool]:
        """The processes that run the model, if there is one."""
        from vlcpctl.distributed.pool import pool_of
        from vlcpctl.distributed.ranks import processes
        from vlcpctl.models.imports import preload

        return pool_of(processes(self.nproc) if self.checkpoint else 1, self.device, preload)

    def _loaded(self, pool: Pool) -> tuple[Encoder, Results]:
        """The model, and the processes that give its results."""
        from vlcpctl.models.encoders import SavedEncoder

        assert self.checkpoint is not None, "check_policy requires --checkpoint"
        source = SavedEncoder(self.checkpoint)
        encoder = pool.load(source, self.device)
        return encoder, partial(pool.results, source, encoder)

    def _embed(self, pool: Pool, split: Split, rows: np.ndarray) -> np.ndarray:
        """Features (N, D) of rows of a split; called only by herding and kmeans."""
        from vlcpctl.models.embed import require_finite
        from vlcpctl.precompute.pair_features import pair_features

        encoder, results = self._loaded(pool)
        features = pair_features(encoder, split, rows, results)
        require_finite(features, self._named(split))
        return features

    def _project(self, pool: Pool, split: Split, rows: np.ndarray) -> StoredProjections:
        """Raw projections of rows of a split, to store beside them."""
        from vlcpctl.files.manifest import content_of
        from vlcpctl.models.embed import require_finite
        from vlcpctl.precompute.pair_features import raw_projections

        encoder, results = self._loaded(pool)
        assert self.checkpoint is not None
        maker = content_of(self.checkpoint, "checkpoint")
        found = raw_projections(encoder, split, rows, maker, results)
        for side in (found.image_ND, found.text_TD):
            require_finite(side, f"{self._named(split)}, at half precision")
        return found

    def _named(self, split: Split) -> str:
        return f"{self.checkpoint} on {split.directory}"


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

    from vlcpctl.data.buffer.update import BUFFER_NAME
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

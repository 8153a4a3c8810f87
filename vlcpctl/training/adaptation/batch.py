"""The batch of a preset cut to data that are fewer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.data.loading.sampler import count_pairs, replayed_pairs
from vlcpctl.data.tasks.task import Task, open_task
from vlcpctl.training.config.request import TrainRequest
from vlcpctl.training.config.resolution import replay_share

_LEAST = 2  # pairs of a batch: the contrastive loss of one pair has no gradient


def with_batch(request: TrainRequest) -> TrainRequest:
    """The request with a batch that its data can fill, which is recorded as `asked` before.

    A batch size given as an option stays, and is refused later if it is too large. Raises BadInput
    if there are fewer than two pairs, UsageError if there are fewer pairs than processes, and what
    `open_task` raises.
    """
    if request.origins.get("batch_size") == "flag":
        return request
    tasks = [open_task(path) for path in request.tasks]
    # All pairs of the first task count, whatever the others repeat: for most data this decides, and
    # no index needs to be read.
    if _counted(tasks[0], request.limit) >= request.settings.batch_size:
        return request
    available = _available(request, tasks)
    if available.new(request.settings.batch_size) <= available.pairs:
        return request
    return _cut(request, available)


@dataclass(frozen=True)
class _Available:
    """The number of pairs to train on, of those replayed beside them, and these pairs' share."""

    pairs: int
    replayable: int
    share: float | None

    def new(self, size: int) -> int:
        """The number of new pairs in a batch of this size."""
        return size - replayed_pairs(size, self.share, self.replayable)

    def largest(self, most: int) -> int:
        """The size of the largest batch that can be made, at most this one; 0 if there is none."""
        sizes = range(most, 0, -1)
        return next((size for size in sizes if 0 < self.new(size) <= self.pairs), 0)


def _available(request: TrainRequest, tasks: list[Task]) -> _Available:
    for task in tasks:
        task.require("train")
    splits = [task.split("train") for task in tasks]
    share = replay_share(request.settings.replay)
    buffer = None
    if request.buffer is not None:
        held = open_task(request.buffer)
        held.require("train")
        buffer = held.split("train")
    return _Available(*count_pairs(splits, buffer, share, request.limit), share)


def _counted(task: Task, limit: int | None) -> int:
    count = int(task.counts.get("train", 0))
    return count if limit is None else min(count, limit)


def _cut(request: TrainRequest, available: _Available) -> TrainRequest:
    asked, most = request.settings.batch_size, available.largest(request.settings.batch_size)
    if most < _LEAST:
        raise BadInput(
            f"{request.tasks[0]} has too few pairs to train on ({available.pairs}): a contrastive "
            f"loss compares at least {_LEAST}; train on it together with other tasks, or a --buffer"
        )
    if most < request.nproc:
        raise UsageError(
            f"{available.pairs} pairs are too few for --nproc {request.nproc}; use at most {most}"
        )
    changes = _evenly(most, request.nproc, request.settings.micro_batch)
    size = changes["batch_size"]
    origin = request.origins.get("batch_size", "default")
    replayed = replayed_pairs(size, available.share, available.replayable)
    beside = f" with {replayed} replayed ones" if replayed else ""
    parts = f", in micro-batches of {changes['micro_batch']}" if "micro_batch" in changes else ""
    note = (
        f"batch size {asked} from {origin.split(',')[0]} is larger than the {available.pairs} "
        f"pairs{beside}; using {size}{parts}"
    )
    origins = {"batch_size": f"{origin}, cut from {asked}"}
    if parts:
        origins["micro_batch"] = f"flag, cut from {request.settings.micro_batch}"
    return replace(
        request,
        settings=replace(request.settings, **changes),
        origins={**request.origins, **origins},
        notes=(*request.notes, note),
        asked={**request.asked, "batch_size": asked},
    )


def _evenly(most: int, processes: int, micro_batch: int | None) -> dict[str, Any]:
    """The batch size, at most `most`, and a micro-batch if there is one, that leave no rest.

    The micro-batch is at most as large as before, for the memory, and the batch loses as few pairs
    as possible: each process encodes its part in equal chunks.
    """
    local = most // processes
    if micro_batch is None:
        return {"batch_size": local * processes}
    chunks = -(-local // micro_batch)
    size = local // chunks
    return {"batch_size": size * chunks * processes, "micro_batch": size}

"""A request with the settings that depend on its data, its device and the previous checkpoint.

Torch-free on CPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.model_facts import LEARNED, model_facts
from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.core.machine import is_gpu
from vlcpctl.data.loading.replay import replayed_pairs
from vlcpctl.data.loading.sampler import count_pairs
from vlcpctl.data.tasks.task import Task, open_task
from vlcpctl.files.digests import file_sha256
from vlcpctl.models.configuration import configuration_here, has_logit_bias, is_missing_file
from vlcpctl.training.config.request import TrainRequest
from vlcpctl.training.config.resolution import parse_replay
from vlcpctl.training.config.settings import (
    OF_ITS_MODEL,
    OF_MODEL,
    PREVIOUS,
    SIGMOID,
    SOFTMAX,
    Settings,
)

_LEAST = 2  # pairs of a batch: the contrastive loss of one pair has no gradient


def adapted(request: TrainRequest) -> TrainRequest:
    """The request as it is planned, run and recorded; an adapted one stays as it is.

    Raises UsageError if no model or no batch follows from it, and BadInput if an input is not what
    its option needs.
    """
    return with_batch(with_precision(with_loss(with_model(request))))


def adapted_as_far_as_known(request: TrainRequest) -> TrainRequest:
    """The request to show, whose tasks and model need not exist yet.

    Raises BadInput if an input that does exist is not what its option needs.
    """
    if request.previous is not None:
        request = with_model(request)
    if request.model and not is_missing_file(request.model):
        request = with_loss(request)
    inputs = [*request.tasks, *([request.buffer] if request.buffer else [])]
    is_complete = all(path.exists() for path in inputs)
    return with_batch(with_precision(request)) if is_complete else with_precision(request)


def with_model(request: TrainRequest) -> TrainRequest:
    """The request with the settings of the model as they are in --previous.

    Options that --previous makes idle stay as given; they are refused later. Raises UsageError if
    there is neither a previous checkpoint nor a model, and BadInput if the checkpoint cannot be
    read.
    """
    if request.previous is None:
        _require_model(request)
        return request
    made = CheckpointManifest.read(request.previous)
    facts = model_facts(request.previous, made)
    facts = {name: facts["name" if name == "model" else name] for name in OF_MODEL}
    decided = [name for name in OF_MODEL if request.origins.get(name) != "flag"]
    values = {
        name: facts[name] for name in decided if not _agrees(name, request.settings, facts[name])
    }
    return replace(
        request,
        settings=replace(request.settings, **values),
        origins={**request.origins, **dict.fromkeys(decided, PREVIOUS)},
        inherited={name: facts[name] for name in decided},
    )


def with_loss(request: TrainRequest) -> TrainRequest:
    """The request with the loss that its model is made for, unless --loss is given.

    The configuration of a hub's model is not known before it is built: a softmax is assumed. What a
    preset says of a softmax alone does not hold with a sigmoid: the temperature, and the reduction.
    Raises BadInput for a path that is not a model.
    """
    settings, origins = request.settings, dict(request.origins)
    if settings.loss is None:
        dual = configuration_here(request.model)
        is_sigmoid = dual is not None and has_logit_bias(dual.model)
        settings = replace(settings, loss=SIGMOID if is_sigmoid else SOFTMAX)
        origins["loss"] = OF_ITS_MODEL
    if settings.loss == SOFTMAX:
        return replace(request, settings=settings, origins=origins)
    usual: dict[str, Any] = {"base_loss": Settings.base_loss}
    if request.previous is None:
        usual["temperature"] = None
    changes = {
        name: value
        for name, value in usual.items()
        if origins.get(name) != "flag" and getattr(settings, name) != value
    }
    notes = [
        f"{origins.get(name, 'default').partition(',')[0]}: --{name.replace('_', '-')} "
        f"{getattr(settings, name)} is for a softmax, and has no effect with a sigmoid loss"
        for name in changes
    ]
    return replace(
        request,
        settings=replace(settings, **changes),
        origins=origins | dict.fromkeys(changes, "sigmoid loss"),
        notes=(*request.notes, *notes),
    )


def _require_model(request: TrainRequest) -> None:
    if request.settings.model:
        return
    origins = [one for one in request.origins.values() if one.startswith("preset ")]
    raise UsageError(
        f"{origins[0].split(',')[0] if origins else 'the preset'} names no model; give --previous "
        "with a checkpoint ('vlcpctl import-checkpoint' makes one of a pretrained model), or "
        "--model"
    )


def _agrees(name: str, settings: Settings, fact: str | int | None) -> bool:
    """Whether a setting says nothing about the model that is not so."""
    # Settings that describe the model rightly stay as they are written: the identity of the run
    # contains them. None is "what the model has", except for its weights.
    value = getattr(settings, name)
    if value == fact or (value is None and name != "pretrained"):
        return True
    if name == "temperature" and fact == LEARNED:
        return str(value).startswith(LEARNED)
    is_file = name in {"model", "pretrained"} and value is not None and Path(value).is_file()
    return is_file and f"sha256:{file_sha256(value)}" == fact


def with_precision(request: TrainRequest) -> TrainRequest:
    """The request with `auto` replaced by the precision that its device has.

    Imports torch only where there is a GPU that could have bfloat16.
    """
    if request.settings.precision != "auto":
        return request
    precision = "fp32"
    if is_gpu(request.device):
        import torch

        # Emulated, it would be slower than fp32.
        is_native = torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bf16" if is_native else "fp32"
    return replace(request, settings=replace(request.settings, precision=precision))


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
    images = int(tasks[0].counts.get("train", 0))
    if min(images, request.limit or images) >= request.settings.batch_size:
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
    replay = parse_replay(request.settings.replay)
    buffer = None
    if request.buffer is not None:
        held = open_task(request.buffer)
        held.require("train")
        buffer = held.split("train")
    return _Available(*count_pairs(splits, buffer, replay, request.limit))


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

"""A request with the settings that depend on its previous checkpoint, its device and its data.

Torch-free on CPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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
from vlcpctl.models.configuration import (
    find_configuration,
    fusion_configuration,
    has_logit_bias,
    is_missing_file,
    is_of_a_hub,
)
from vlcpctl.training.presets import parse_replay
from vlcpctl.training.request import Inputs, TrainRequest
from vlcpctl.training.settings import (
    OF_ITS_MODEL,
    OF_MODEL,
    PREVIOUS,
    SIGMOID,
    SOFTMAX,
    Settings,
)

_LEAST = 2  # pairs of a batch: the contrastive loss of one pair has no gradient


def adapted(request: TrainRequest, inputs: Inputs) -> TrainRequest:
    """The request as it is planned, run and recorded; an adapted one stays as it is.

    Raises UsageError if no model or no batch follows from it, and BadInput if an input is not what
    its option needs.
    """
    request = _with_precision(_with_loss(_with_model(request, inputs.previous)))
    return _with_batch(request, inputs.tasks, inputs.buffer)


def adapted_as_far_as_known(request: TrainRequest) -> TrainRequest:
    """The request to show, whose tasks and model need not exist yet; raises as `adapted` does."""
    if request.previous is not None:
        request = _with_model(request, CheckpointManifest.read(request.previous))
    if request.model and not is_missing_file(request.model):
        request = _with_loss(request)
    request = _with_precision(request)
    if not all(path.exists() for path in (*request.tasks, request.buffer) if path):
        return request
    buffer = open_task(request.buffer) if request.buffer else None
    return _with_batch(request, [*map(open_task, request.tasks)], buffer)


def _with_model(request: TrainRequest, previous: CheckpointManifest | None) -> TrainRequest:
    """With the settings of the model in --previous; options that it makes idle are refused later.

    Raises UsageError if there is neither a previous checkpoint nor a model.
    """
    settings, origins = request.settings, request.origins
    if request.previous is None or previous is None:
        if not settings.model:
            raise UsageError(
                "no model is given: use --model, or --previous with a checkpoint ('vlcpctl "
                "import-checkpoint' makes one from a pretrained model)"
            )
        return request
    facts = model_facts(request.previous, previous)
    facts |= {"model": facts["name"]}
    decided = {name: facts[name] for name in OF_MODEL if origins.get(name) != "flag"}
    other = {name: fact for name, fact in decided.items() if not _agrees(name, settings, fact)}
    return replace(
        request,
        settings=replace(settings, **other),
        origins={**origins, **dict.fromkeys(decided, PREVIOUS)},
        inherited=decided,
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


def _with_loss(request: TrainRequest) -> TrainRequest:
    """With the loss that the model is made for; that of a hub's, not known yet, is a softmax.

    What a preset says of a softmax alone does not hold with a sigmoid. Raises UsageError for an
    unknown model, and BadInput for a path that is not one.
    """
    settings, origins, model = request.settings, dict(request.origins), request.model
    is_known = not is_of_a_hub(model) and fusion_configuration(model) is None
    is_sigmoid = is_known and has_logit_bias(find_configuration(model).model)
    if settings.loss is None:
        settings = replace(settings, loss=SIGMOID if is_sigmoid else SOFTMAX)
        origins["loss"] = OF_ITS_MODEL
    usual: dict[str, Any] = {"base_loss": Settings.base_loss}
    if request.previous is None:
        usual["temperature"] = None
    for name, value in usual.items() if settings.loss == SIGMOID else ():
        if origins.get(name) != "flag" and getattr(settings, name) != value:
            settings, origins[name] = replace(settings, **{name: value}), "sigmoid loss"
    return replace(request, settings=settings, origins=origins)


def _with_precision(request: TrainRequest) -> TrainRequest:
    """With the precision that the device has for `auto`; imports torch only on a GPU."""
    if request.settings.precision != "auto":
        return request
    precision = "fp32"
    if is_gpu(request.device):
        import torch

        # Emulated, it would be slower than fp32.
        is_native = torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bf16" if is_native else "fp32"
    return replace(request, settings=replace(request.settings, precision=precision))


def _with_batch(request: TrainRequest, tasks: Sequence[Task], buffer: Task | None) -> TrainRequest:
    """With a batch that the data can fill, and `asked` before; one given as an option stays.

    Raises BadInput if there are fewer than two pairs, and UsageError if there are fewer than
    processes.
    """
    settings, origins = request.settings, dict(request.origins)
    asked = settings.batch_size
    if origins.get("batch_size") == "flag":
        return request
    # All pairs of the first task count, whatever the others repeat: for most data this decides, and
    # no index needs to be read.
    images = int(tasks[0].counts.get("train", 0))
    if min(images, request.limit or images) >= asked:
        return request
    splits = [task.split("train") for task in tasks]
    held = buffer.split("train") if buffer else None
    replay = parse_replay(settings.replay)
    pairs, replayable, share = count_pairs(splits, held, replay, request.limit)
    new = {size: size - replayed_pairs(size, share, replayable) for size in range(1, asked + 1)}
    if new[asked] <= pairs:
        return request
    most = max((size for size, count in new.items() if 0 < count <= pairs), default=0)
    if most < _LEAST:
        raise BadInput(
            f"{tasks[0].path} has too few pairs to train on ({pairs}): a contrastive loss "
            f"compares at least {_LEAST}; train on it together with other tasks, or a --buffer"
        )
    if most < request.nproc:
        raise UsageError(
            f"{pairs} pairs are too few for --nproc {request.nproc}; use at most {most}"
        )
    size, chunk = cut(most, settings.micro_batch, request.nproc)
    changes: dict[str, Any] = {"batch_size": size}
    origin = origins.get("batch_size", "default")
    origins["batch_size"] = f"{origin}, cut from {asked}"
    if settings.micro_batch is not None:
        changes["micro_batch"] = chunk
        origins["micro_batch"] = f"flag, cut from {settings.micro_batch}"
    note = (
        f"batch size {asked} from {origin.split(',')[0]} is larger than the {pairs} pairs; "
        f"using {size}"
    )
    return replace(
        request,
        settings=replace(settings, **changes),
        origins=origins,
        notes=(*request.notes, note),
        asked={**request.asked, "batch_size": asked},
    )


def cut(most: int, micro: int | None, processes: int) -> tuple[int, int]:
    """A batch of at most `most` pairs, and its micro-batches of at most `micro`, without a rest.

    Each process encodes its part in equal chunks: at most as large as before, for the memory, and
    the batch loses as few pairs as possible.

    >>> cut(11, None, 2), cut(11, 4, 2)
    ((10, 5), (8, 2))
    """
    local = most // processes
    chunks = 1 if micro is None else -(-local // micro)
    chunk = local // chunks
    return chunk * chunks * processes, chunk

"""What a run would refuse after importing torch, found by a dry run without it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from vlcpctl.core.amounts import size
from vlcpctl.core.errors import Incompatible, UsageError, unknown_name
from vlcpctl.models.checkpoint_files import WEIGHT_SUFFIXES
from vlcpctl.models.configuration import find_configuration, fusion_configuration, is_of_a_hub
from vlcpctl.models.in_words import weights_of
from vlcpctl.models.tags import known_tags
from vlcpctl.training.config.request import TrainRequest

_BYTES = 4  # of a weight
_COPIES = 4  # the checkpoint, and in a saved state the weights and AdamW's two averages


def require_possible(request: TrainRequest) -> None:
    """Raise what a run would for its device, its model and its file of weights.

    torch is imported only for a device that is named. Whether what a hub has can be downloaded is
    not looked up.
    """
    if request.device not in {"auto", "cpu"}:
        from vlcpctl.core.devices import torch_device

        torch_device(request.device)
    model, pretrained = request.settings.model, request.settings.pretrained
    if request.previous is not None or model is None:
        return
    if not is_of_a_hub(model) and fusion_configuration(model) is None:
        find_configuration(model)
    if pretrained and Path(pretrained).suffix in WEIGHT_SUFFIXES and not Path(pretrained).exists():
        raise Incompatible(f"cannot read {pretrained}: it does not exist")
    tags = known_tags(model) if _is_tag(model, pretrained) else None
    if tags is not None and pretrained not in tags:
        what = f"--pretrained {pretrained!r} is not a file"
        if not tags:
            raise UsageError(f"{what}, and open_clip has no weights for the model {model}")
        raise UsageError(f"{what}; {unknown_name(f'tag of {model}', str(pretrained), tags)}")


def _is_tag(model: str, pretrained: str | None) -> bool:
    """Whether weights are named by a tag of open_clip: neither a file nor parts of a model."""
    if pretrained in (None, "none") or "=" in str(pretrained) or Path(str(pretrained)).exists():
        return False
    is_fusion = fusion_configuration(model) is not None
    return not is_fusion and not is_of_a_hub(model)


def disk_warnings(request: TrainRequest) -> Iterator[str]:
    """A warning if the disk has less than the checkpoint and a saved state take at least."""
    count = weights_of(str(request.previous or request.settings.model))
    place = next(one for one in (request.out, *request.out.absolute().parents) if one.is_dir())
    free = shutil.disk_usage(place).free
    needed = int((count or 0) * _BYTES * _COPIES)
    if needed > free:
        yield (
            f"the checkpoint and a saved state take at least {size(needed)}, and {place} has "
            f"{size(free)} free"
        )

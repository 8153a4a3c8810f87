"""What a run would refuse after importing torch, found by a dry run without it."""

from __future__ import annotations

from pathlib import Path

from vlcpctl.core.errors import Incompatible
from vlcpctl.models.checkpoint_files import WEIGHT_SUFFIXES
from vlcpctl.models.configuration import find_configuration, fusion_configuration, is_of_a_hub
from vlcpctl.training.config.request import TrainRequest


def require_possible(request: TrainRequest) -> None:
    """Raise what a run would for its device, its model and its file of weights.

    torch is imported only for a device that is named. Whether open_clip has a tag of pretrained
    weights, and a hub what is to be downloaded, is not looked up.
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

"""What the configuration of a model says of its training: refusals, and a note. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vlcpctl.core.errors import UsageError
from vlcpctl.models.configuration import (
    configuration_here,
    fusion_configuration,
    has_logit_bias,
    is_of_a_hub,
)
from vlcpctl.training.config.request import TrainRequest
from vlcpctl.training.config.settings import SIGMOID


def check_model(request: TrainRequest) -> None:
    """Raise UsageError for a model without weights of its own, or one that --loss does not fit.

    Raises BadInput for a path that is not a model.
    """
    model, pretrained = request.model, request.settings.pretrained
    if request.previous is None and is_of_a_hub(model) and pretrained in (None, "none"):
        raise UsageError(
            f"--model {model} has the architecture of that model and random weights; download its "
            "directory ('hf download'), convert it with 'vlcpctl import-checkpoint DIR -o CKPT' "
            "and give --previous CKPT, or give its weights with --pretrained FILE"
        )
    if request.settings.loss == SIGMOID and fusion_configuration(model) is not None:
        raise UsageError(
            f"--loss sigmoid is for dual encoders: {model} is a fusion model, whose similarities "
            "have no bias"
        )


def require_known_loss(request: TrainRequest, config: Mapping[str, Any]) -> None:
    """Raise UsageError for a model of a hub that turns out to be made for a sigmoid loss."""
    if has_logit_bias(config) and request.settings.loss != SIGMOID:
        raise UsageError(
            f"{request.model} is made for a sigmoid loss (its configuration has init_logit_bias), "
            "which is known only now; give --loss sigmoid, or --loss softmax to train it without "
            "the bias"
        )


def batch_norm_notes(request: TrainRequest) -> Iterator[str]:
    """A note about the images over which batch norms normalise, if a batch is encoded in parts."""
    batch = request.settings.batch_size
    part = batch // request.nproc
    part = min(request.settings.micro_batch or part, part)
    dual = configuration_here(request.model) if part < batch else None
    vision = {} if dual is None else dual.model["vision_cfg"]
    timm = vision.get("timm_model_name")
    # open_clip's ResNets have batch norms; of timm's encoders some do.
    if timm or isinstance(vision.get("layers"), list):
        which = f"batch norms, if {timm} has any," if timm else "batch norms"
        yield f"{which} normalise over the images encoded at once ({part}), not the batch ({batch})"

"""What the configuration of a model says of its training: refusals, and a note. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.models.configuration import configuration_here, is_of_a_hub
from vlcpctl.training.config.request import TrainRequest


def check_model(request: TrainRequest) -> None:
    """Raise UsageError or Incompatible for a model that cannot be trained as it was made.

    The configuration of a hub's model is not known before it is built. Raises BadInput for a path
    that is not a model.
    """
    model, pretrained = request.model, request.settings.pretrained
    if request.previous is None and is_of_a_hub(model) and pretrained in (None, "none"):
        raise UsageError(
            f"--model {model} has the architecture of that model and random weights; download its "
            "directory ('hf download'), convert it with 'vlcpctl import-checkpoint DIR -o CKPT' "
            "and give --previous CKPT, or give its weights with --pretrained FILE"
        )
    dual = configuration_here(model)
    if dual is not None:
        refuse_sigmoid(model, dual.model)


def refuse_sigmoid(model: str, config: Mapping[str, Any]) -> None:
    """Raise Incompatible for a model that was made for a sigmoid loss, by its configuration."""
    # Its bias would stay as it is, and its temperature was learned for another loss.
    if config.get("init_logit_bias") is not None:
        raise Incompatible(
            f"{model} is made for a sigmoid loss (its configuration has init_logit_bias), and "
            "train-step has a softmax alone; evaluations take it, and train-step takes models "
            "without the bias, such as ViT-B-32"
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

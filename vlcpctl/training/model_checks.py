"""What the configuration of a model says of its training, for the plan. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator

from vlcpctl.models.configuration import configuration_here
from vlcpctl.training.config.request import Request


def batch_norm_notes(request: Request) -> Iterator[str]:
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

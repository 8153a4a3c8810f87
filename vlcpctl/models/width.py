"""The width of a model's shared space, from its configuration alone. Torch-free."""

from __future__ import annotations

from vlcpctl.models.configuration import configuration_here, fusion_configuration


def shared_width(model: str) -> int | None:
    """D, the channels of the shared space, of a model given as a path or by name.

    None where it is not known without loading the model, as for the names of a hub. Raises BadInput
    for a path that is not a model.
    """
    fusion = fusion_configuration(model)
    if fusion is not None:
        return fusion.embed_dim
    dual = configuration_here(model)
    return None if dual is None else int(dual.model["embed_dim"])

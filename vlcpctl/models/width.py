"""The width of a model's shared space, from its configuration alone. Torch-free."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from vlcpctl.core.fields import Fields
from vlcpctl.core.safe_json import read_json_object
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
    if dual is not None:
        return int(dual.model["embed_dim"])
    return _of_open_clip(model)


def _of_open_clip(model: str) -> int | None:
    library = find_spec("open_clip")  # finds it without importing it, which takes seconds
    for place in list(library.submodule_search_locations or ()) if library is not None else ():
        file = Path(place) / "model_configs" / f"{model}.json"
        if file.name == f"{model}.json" and file.is_file():
            return int(Fields(read_json_object(file), file)("embed_dim", int))
    return None

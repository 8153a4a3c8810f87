"""Models of other programs, named or given in place of what can be imported. Torch-free."""

from __future__ import annotations

import re
from pathlib import Path

from vlcpctl.core.errors import BadInput, missing
from vlcpctl.files.inputs import read_json
from vlcpctl.models.configuration import CONFIG_FILE

OPEN_CLIP = "open_clip:"  # open_clip:MODEL,TAG or open_clip:MODEL,FILE, for import-checkpoint

_ADAPTER = "adapter_config.json"
_OF_A_HUB = re.compile(r"hf-hub:.*|[\w.-]+/[\w.-]*(clip|vit)[\w.-]*", re.IGNORECASE)


def missing_model(path: Path) -> str:
    """The message for a model at a path at which nothing is: it may be a name on a hub."""
    if path.parent.exists() or not _OF_A_HUB.fullmatch(str(path)):
        return missing(path)
    return (
        f"{path} does not exist; download a model of a hub first: 'vlcpctl import-checkpoint DIR "
        f"-o start' reads its directory, or {OPEN_CLIP}MODEL,TAG"
    )


def refuse_other_models(path: Path) -> None:
    """Raise BadInput for an adapter, and for a model that transformers has saved."""
    if (path / CONFIG_FILE).is_file():
        return
    if (path / _ADAPTER).is_file() or path.name.startswith("adapter_model."):
        raise BadInput(
            f"{path} is an adapter; merge it into its model first, and import that with 'vlcpctl "
            "import-checkpoint'"
        )
    config = path / "config.json"
    found = read_json(config) if config.is_file() else None
    if isinstance(found, dict) and "model_type" in found and "family" not in found:
        raise BadInput(
            f"{path} is a model of transformers, whose tensors have other names; give 'vlcpctl "
            f"import-checkpoint' the same model as {OPEN_CLIP}MODEL,TAG, or a directory with "
            f"{CONFIG_FILE}"
        )

"""What the model of a checkpoint is: its architecture and shape, and where its weights come from.

Facts are recorded in the manifest. For checkpoints of earlier versions they are read from the files
of the model, without torch.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput
from vlcpctl.core.fields import Fields
from vlcpctl.core.hashing import canonical_json
from vlcpctl.core.manifest import MANIFESTS
from vlcpctl.core.safe_json import read_json_object
from vlcpctl.core.staging import read_path
from vlcpctl.models.configuration import (
    PACKAGED,
    fusion_configuration,
    read_checkpoint_configuration,
    transform_of,
)

if TYPE_CHECKING:
    from vlcpctl.models.encoders import Encoder

# See `model_facts` for the names.
Facts = dict[str, Any]

LEARNED = "learn"  # a learned temperature: its value is among the weights, and changes with them

_TEXTS, _NUMBERS = ("family", "temperature"), ("text_length", "image_size")
_OPTIONAL = ("name", "pretrained", "heads")
_WEIGHTS = {"dual": "open_clip_model.safetensors", "fusion": "model.safetensors"}
_USUAL_LENGTH = 77  # open_clip's, for a configuration without one

# What options of a new model, the tokenizer's place and pretrained weights change in its
# configuration: the same architecture may have other values.
_VARIES = {
    "text_cfg": ("context_length", "hf_tokenizer_name", "hf_model_name", "tokenizer", "vocab_size"),
    "vision_cfg": ("image_size",),
    "image_cfg": ("image_size",),
}


def facts_of_encoder(encoder: Encoder, name: str | None, pretrained: str | None) -> Facts:
    """The facts about a model in memory, as its manifest records them.

    `name` is the architecture as --model takes it, or sha256:... of a JSON file; None if it is not
    known. `pretrained` is the source of the weights that its first training started from.
    """
    scale = encoder.weights()["logit_scale"]
    return _facts(
        encoder.config,
        family=encoder.family,
        name=name,
        pretrained=pretrained,
        image_size=encoder.transform.image_size,
        temperature=LEARNED if scale.requires_grad else _fixed(float(scale.detach())),
    )


def model_facts(checkpoint: Path, made: CheckpointManifest) -> Facts:
    """The facts about the model of a checkpoint; `made` is its manifest.

    They are `name` (the architecture), `pretrained` (the source of its first weights), `family`,
    `text_length` (tokens), `image_size` (pixels), `temperature` ("learn" or "fixed:X") and `heads`,
    as far as they are known. Raises BadInput if the manifest or the configuration cannot be read.
    """
    if made.model is None:
        return _read(checkpoint, made)
    take = Fields(made.model, f"{checkpoint / MANIFESTS['checkpoint']}, field 'model'")
    facts: Facts = {name: take(name, str, None) for name in _OPTIONAL}
    facts |= {name: take(name, str) for name in _TEXTS}
    return {**facts, **{name: take(name, int) for name in _NUMBERS}}


def _read(checkpoint: Path, made: CheckpointManifest) -> Facts:
    place = read_path(checkpoint)
    fusion = fusion_configuration(str(place))
    if fusion is not None:
        config, family, size = fusion.stored(), "fusion", fusion.image_cfg.image_size
        learns = fusion.learns_temperature
    else:
        dual = read_checkpoint_configuration(place)
        config, family, size = dual.model, "dual", transform_of(dual).image_size
        learns = dual.learns_temperature
    name, pretrained = _claimed(made, config)
    return _facts(
        config,
        family=family,
        name=name,
        pretrained=pretrained,
        image_size=size,
        temperature=LEARNED if learns else _fixed(_log_scale(place / _WEIGHTS[family])),
    )


def _facts(config: Mapping[str, Any], **known: str | int | None) -> Facts:
    """The facts in the order of the manifest, with those of a model's configuration."""
    digest = hashlib.sha256(canonical_json(dict(config)).encode()).hexdigest()
    return {
        "name": known["name"] or f"sha256:{digest}",
        "pretrained": known["pretrained"],
        "family": known["family"],
        "text_length": config["text_cfg"].get("context_length", _USUAL_LENGTH),
        "image_size": known["image_size"],
        "temperature": known["temperature"],
        "heads": config.get("heads"),
    }


def _fixed(log_scale: float) -> str:
    return f"fixed:{math.exp(-log_scale):.6g}"


def _log_scale(file: Path) -> float:
    """The log of 1 / temperature in a file of weights. Raises BadInput if it cannot be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "numpy") as tensors:
            return float(tensors.get_tensor("logit_scale"))
    except (OSError, SafetensorError) as error:
        raise BadInput(f"cannot read the temperature in {file}: {error}") from error


def _claimed(made: CheckpointManifest, config: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Name and pretrained weights that a manifest of an earlier version says, where it is right.

    That of a step with --previous says what its preset would have chosen.
    """
    if made.origin is not None:
        name = made.identity.get("model")
        return (str(name) if name else None), f"sha256:{made.identity.get('imported')}"
    settings = made.identity.get("settings")
    if not isinstance(settings, dict):
        return None, None
    name, pretrained = str(settings.get("model") or ""), settings.get("pretrained")
    if made.identity.get("previous") is None or _is_configuration_of(name, config):
        return name, None if pretrained is None else str(pretrained)
    return None, None


def _is_configuration_of(name: str, config: Mapping[str, Any]) -> bool:
    """Whether a model of this name, ours or open_clip's, has this architecture."""
    fusion = fusion_configuration(name) if name else None
    if fusion is not None:
        return _architecture(fusion.stored()) == _architecture(config)
    library = find_spec("open_clip")  # finds it without importing it, which takes seconds
    places = [PACKAGED, *(Path(one) / "model_configs" for one in _places(library))]
    for place in places:
        file = place / f"{name}.json"
        if name and file.parent == place and file.is_file():
            return _architecture(read_json_object(file)) == _architecture(config)
    return False


def _places(library: Any) -> list[str]:
    return list(library.submodule_search_locations or ()) if library is not None else []


def _architecture(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without what may differ between models of one architecture."""
    return {
        part: {name: one for name, one in config[part].items() if name not in names}
        for part, names in _VARIES.items()
        if isinstance(config.get(part), dict)
    } | {"embed_dim": config.get("embed_dim")}

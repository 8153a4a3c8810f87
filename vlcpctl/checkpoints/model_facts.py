"""What the model of a checkpoint is: its architecture and shape, and where its weights come from.

The manifest records these facts, so that they are read without torch.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput
from vlcpctl.core.fields import Fields
from vlcpctl.core.hashing import canonical_json
from vlcpctl.core.manifest import MANIFESTS

if TYPE_CHECKING:
    from vlcpctl.models.encoders import Encoder

# See `model_facts` for the names.
Facts = dict[str, Any]

LEARNED = "learn"  # a learned temperature: its value is among the weights, and changes with them

_TEXTS, _NUMBERS = ("family", "temperature"), ("text_length", "image_size")
_OPTIONAL = ("name", "pretrained", "heads")
_USUAL_LENGTH = 77  # open_clip's, for a configuration without one


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
        raise BadInput(f"{checkpoint} was made by an unpublished version; make it again")
    take = Fields(made.model, f"{checkpoint / MANIFESTS['checkpoint']}, field 'model'")
    facts: Facts = {name: take(name, str, None) for name in _OPTIONAL}
    facts |= {name: take(name, str) for name in _TEXTS}
    return {**facts, **{name: take(name, int) for name in _NUMBERS}}


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

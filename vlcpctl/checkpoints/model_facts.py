"""What the model of a checkpoint is: its architecture and shape, and where its weights come from.

The manifest records these facts, so that they are read without torch.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput
from vlcpctl.core.hashing import canonical_json
from vlcpctl.core.library_errors import reading

if TYPE_CHECKING:
    from vlcpctl.models.encoders import Encoder

# See `model_facts` for the names.
Facts = dict[str, Any]

LEARNED = "learn"  # a learned temperature: its value is among the weights, and changes with them
_USUAL_LENGTH = 77  # open_clip's, for a configuration without one


def facts_of_encoder(encoder: Encoder, name: str | None, pretrained: str | None) -> Facts:
    """The facts about a model in memory, as its manifest records them.

    `name` is the architecture as --model takes it, or sha256:... of a JSON file; None if it is not
    known. `pretrained` is the source of the weights that its first training started from.
    """
    config, scale = encoder.config, encoder.weights()["logit_scale"]
    digest = hashlib.sha256(canonical_json(dict(config)).encode()).hexdigest()
    fixed = f"fixed:{math.exp(-float(scale.detach())):.6g}"
    return {
        "name": name or f"sha256:{digest}",
        "pretrained": pretrained,
        "family": encoder.family,
        "text_length": config["text_cfg"].get("context_length", _USUAL_LENGTH),
        "image_size": encoder.transform.image_size,
        "temperature": LEARNED if scale.requires_grad else fixed,
        "heads": config.get("heads"),
    }


def has_batch_norms(checkpoint: Path) -> bool:
    """Whether the model of a checkpoint has batch norms, by the names in its file of weights.

    Raises BadInput if the file cannot be read.
    """
    for path in checkpoint.glob("*.safetensors"):
        with reading(path), safe_open(path, "numpy") as weights:
            if any(name.endswith(".running_mean") for name in list(weights.keys())):
                return True
    return False


def model_facts(checkpoint: Path, made: CheckpointManifest) -> Facts:
    """The facts about the model of a checkpoint; `made` is its manifest.

    They are `name` (the architecture), `pretrained` (the source of its first weights), `family`,
    `text_length` (tokens), `image_size` (pixels), `temperature` ("learn" or "fixed:X") and `heads`,
    as far as they are known. Raises BadInput if an unpublished version made the checkpoint.
    """
    if made.model is None:
        raise BadInput(f"{checkpoint} was made by an unpublished version; make it again")
    return dict(made.model)

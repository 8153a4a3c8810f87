"""What the model of a checkpoint is: its architecture and shape, and where its weights come from.

The manifest records these facts, so that they are read without torch.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput
from vlcpctl.files.ids import canonical_json
from vlcpctl.files.inputs import reading

if TYPE_CHECKING:
    from vlcpctl.models.encoders import Encoder

# See `model_facts` for the names.
Facts = dict[str, Any]

LEARNED = "learn"  # a learned temperature: its value is among the weights, and changes with them
_USUAL_LENGTH = 77  # open_clip's, for a configuration without one


def facts_of_encoder(
    encoder: Encoder,
    name: str | None,
    pretrained: str | None,
    files: Mapping[str, str] | None = None,
) -> Facts:
    """The facts about a model in memory, as its manifest records them.

    `name` is the architecture as --model takes it, or sha256:... of a JSON file; None if it is not
    known. `pretrained` is the source of the weights that its first training started from. `files`
    has the names of both, for people, which count if they are files.
    """
    config, scale = encoder.config, encoder.weights()["logit_scale"]
    digest = hashlib.sha256(canonical_json(dict(config)).encode()).hexdigest()
    fixed = f"fixed:{math.exp(-float(scale.detach())):.6g}"
    names = {"name": name or f"sha256:{digest}", "pretrained": pretrained}
    known = {one: file for one, file in (files or {}).items() if _is_file(names[one])}
    return {
        **names,
        "family": encoder.family,
        "text_length": config["text_cfg"].get("context_length", _USUAL_LENGTH),
        "image_size": encoder.transform.image_size,
        "temperature": LEARNED if scale.requires_grad else fixed,
        "heads": config.get("heads"),
        **({"files": known} if known else {}),
    }


def shown(facts: Mapping[str, Any], what: str = "name") -> str:
    """The `name` or `pretrained` of a model for people: of a file, its name and eight digits.

    >>> shown({"name": f"sha256:{62544164:064}", "files": {"name": "tiny-clip.json"}})
    'tiny-clip.json 00000000'
    >>> shown({"name": "ViT-B-32"}), shown({"pretrained": "sha256:0ea4e312ee47"}, "pretrained")
    ('ViT-B-32', 'sha256:0ea4e312')
    """
    value, files = str(facts.get(what) or ""), facts.get("files")
    digits = value.removeprefix("sha256:")[:8]
    if not _is_file(value):
        return value
    file = files.get(what) if isinstance(files, Mapping) else None
    return f"{file} {digits}" if file else f"sha256:{digits}"


def shown_settings(facts: Mapping[str, Any]) -> dict[str, str]:
    """The settings `model` and `pretrained` for people, if they were files."""
    names = {"model": "name", "pretrained": "pretrained"}
    return {
        setting: shown(facts, name) for setting, name in names.items() if _is_file(facts.get(name))
    }


def _is_file(name: str | None) -> bool:
    return str(name).startswith("sha256:")


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
    as far as they are known, and `files`. Raises BadInput if an unpublished version made the
    checkpoint.
    """
    if made.model is None:
        raise BadInput(f"{checkpoint} was made by an unpublished version; make it again")
    return dict(made.model)

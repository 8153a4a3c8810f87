"""The files of a checkpoint: which of them make the model, and whether they are unchanged.

Torch-free, so that `vlcpctl check` starts at once.
"""

from __future__ import annotations

import math
from pathlib import Path

from safetensors import safe_open

from vlcpctl.core.errors import Incompatible
from vlcpctl.files.manifest import MANIFESTS, is_artifact
from vlcpctl.files.recorded_files import verify_recorded
from vlcpctl.models.configuration import CONFIG_FILE
from vlcpctl.models.fusion.configuration import CONFIG_FILE as FUSION_CONFIG_FILE

SLOTS = "method"  # the directory of the methods' slots
LOG = "metrics.jsonl"  # of the training

# The files that open_clip and transformers read; checkpoints contain copies.
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    "vocab.txt",
)
WEIGHT_SUFFIXES = frozenset({".safetensors", ".pt", ".pth", ".bin"})
_BY_NAME = frozenset({*TOKENIZER_FILES, CONFIG_FILE, FUSION_CONFIG_FILE})


def is_checkpoint(path: Path) -> bool:
    """Whether a path is a checkpoint that vlcpctl wrote, whose manifest records its files."""
    return (path / MANIFESTS["checkpoint"]).is_file() and is_artifact(path)


def verify_model(checkpoint: Path) -> None:
    """Verify the files that a model is loaded from against the digests in the manifest.

    Raises Incompatible, naming the first file that was changed, removed or added, and BadInput if
    the manifest cannot be read.
    """
    verify_recorded(checkpoint, "checkpoint", is_of_model, would_be_loaded, Incompatible)


def verify_slots(checkpoint: Path) -> None:
    """Verify the files of the methods' slots; raises as `verify_model` does."""
    verify_recorded(checkpoint, "checkpoint", is_slot, is_slot, Incompatible)


def is_slot(name: str) -> bool:
    """Whether a relative path in a checkpoint is that of a method's slot."""
    return name.startswith(f"{SLOTS}/")


def would_be_loaded(name: str) -> bool:
    """Whether loading the model would use a file of this relative path, if there were one."""
    path = Path(name)
    return is_of_model(name) and (path.name in _BY_NAME or path.suffix in WEIGHT_SUFFIXES)


def count_weights(checkpoint: Path) -> int:
    """The number of weights of a checkpoint's model, buffers included, by the headers of files."""
    count = 0
    for path in checkpoint.glob("*.safetensors"):
        with safe_open(path, framework="numpy") as file:
            count += sum(math.prod(file.get_slice(name).get_shape()) for name in file.offset_keys())
    return count


def is_of_model(name: str) -> bool:
    """Whether a relative path in a checkpoint is not of the state or the log of training."""
    return not is_slot(name) and name != LOG

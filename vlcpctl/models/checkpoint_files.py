"""The files of a checkpoint: which of them make the model, and whether they are unchanged.

Torch-free, so that `vlcpctl check` starts at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from safetensors import safe_open

from vlcpctl.core.errors import Incompatible
from vlcpctl.files.digests import RESTORE, FileDigest, unlisted_files, verify_files
from vlcpctl.files.inputs import converted, reading
from vlcpctl.files.manifest import MANIFESTS, is_artifact, read_manifest
from vlcpctl.models.configuration import CONFIG_FILE
from vlcpctl.models.fusion.configuration import CONFIG_FILE as FUSION_CONFIG_FILE

OPEN_CLIP = "open_clip:"  # open_clip:MODEL,TAG or open_clip:MODEL,FILE, for import-checkpoint
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
    verify_recorded(checkpoint, is_of_model, would_be_loaded)


def verify_slots(checkpoint: Path) -> None:
    """Verify the files of the methods' slots; raises as `verify_model` does."""
    verify_recorded(checkpoint, is_slot, is_slot)


def verify_recorded(
    checkpoint: Path, is_wanted: Callable[[str], bool], is_read: Callable[[str], bool]
) -> None:
    """Raise Incompatible, naming the file, if one that `is_wanted` is not what is recorded of it.

    Also for a file that exists and `is_read`, by its relative path, but that is not recorded.
    """
    place = checkpoint / MANIFESTS["checkpoint"]
    entries = read_manifest(checkpoint, "checkpoint").get("digests")
    recorded = converted(entries, dict[str, FileDigest], f"{place}, digests")
    wanted = {name: entry for name, entry in recorded.items() if is_wanted(name)}
    verify_files(checkpoint, wanted, error=Incompatible, advice=RESTORE)
    for name in unlisted_files(checkpoint, recorded):
        if is_read(name):
            raise Incompatible(
                f"{checkpoint / name} was added after the manifest was written; remove it"
            )


def is_slot(name: str) -> bool:
    """Whether a relative path in a checkpoint is that of a method's slot."""
    return name.startswith(f"{SLOTS}/")


def would_be_loaded(name: str) -> bool:
    """Whether loading the model would use a file of this relative path, if there were one."""
    path = Path(name)
    return is_of_model(name) and (path.name in _BY_NAME or path.suffix in WEIGHT_SUFFIXES)


def count_weights(checkpoint: Path) -> int:
    """The number of weights of a checkpoint's model, buffers included, by the header of its file.

    Raises BadInput if that cannot be read.
    """
    count = 0
    for path in checkpoint.glob("*model.safetensors"):  # an adapter beside it is merged in it
        with reading(path), safe_open(path, framework="numpy") as file:
            count += sum(math.prod(file.get_slice(name).get_shape()) for name in file.offset_keys())
    return count


def is_of_model(name: str) -> bool:
    """Whether a relative path in a checkpoint is not of the state or the log of training."""
    return not is_slot(name) and name != LOG

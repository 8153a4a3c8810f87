"""What other programs store, given in place of an artifact: what it is, and the line to type."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

from vlcpctl.core.errors import BadInput, missing
from vlcpctl.core.shown_paths import as_word
from vlcpctl.files.safe_json import read_json

OPEN_CLIP = "open_clip:"  # open_clip:MODEL,TAG or open_clip:MODEL,FILE, for import-checkpoint
OPEN_CLIP_CONFIG = "open_clip_config.json"
GUARD = "guard"  # a task of which only the test pairs are used

_ADAPTER = "adapter_config.json"
_OF_A_HUB = re.compile(r"hf-hub:.*|[\w.-]+/[\w.-]*(clip|vit)[\w.-]*", re.IGNORECASE)
_PAIRS = (".jpg", ".jpeg", ".png", ".webp", ".tar", ".parquet", ".arrow", ".csv", ".tsv", ".jsonl")
_MOST_ENTRIES = 1000  # of a directory that may have pairs


def refuse_foreign(path: Path, kind: str) -> None:
    """Raise BadInput for weights or pairs of another program, given as a checkpoint, task or guard.

    The message has the line that makes one of them. Anything else is not refused; `path` must not
    be an artifact.
    """
    said = None
    if kind == "checkpoint":
        said = _of_weights(path)
    elif kind in {"task", GUARD}:
        said = _of_pairs(path, " --holdout test=1.0" if kind == GUARD else "")
    if said is not None:
        raise BadInput(said)


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
    if (path / OPEN_CLIP_CONFIG).is_file():
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
            f"{OPEN_CLIP_CONFIG}"
        )


def _of_weights(path: Path) -> str | None:
    if str(path).startswith(OPEN_CLIP) and not path.exists():
        return (
            f"{path} is not a checkpoint: 'vlcpctl import-checkpoint {as_word(path)} -o start' "
            "makes one of these weights"
        )
    if not path.exists():
        return missing_model(path)
    refuse_other_models(path)
    model = " --model NAME" if path.is_file() else ""
    if not (model or (path / OPEN_CLIP_CONFIG).is_file()):
        return None
    what = "a file" if model else "a model of open_clip"
    return (
        f"{path} is {what}, not a checkpoint: 'vlcpctl import-checkpoint {as_word(path)}{model} "
        "-o start' makes one of its weights"
    )


def _of_pairs(path: Path, options: str) -> str | None:
    entries = islice(path.iterdir(), _MOST_ENTRIES) if path.is_dir() else ()
    if not (path.is_file() or any(one.suffix.lower() in _PAIRS for one in entries)):
        return None
    name = as_word(path.name.partition(".")[0])
    out = name if path.is_file() else f"{name}-stream"  # not the directory itself
    line = f"vlcpctl split {as_word(path)} --by all:{name}{options} -o {out}"
    return f"{path} is not a task: '{line}' makes one of its pairs"

"""One file per command: a class of its options, its help, and what it does. Here: their names."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from vlcpctl.core.options import Command


class About(NamedTuple):
    """The facts about a command that are needed before its file is imported."""

    group: str
    summary: str  # for `vlcpctl --help`
    warm: bool = False  # loads a model: `batch` imports the libraries once for all such lines
    warm_only_with: str = ""  # the option, or its value, without which it loads none


WEEKLY, DATA, TRAIN, EVALUATE, OTHER = GROUPS = ("Weekly", "Data", "Train", "Evaluate", "Other")
COMMANDS = {
    "update": About(WEEKLY, "Update a model in production with a week's new data.", warm=True),
    "inspect": About(WEEKLY, "Show what an artifact is and what it was made from."),
    "check": About(WEEKLY, "Verify artifacts against their manifests."),
    "forget": About(WEEKLY, "Remove pairs from everything that stores them."),
    "split": About(
        DATA,
        "Split image-text pairs into a stream of tasks.",
        warm=True,
        warm_only_with="--labels-from",
    ),
    "buffer": About(
        DATA,
        "Choose which pairs of a task to keep for replay.",
        warm=True,
        warm_only_with="--checkpoint",
    ),
    "sample": About(DATA, "Write a built-in data set as image-text pairs."),
    "export": About(
        DATA,
        "Export tasks or a checkpoint for other programs.",
        warm=True,
        warm_only_with="onnx",
    ),
    "train-step": About(TRAIN, "Train on one task, starting from the last checkpoint.", warm=True),
    "methods": About(TRAIN, "List the methods, or describe one of them."),
    "import-checkpoint": About(
        TRAIN, "Convert weights from another program to a checkpoint.", warm=True
    ),
    "merge": About(TRAIN, "Merge checkpoints: average, ema, TIES or Model Stock.", warm=True),
    "distill": About(TRAIN, "Precompute a teacher's embeddings for distillation.", warm=True),
    "invert-texts": About(TRAIN, "Generate negative texts from a buffer (IncCLIP).", warm=True),
    "eval-retrieval": About(EVALUATE, "Evaluate image-text retrieval of checkpoints.", warm=True),
    "eval-zeroshot": About(
        EVALUATE, "Evaluate zero-shot classification of checkpoints.", warm=True
    ),
    "eval-probe": About(EVALUATE, "Evaluate linear probes on frozen image features.", warm=True),
    "spatial-report": About(
        EVALUATE, "Report how embedding angles drift between checkpoints.", warm=True
    ),
    "forgetting-report": About(EVALUATE, "Report learning and forgetting from evaluation rows."),
    "batch": About(OTHER, "Run many command lines in one warm process."),
    "doctor": About(OTHER, "Show what this machine can do."),
}


def command_class(name: str) -> type[Command]:
    """The class of a command, whose file is imported.

    >>> command_class("train-step").__name__
    'TrainStep'
    """
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    found: Any = getattr(module, name.title().replace("-", ""))
    kind: type[Command] = found
    return kind

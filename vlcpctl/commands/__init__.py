"""One file per subcommand: parse, call, print. This file lists their names and summaries."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """The facts about a command that are needed before its file is imported."""

    summary: str  # for `vlcpctl --help`
    warm: bool = False  # loads a model: `batch` imports the libraries once for all such lines
    warm_only_with: str = ""  # the option without which it loads none


COMMANDS = {
    "sample": Command("Write a built-in data set as image-text pairs."),
    "split": Command(
        "Split image-text pairs into a stream of tasks.", warm=True, warm_only_with="--labels-from"
    ),
    "buffer": Command(
        "Choose which pairs of a task to keep for replay.", warm=True, warm_only_with="--checkpoint"
    ),
    "invert-texts": Command("Generate negative texts from a buffer (IncCLIP).", warm=True),
    "distill": Command("Precompute a teacher's embeddings for distillation.", warm=True),
    "train-step": Command("Train on one task, starting from the last checkpoint.", warm=True),
    "import-checkpoint": Command(
        "Convert weights from another program to a checkpoint.", warm=True
    ),
    "interpolate": Command("Average the weights of two checkpoints (WiSE-FT).", warm=True),
    "eval-retrieval": Command("Evaluate image-text retrieval of checkpoints.", warm=True),
    "eval-zeroshot": Command("Evaluate zero-shot classification of checkpoints.", warm=True),
    "eval-probe": Command("Evaluate linear probes on frozen image features.", warm=True),
    "spatial-report": Command("Report how embedding angles drift between checkpoints.", warm=True),
    "forgetting-report": Command("Report learning and forgetting from evaluation rows."),
    "update": Command("Update a model in production with a week's new data.", warm=True),
    "export": Command("Export tasks or a checkpoint for other programs."),
    "batch": Command("Run many command lines in one warm process."),
    "watch": Command("Follow a train-step while it runs."),
    "inspect": Command("Show what an artifact is and what it was made from."),
    "check": Command("Verify artifacts against their manifests."),
    "forget": Command("Remove pairs from everything that stores them."),
    "methods": Command("List the methods, or describe one of them."),
    "doctor": Command("Show what this machine can do."),
}


def module_name(command: str) -> str:
    """The module of a command.

    >>> module_name("train-step")
    'vlcpctl.commands.train_step'
    """
    return f"{__name__}.{command.replace('-', '_')}"

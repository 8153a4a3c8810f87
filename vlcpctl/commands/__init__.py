"""One file per subcommand: parse, call, print. This file lists their names and summaries."""

from __future__ import annotations

# Summaries for `vlcpctl --help`; the file of a command is imported only when it runs.
COMMANDS = {
    "sample": "Write a built-in data set as image-text pairs.",
    "split": "Split image-text pairs into a stream of tasks.",
    "buffer": "Choose which pairs of a task to keep for replay.",
    "invert-texts": "Generate negative texts from a buffer (IncCLIP).",
    "distill": "Precompute a teacher's embeddings for distillation.",
    "train-step": "Train on one task, starting from the last checkpoint.",
    "import-checkpoint": "Convert weights from another program to a checkpoint.",
    "interpolate": "Average the weights of two checkpoints (WiSE-FT).",
    "eval-retrieval": "Evaluate image-text retrieval of checkpoints.",
    "eval-zeroshot": "Evaluate zero-shot classification of checkpoints.",
    "eval-probe": "Evaluate linear probes on frozen image features.",
    "spatial-report": "Report how embedding angles drift between checkpoints.",
    "forgetting-report": "Report learning and forgetting from evaluation rows.",
    "batch": "Run many command lines in one warm process.",
    "inspect": "Show what an artifact is and what it was made from.",
    "check": "Verify artifacts against their manifests.",
    "methods": "List the methods, or describe one of them.",
    "doctor": "Show what this machine can do.",
}


def module_name(command: str) -> str:
    """The module of a command.

    >>> module_name("train-step")
    'vlcpctl.commands.train_step'
    """
    return f"{__name__}.{command.replace('-', '_')}"

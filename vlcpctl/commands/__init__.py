"""One file per subcommand: parse, call, print. This is the table of their names."""

from __future__ import annotations

# The first line of each command's help; its file is read only when the command runs.
COMMANDS = {
    "sample": "Write a built-in data set as image-text pairs.",
    "split": "Split image-text pairs into a stream of tasks.",
    "buffer": "Choose which pairs of a task to keep for replay.",
    "invert-texts": "Make negative texts of a buffer (IncCLIP).",
    "distill": "Write down what a teacher says of tasks.",
    "train-step": "Train on one task, from the checkpoint of the last one.",
    "import-checkpoint": "Make a checkpoint of weights from another program.",
    "interpolate": "Average the weights of two checkpoints (WiSE-FT).",
    "eval-retrieval": "Measure retrieval of checkpoints on tasks, as rows.",
    "eval-zeroshot": "Measure zero-shot classification, as rows.",
    "eval-probe": "Measure linear probes on image features, as rows.",
    "spatial-report": "Show how angles turned between checkpoints (Mod-X).",
    "forgetting-report": "Turn rows into tables of learning and forgetting.",
    "batch": "Run many command lines in one warm process.",
    "inspect": "Show what a path is and what it was made from.",
    "check": "Verify artifacts against their manifests.",
    "methods": "List the methods, or describe one of them.",
    "doctor": "Show what this machine can do.",
}


def module_name(command: str) -> str:
    """Where a command lives.

    >>> module_name("train-step")
    'vlcpctl.commands.train_step'
    """
    return f"{__name__}.{command.replace('-', '_')}"

"""One file per subcommand: parse, call, print. This file lists their names and summaries."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """The facts about a command that are needed before its file is imported."""

    summary: str  # for `vlcpctl --help`
    warm: bool = False  # loads a model: `batch` imports the libraries once for all such lines
    warm_only_with: str = ""  # the option, or its value, without which it loads none
    usual: str = ""  # options that -h shows beside those that are required; empty: all


COMMANDS = {
    "sample": Command(
        "Write a built-in data set as image-text pairs.",
        usual="--size --views --groups --limit --seed",
    ),
    "split": Command(
        "Split image-text pairs into a stream of tasks.",
        warm=True,
        warm_only_with="--labels-from",
        usual=(
            "--split-column --holdout --image-column --caption-column --label-column "
            "--keep-columns --not --dry-run"
        ),
    ),
    "buffer": Command(
        "Choose which pairs of a task to keep for replay.",
        warm=True,
        warm_only_with="--checkpoint",
        usual="--size --policy --previous --checkpoint --store-features --seed",
    ),
    "invert-texts": Command(
        "Generate negative texts from a buffer (IncCLIP).",
        warm=True,
        usual="--count --images --seed --device --dry-run",
    ),
    "distill": Command(
        "Precompute a teacher's embeddings for distillation.",
        warm=True,
        usual="--buffer --views --preset --num-shards --shard-index --device",
    ),
    "train-step": Command(
        "Train on one task, starting from the last checkpoint.",
        warm=True,
        usual=(
            "--previous --buffer --preset --steps --epochs --lr --batch-size --set --seed --dry-run"
        ),
    ),
    "import-checkpoint": Command(
        "Convert weights from another program to a checkpoint.",
        warm=True,
        usual="--model --tokenizer --run --dry-run",
    ),
    "interpolate": Command("Average the weights of two checkpoints (WiSE-FT).", warm=True),
    "merge": Command(
        "Merge checkpoints: average, ema, TIES or Model Stock.",
        warm=True,
        usual="--rule --base --weights --set --run --dry-run",
    ),
    "eval-retrieval": Command(
        "Evaluate image-text retrieval of checkpoints.",
        warm=True,
        usual="--out --gallery --split --save-ranks --device --workers --dry-run",
    ),
    "eval-zeroshot": Command(
        "Evaluate zero-shot classification of checkpoints.",
        warm=True,
        usual="--out --data --templates --split --save-ranks --device --dry-run",
    ),
    "eval-probe": Command(
        "Evaluate linear probes on frozen image features.",
        warm=True,
        usual="--out --data --protocol --train-split --split --device --dry-run",
    ),
    "spatial-report": Command(
        "Report how embedding angles drift between checkpoints.",
        warm=True,
        usual="--out --between --split --device",
    ),
    "forgetting-report": Command(
        "Report learning and forgetting from evaluation rows.",
        usual="--out --run --guard --ranks --images --checkpoint --fail-if --latex --csv",
    ),
    "update": Command(
        "Update a model in production with a week's new data.",
        warm=True,
        usual=(
            "--init --buffer-from --guard --fail-if --epochs --lr --split-column "
            "--keep-columns --rollback --redo --dry-run"
        ),
    ),
    "export": Command(
        "Export tasks or a checkpoint for other programs.",
        warm=True,
        warm_only_with="onnx",
        usual="--split --shard-size --templates --rows --dry-run",
    ),
    "batch": Command("Run many command lines in one warm process."),
    "inspect": Command("Show what an artifact is and what it was made from."),
    "check": Command("Verify artifacts against their manifests."),
    "forget": Command(
        "Remove pairs from everything that stores them.",
        usual="--key --source-key --where --keys --receipt --dry-run",
    ),
    "methods": Command("List the methods, or describe one of them."),
    "doctor": Command("Show what this machine can do."),
}


def module_name(command: str) -> str:
    """The module of a command.

    >>> module_name("train-step")
    'vlcpctl.commands.train_step'
    """
    return f"{__name__}.{command.replace('-', '_')}"

"""Names of other programs for what commands and options do here: suggested, never accepted."""

from __future__ import annotations

from collections.abc import Collection

from vlcpctl.core.errors import nearest

_COMMANDS = {
    "eval": "eval-retrieval or eval-zeroshot",
    "evaluate": "eval-retrieval or eval-zeroshot",
    "evaluation": "eval-retrieval or eval-zeroshot",
    "test": "eval-retrieval or eval-zeroshot",
    "report": "forgetting-report",
    "train": "train-step",
    "finetune": "train-step",
    "fine-tune": "train-step",
    "import": "import-checkpoint",
    "convert": "import-checkpoint",
    "merge": "interpolate",
    "delete": "forget",
    "verify": "check",
    "version": "--version",
}
# Of open_clip's trainer, transformers, timm, CLIP_benchmark and img2dataset; the first that a
# command has is suggested.
_OPTIONS = {
    "accum-freq": ("micro-batch",),
    "amp": ("precision",),
    "bf16": ("precision",),
    "bs": ("batch-size",),
    "checkpoint": ("previous",),
    "ckpt": ("checkpoint", "previous"),
    "config": ("preset",),
    "dataset": ("data",),
    "epoch": ("epochs",),
    "fp16": ("precision",),
    "gpus": ("nproc", "device"),
    "grad-clip-norm": ("clip-norm",),
    "init": ("previous",),
    "learning-rate": ("lr",),
    "logs": ("log",),
    "lr-scheduler": ("schedule",),
    "max-steps": ("steps",),
    "model-name": ("model",),
    "name": ("run",),
    "num-gpus": ("nproc", "device"),
    "num-steps": ("steps",),
    "num-workers": ("workers",),
    "output": ("out",),
    "output-dir": ("out",),
    "output-folder": ("out",),
    "processes-count": ("workers",),
    "report-to": ("log",),
    "resume": ("previous",),
    "save-dir": ("out",),
    "save-frequency": ("save-every",),
    "thread-count": ("threads",),
    "wandb": ("log",),
    "wd": ("weight-decay",),
    "world-size": ("nproc",),
}
_ARGUMENTS = frozenset({"train-data", "data-path", "dataset-path", "input", "url-list"})


def command_meant(name: str) -> str | None:
    """The command, or the commands in words, that a name of another program may stand for.

    >>> command_meant("report")
    'forgetting-report'
    """
    return _COMMANDS.get(name.lower())


def option_meant(option: str, known: Collection[str], arguments: str) -> str | None:
    """The option that an unknown one may stand for, or `arguments`, what comes without an option.

    >>> option_meant("--amp", ["--precision", "--warmup"], "TASK")
    '--precision'
    """
    name = option.lstrip("-").replace("_", "-").lower()
    if name in _ARGUMENTS:
        return f"{arguments} without an option" if arguments else None
    likely = (f"--{one}" for one in _OPTIONS.get(name, ()))
    return next((one for one in likely if one in known), None) or nearest(option, known)

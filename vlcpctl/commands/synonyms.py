"""Names of other programs for what commands and options do here: suggested, never accepted."""

from __future__ import annotations

from collections.abc import Collection

from vlcpctl.core.errors import nearest

_COMMANDS = {
    "average": "interpolate or merge",
    "convert": "import-checkpoint",
    "delete": "forget",
    "deploy": "update",
    "download": "sample",
    "eval": "eval-retrieval or eval-zeroshot",
    "evaluate": "eval-retrieval or eval-zeroshot",
    "evaluation": "eval-retrieval or eval-zeroshot",
    "finetune": "train-step",
    "fine-tune": "train-step",
    "fit": "train-step",
    "import": "import-checkpoint",
    "info": "inspect",
    "linear-probe": "eval-probe",
    "list": "methods",
    "memory": "buffer",
    "monitor": "inspect",
    "plot": "forgetting-report",
    "prepare": "split",
    "remove": "forget",
    "replay": "buffer",
    "report": "forgetting-report",
    "rollback": "update --rollback",
    "show": "inspect",
    "soup": "merge",
    "test": "eval-retrieval or eval-zeroshot",
    "train": "train-step",
    "unlearn": "forget",
    "validate": "check",
    "verify": "check",
    "version": "--version",
}
# Of open_clip's trainer, transformers, timm, CLIP_benchmark and img2dataset; the first that a
# command has is suggested; "" stands for its arguments.
_OPTIONS = {
    "accum-freq": ("micro-batch",),
    "amp": ("precision",),
    "arch": ("model",),
    "bf16": ("precision",),
    "bs": ("batch-size",),
    "budget": ("size",),
    "buffer-size": ("buffer",),
    "checkpoint": ("previous",),
    "ckpt": ("checkpoint", "previous"),
    "config": ("preset",),
    "cuda": ("device",),
    "dataset": ("data", ""),
    "density": ("set",),
    "epoch": ("epochs",),
    "fp16": ("precision",),
    "gpus": ("nproc", "device"),
    "grad-clip-norm": ("clip-norm",),
    "group-by": ("group-by", "by"),
    "init": ("previous",),
    "lambda": ("set",),
    "learning-rate": ("lr",),
    "logs": ("out",),
    "lr-scheduler": ("schedule",),
    "max-steps": ("steps",),
    "memory": ("buffer",),
    "memory-size": ("size", "buffer"),
    "model": ("model", "checkpoint"),
    "model-name": ("model", "checkpoint"),
    "name": ("run",),
    "num-gpus": ("nproc", "device"),
    "num-steps": ("steps",),
    "num-workers": ("workers",),
    "output": ("out",),
    "output-dir": ("out",),
    "output-folder": ("out",),
    "processes-count": ("workers",),
    "queue": ("set",),
    "replay-buffer": ("buffer",),
    "report-to": ("log",),
    "resume": ("previous",),
    "save-dir": ("out",),
    "save-frequency": ("save-every",),
    "strength": ("set",),
    "test-size": ("holdout",),
    "test-split": ("holdout", "split"),
    "thread-count": ("threads",),
    "threshold": ("fail-if",),
    "val": ("holdout",),
    "val-size": ("holdout",),
    "val-split": ("holdout", "split"),
    "wandb": ("log",),
    "wd": ("weight-decay",),
    "world-size": ("nproc",),
}
_ARGUMENTS = frozenset({"train-data", "data-path", "dataset-path", "input", "url-list"})


def command_meant(name: str, known: Collection[str]) -> str | None:
    """The command, or the commands in words, that an unknown name may stand for.

    >>> command_meant("report", ["forgetting-report"]), command_meant("splt", ["split"])
    ('forgetting-report', 'split')
    """
    return _COMMANDS.get(name.lower()) or nearest(name, known)


def option_meant(option: str, known: Collection[str], arguments: str) -> str | None:
    """The option that an unknown one may stand for, or `arguments`, what comes without an option.

    >>> option_meant("--amp", ["--precision", "--warmup"], "TASK")
    '--precision'
    """
    name = option.lstrip("-").replace("_", "-").lower()
    if name in _ARGUMENTS:
        return f"{arguments} without an option" if arguments else None
    for one in _OPTIONS.get(name, ()):
        if not one and arguments:
            return f"{arguments} without an option"
        if f"--{one}" in known:
            return f"--{one}"
    return nearest(option, known)

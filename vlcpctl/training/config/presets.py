"""Presets: the training settings of each paper, usable with any method. Torch-free.

OURS names the values that the papers do not give, so that `--dry-run` can mark them.
"""

from __future__ import annotations

from typing import Any

from vlcpctl.core.errors import UsageError, unknown_name

PRESETS: dict[str, dict[str, Any]] = {
    "ctp": {
        "model": "albef-base",
        "optimizer": "adamw",
        "weight_decay": 0.05,
        "decay": "all",
        "lr": 1e-4,
        "min_lr": 1e-6,
        "schedule": "cosine",
        "warmup": 0.0,
        "batch_size": 512,
        "epochs": 5,
        "text_length": 30,
        "temperature": "fixed:0.07",
        "crop": "random",
        "crop_scale": (0.2, 1.0),
        "flip": True,
        "randaugment": (2, 5),
    },
    "incclip": {
        "model": "RN50",
        "optimizer": "lamb",
        "weight_decay": 0.003,
        "lr": 0.003,
        "schedule": "cosine",
        "warmup": 0.05,
        "batch_size": 4096,
        "epochs": 15,
        "text_length": 77,
        "temperature": "learn:0.07",
        "crop": "random",
        "crop_scale": (0.9, 1.0),
    },
    "modx": {
        "model": "RN50",
        "optimizer": "adamw",
        "weight_decay": 0.2,
        "betas": (0.9, 0.99),
        "eps": 1e-8,
        "lr": 5e-4,
        "schedule": "cosine",
        "warmup": 0.2,
        "batch_size": 280,
        "epochs": 35,
        "text_length": 77,
        "temperature": "learn:0.07",
        "crop": "random",
        "crop_scale": (0.9, 1.0),
    },
    "modx-finetune": {
        "model": "ViT-B-32-quickgelu",
        "pretrained": "openai",
        "optimizer": "adamw",
        "weight_decay": 0.2,
        "betas": (0.9, 0.99),
        "eps": 1e-8,
        "lr": 1e-6,
        "schedule": "cosine",
        "warmup": 0.2,
        "batch_size": 280,
        "epochs": 35,
        "text_length": 77,
        "crop": "random",
        "crop_scale": (0.9, 1.0),
    },
    "dha": {
        "model": "rn50-bert",
        "optimizer": "adam",
        "weight_decay": 1e-5,
        "decay": "all",
        "lr": 5e-5,
        "schedule": "plateau",
        "patience": 1,
        "keep": "best:val_loss",
        "base_loss": "sum",
        "batch_size": 320,
        "epochs": 15,
        "text_length": 256,
        "temperature": "fixed:0.07",
        "crop": "random",
        "crop_scale": (0.9, 1.0),
    },
    "tiny": {
        "model": "tiny",
        "optimizer": "adamw",
        "weight_decay": 0.05,
        "lr": 1e-3,
        "schedule": "cosine",
        "warmup": 0.1,
        "batch_size": 64,
        "epochs": 10,
        "temperature": "fixed:0.07",
        "crop": "none",
    },
}

OURS: dict[str, frozenset[str]] = {
    "ctp": frozenset(),
    "incclip": frozenset({"warmup", "temperature", "crop_scale"}),
    "modx": frozenset({"crop_scale"}),
    "modx-finetune": frozenset({"crop_scale"}),
    "dha": frozenset({"keep", "patience", "temperature", "crop_scale"}),
    "tiny": frozenset(PRESETS["tiny"]),
}


def preset(name: str) -> dict[str, Any]:
    """The settings of a preset, by name; raises UsageError for an unknown preset."""
    if name not in PRESETS:
        raise UsageError(unknown_name("preset", name, PRESETS))
    return PRESETS[name]

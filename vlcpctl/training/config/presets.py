"""Presets: the training settings of each paper, usable with any method. Torch-free.

A value is the paper's unless SOURCES names another source, or OURS says that there is none; the
origins of settings mark both. `docs/papers/*_deviations.md` compare papers and authors' code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vlcpctl.core.errors import UsageError, unknown_name

_CTP_BUDGET: dict[str, Any] = {
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
}

PRESETS: dict[str, dict[str, Any]] = {
    "ctp": {"model": "albef-base", **_CTP_BUDGET},
    "ctp-dual": {"model": "ViT-B-32", **_CTP_BUDGET},
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
        "crop": "center",
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
        "crop": "center",
    },
    # For a model in production. It names no model: there is one, or --model chooses it.
    "update": {
        "optimizer": "adamw",
        "weight_decay": 0.2,
        "decay": "weights",
        "betas": (0.9, 0.98),
        "eps": 1e-6,
        "clip_norm": 1.0,
        "lr": 1e-5,
        "min_lr": 1e-8,
        "schedule": "cosine",
        "warmup": 0.1,
        "batch_size": 512,
        "epochs": 5,
        "precision": "auto",
        "negatives": "distinct",
        "crop": "random",
        "crop_scale": (0.9, 1.0),
        "jpeg_decode": "scaled",
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
        "crop": "center",
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
        "negatives": "distinct",
    },
}

# Hyper-parameters of methods that a preset sets, as --set has them, each with its source. --set
# wins, also by a parameter that asks for what the preset turns off (ASKS_FOR).
HYPER: dict[str, dict[str, str]] = {
    # 1,024 is longer than a small task: docs/results/leaderboard.md and quickstart.md.
    "tiny": {"ctp.queue=0": "chosen on the validation split of Emoji-9"},
}

ASKS_FOR = {"ctp.queue": "ctp.keep_queue"}

# Without --preset: most models are dual encoders, and CTP's fusion model is asked for by name.
INSTEAD = {"ctp": "ctp-dual"}

OURS: dict[str, frozenset[str]] = {
    "ctp": frozenset(),
    "ctp-dual": frozenset({"model"}),
    # IncCLIP says nothing about augmentation. CLIP, which it follows, crops at random and no more;
    # the scale is that of open_clip.
    "incclip": frozenset({"warmup", "temperature", "text_length", "crop", "crop_scale"}),
    "modx": frozenset(),
    "modx-finetune": frozenset(),
    "update": frozenset({"epochs", "precision", "jpeg_decode", "negatives"}),
    # DHA's images are resized to 224 x 224, by an unknown crop; "the last main model on the
    # validation set" is kept, by an unknown measure.
    "dha": frozenset({"decay", "keep", "patience", "temperature", "crop"}),
    "tiny": frozenset(PRESETS["tiny"]),
}


# The values with a source other than the preset's paper. FoMo-in-Flux (Roth et al., 2024) continues
# the training of CLIP models with open_clip, for a fixed number of steps. A week has no fixed size,
# so the epochs are ours: the 5 of PAINT (Ilharco et al., 2022), at the same learning rate.
_FOMO, _OPEN_CLIP = "FoMo-in-Flux", "open_clip's default"
_CTP, _MODX = "CTP authors' code", "Mod-X authors' code"
SOURCES: dict[str, dict[str, str]] = {
    "ctp": dict.fromkeys(("decay", "warmup", "crop_scale", "flip", "randaugment"), _CTP),
    "ctp-dual": dict.fromkeys(("decay", "warmup", "crop_scale", "flip", "randaugment"), _CTP),
    "modx": {"crop": _MODX},
    "modx-finetune": {"crop": _MODX},
    "update": {
        **dict.fromkeys(("optimizer", "weight_decay", "lr", "min_lr", "schedule"), _FOMO),
        **dict.fromkeys(("warmup", "batch_size", "clip_norm", "crop"), _FOMO),
        **dict.fromkeys(("decay", "betas", "eps", "crop_scale"), _OPEN_CLIP),
    },
}
_WITHOUT_PAPER = frozenset({"update"})


def source_of(name: str, setting: str) -> str:
    """What to add to the origin of a setting of a preset: its source, if that is not the paper.

    >>> source_of("incclip", "lr"), source_of("incclip", "warmup"), source_of("update", "lr")
    ('', ', not in the paper', ', FoMo-in-Flux')
    >>> source_of("ctp", "flip"), source_of("update", "epochs")
    (", CTP authors' code", ', ours')
    """
    source = SOURCES.get(name, {}).get(setting)
    if source is not None:
        return f", {source}"
    if name in _WITHOUT_PAPER:
        return ", ours"
    return ", not in the paper" if setting in OURS[name] else ""


def hyper_of_preset(name: str, methods: Iterable[str]) -> dict[str, str]:
    """What a preset sets of these methods, as --set has it, with the source of each value.

    >>> list(hyper_of_preset("tiny", ["ctp", "er"])), hyper_of_preset("update", ["ctp"])
    (['ctp.queue=0'], {})
    """
    names = set(methods)
    assignments = HYPER.get(name, {}).items()
    return {one: source for one, source in assignments if one.partition(".")[0] in names}


def presets_that_set(parameter: str) -> str:
    """Which presets set a METHOD.PARAMETER, for a list of parameters; empty for most.

    >>> presets_that_set("ctp.queue"), presets_that_set("ctp.m")
    ('preset tiny has 0, chosen on the validation split of Emoji-9', '')
    """
    return "; ".join(
        f"preset {name} has {assignment.partition('=')[2]}, {source}"
        for name, assignments in HYPER.items()
        for assignment, source in assignments.items()
        if assignment.partition("=")[0] == parameter
    )


def preset(name: str) -> dict[str, Any]:
    """The settings of a preset, by name; raises UsageError for an unknown preset."""
    if name not in PRESETS:
        raise UsageError(unknown_name("preset", name, PRESETS))
    return PRESETS[name]

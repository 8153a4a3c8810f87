"""The identity of a run: every option and fact is semantic, numeric or runtime.

Semantic facts decide what is computed: with another value it is a different run. Numeric facts
decide the last bits: a resume is bit-exact only if they are equal. Runtime facts (workers, logging,
paths) change neither and are left out.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlcpctl.checkpoints.step_config import METHOD_CODE
from vlcpctl.core.transform import PILLOW
from vlcpctl.data.tasks.task import open_task
from vlcpctl.files.digests import file_sha256
from vlcpctl.files.manifest import content_of
from vlcpctl.methods.plugins.source import facts_of
from vlcpctl.training.execution import numeric_options
from vlcpctl.training.lora import parse_lora
from vlcpctl.training.methods import hyper_of
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.settings import PREVIOUS, SOFTMAX

if TYPE_CHECKING:
    import torch

# Of the training step. 2: fused optimizers; states without this fact come from the loops before.
ARITHMETIC = 2


def semantic(request: TrainRequest) -> dict[str, Any]:
    """The facts that decide what the run computes, with contents in place of paths. Torch-free.

    Moved or copied inputs are still the same run.
    """
    settings = dataclasses.asdict(request.settings)
    if settings["resize"] == PILLOW:  # which was the only one, so that older runs lack it
        del settings["resize"]
    if settings["loss"] in (None, SOFTMAX):  # likewise
        del settings["loss"]
    if settings["lora"] is None:  # likewise
        del settings["lora"]
    else:
        settings["lora"] = str(parse_lora(settings["lora"]))
    for name in ("model", "pretrained"):
        if request.origins.get(name) != PREVIOUS:  # that may say anything, such as a path
            value = settings[name]
            if value is not None and Path(value).is_file():
                settings[name] = f"sha256:{file_sha256(value)}"
    code = facts_of(request.methods)
    return {
        "run": request.run,
        "method": request.method_name,
        **({METHOD_CODE: code} if code else {}),  # nothing for built-in methods
        "hyper": hyper_of(request.methods),
        "settings": settings,
        "seed": request.seed,
        "attempt": request.attempt,
        "tasks": [open_task(path).content for path in request.tasks],
        "previous": _content(request.previous, "checkpoint"),
        "teacher": _content(request.teacher, "checkpoint"),
        "buffer": _content(request.buffer, "task"),
        **_of_reference(request),
        "targets": _content(request.targets, "targets"),
        "pseudo_texts": None if request.pseudo_texts is None else _texts(request.pseudo_texts),
        "from_scratch": request.from_scratch,
        "fresh_state": request.fresh_state,
        "limit": request.limit,
    }


def numeric(request: TrainRequest, device: torch.device) -> dict[str, Any]:
    """The facts that decide the last bits of the result, on this machine."""
    from vlcpctl.core.devices import arithmetic_facts

    return {
        **arithmetic_facts(device),
        "threads": request.threads,
        "processes": request.nproc,
        "arithmetic": ARITHMETIC,
        **numeric_options(request),
    }


def _of_reference(request: TrainRequest) -> dict[str, str | None]:
    """The content of --reference; nothing without it, as in runs before there was one."""
    given = request.reference
    return {} if given is None else {"reference": _content(given, "task")}


def _content(path: Path | None, kind: str) -> str | None:
    return None if path is None else content_of(path, kind)


def _texts(path: Path) -> str:
    from vlcpctl.data.precomputed.pseudo_texts import open_pseudo_texts

    return open_pseudo_texts(path).content

"""Weights by name out of a file that somebody else's program wrote."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vlcpctl.core.console import warn
from vlcpctl.core.errors import Incompatible
from vlcpctl.core.tensors import read_tensors

# Where a training program puts the weights among its other state: open_clip's, ALBEF's and CTP's.
_WRAPPERS = ("state_dict", "model")
_PARALLEL = "module."  # what DistributedDataParallel puts before every name
_REASON = re.compile(r"Unsupported (?:global: )?(?:GLOBAL )?[^\s]+(?: \d+)?")


@dataclass(frozen=True)
class WeightFile:
    """What a file holds, and whether code in it was run to get it."""

    tensors: dict[str, Tensor]
    ran_code: bool = False


def read_weights(path: Path, *, trusts_pickle: bool = False) -> WeightFile:
    """The weights of a .safetensors file, or of a pickle of torch, alone or within other state.

    A pickle is read without running code from it; where that cannot be, it is an error, or, with
    `trusts_pickle`, the code is run.
    """
    if path.suffix == ".safetensors":
        return WeightFile(_unwrapped(read_tensors(path), path))
    try:
        found, ran_code = _load(path, weights_only=True), False
    except Incompatible as error:
        if not trusts_pickle:
            raise Incompatible(
                f"{error}; where you would run a program of its author, "
                "'vlcpctl import-checkpoint --trust-pickle' reads it and runs that code"
            ) from error
        warn(f"{path} is unpickled in full, as --trust-pickle says: code that it holds runs now")
        found, ran_code = _load(path, weights_only=False), True
    return WeightFile(_unwrapped(_weights_in(found), path), ran_code)


def _load(path: Path, *, weights_only: bool) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pickle protocols; what fails says so itself
            return torch.load(path, map_location="cpu", weights_only=weights_only)
    except Exception as error:  # a damaged or hostile pickle raises anything
        how = " without running code from it" if weights_only else ""
        raise Incompatible(f"{path} cannot be read as weights{how}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The one line of torch's advice that says what was met."""
    text = str(error).strip()
    found = _REASON.search(text)
    return found[0] if found else (text.splitlines() or [type(error).__name__])[0]


def _weights_in(found: Any) -> Any:
    if isinstance(found, nn.Module):  # only a pickle that was trusted makes one
        return found.state_dict()
    if isinstance(found, dict):
        return next((found[name] for name in _WRAPPERS if isinstance(found.get(name), dict)), found)
    return found


def _unwrapped(weights: Any, path: Path) -> dict[str, Tensor]:
    if (
        not isinstance(weights, dict)
        or not weights
        or not all(isinstance(name, str) for name in weights)
        or not all(isinstance(value, Tensor) for value in weights.values())
    ):
        wrappers = " or ".join(map(repr, _WRAPPERS))
        raise Incompatible(f"{path} holds no weights by name, alone or as {wrappers}")
    if all(name.startswith(_PARALLEL) for name in weights):
        return {name.removeprefix(_PARALLEL): value for name, value in weights.items()}
    return dict(weights)

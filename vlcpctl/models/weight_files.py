"""Reads weights by name from a file that another program wrote."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vlcpctl.core.console import warn
from vlcpctl.core.errors import Incompatible, first_line
from vlcpctl.core.tensors import read_tensors

# The keys under which training programs store the weights: open_clip, and ALBEF or CTP.
_WRAPPERS = ("state_dict", "model")
_PARALLEL = "module."  # the prefix that DistributedDataParallel adds
_REASON = re.compile(r"Unsupported (?:global: )?(?:GLOBAL )?[^\s]+(?: \d+)?")


@dataclass(frozen=True)
class WeightFile:
    """The tensors of a file by name, and whether its code was run to read them."""

    tensors: dict[str, Tensor]
    ran_code: bool = False


def read_weights(path: Path, *, trusts_pickle: bool = False) -> WeightFile:
    """The weights in a .safetensors file or a torch pickle, alone or among other training state.

    A pickle is read without running code from it. If that is impossible, it is unpickled in full
    with `trusts_pickle`, which runs its code. Raises Incompatible if the file cannot be read or
    does not contain weights by name.
    """
    if path.suffix == ".safetensors":
        return WeightFile(_unwrapped(read_tensors(path), path))
    try:
        found, ran_code = _load(path, weights_only=True), False
    except Incompatible as error:
        if path.is_file() and not _is_pickle(path):
            raise Incompatible(
                f"cannot read the weights in {path}: it is neither a .safetensors file nor a "
                "torch pickle; restore it, or give another file"
            ) from error
        if not trusts_pickle:
            raise Incompatible(
                f"{error}; if you trust its author, 'vlcpctl import-checkpoint --trust-pickle' "
                "reads the file and runs its code"
            ) from error
        warn(f"{path} is unpickled in full because of --trust-pickle; the code in it runs now")
        found, ran_code = _load(path, weights_only=False), True
    return WeightFile(_unwrapped(_weights_in(found), path), ran_code)


def _is_pickle(path: Path) -> bool:
    """Whether a file starts as torch writes pickles: bare, or in a zip archive."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError:
        return False
    is_bare = start[:1] == b"\x80" and start[1:2] in (b"\2", b"\3", b"\4", b"\5")
    return is_bare or start == b"PK\3\4"


def _load(path: Path, *, weights_only: bool) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle protocols; a failure raises anyway
            return torch.load(path, map_location="cpu", weights_only=weights_only)
    except Exception as error:  # a damaged or hostile pickle raises anything
        how = " without running code from it" if weights_only else ""
        raise Incompatible(f"cannot read the weights in {path}{how}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The unsupported object, out of torch's many lines of advice, else the first line."""
    found = _REASON.search(str(error))
    return found[0] if found else first_line(error)


def _weights_in(found: Any) -> Any:
    if isinstance(found, nn.Module):  # only possible for a trusted pickle
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
        raise Incompatible(
            f"{path} does not contain weights by name, at its top level or as {wrappers}"
        )
    if all(name.startswith(_PARALLEL) for name in weights):
        return {name.removeprefix(_PARALLEL): value for name, value in weights.items()}
    return dict(weights)

"""Reads weights by name from a file that another program wrote."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vlcpctl.core.console import warn
from vlcpctl.core.errors import Incompatible, first_line, lfs_pointer
from vlcpctl.files.tensors import read_tensors

# The keys under which training programs store the weights: open_clip, and ALBEF or CTP.
_WRAPPERS = ("state_dict", "model")
# Modules of torch between those of the model.
_WRAPPED = re.compile(r"\b(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
# Numbers that OpenAI's files have beside the weights; open_clip drops them, too.
_NUMBERS = frozenset({"context_length", "input_resolution", "vocab_size"})
_REASON = re.compile(r"Unsupported (?:global: )?(?:GLOBAL )?[^\s]+(?: \d+)?|TorchScript archive")
# What makes numpy's numbers and arrays, such as the best score beside the weights; under the name
# of numpy 1, too. It runs no code of the file.
_NUMBER: Any = np.float64(0).__reduce__()[0]
_ARRAY: Any = np.zeros(0).__reduce__()[0]
_CODES = "?SU" + np.typecodes["AllInteger"] + np.typecodes["AllFloat"]
_NUMPY = [
    *(_NUMBER, (_NUMBER, "numpy.core.multiarray.scalar")),
    *(_ARRAY, (_ARRAY, "numpy.core.multiarray._reconstruct")),
    *(np.ndarray, np.dtype, *{type(np.dtype(code)) for code in _CODES}),
]


@dataclass(frozen=True)
class WeightFile:
    """The tensors of a file by name, and whether its code was run to read them."""

    tensors: dict[str, Tensor]
    ran_code: bool = False


def read_weights(path: Path, *, trusts_pickle: bool = False) -> WeightFile:
    """The weights in a .safetensors file or a torch pickle, alone or among other training state.

    A prefix that all names have, as of a wrapper such as DistributedDataParallel, is removed. A
    pickle is read without running code from it. If that is impossible, it is unpickled in full
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
                lfs_pointer(path)
                or f"cannot read the weights in {path}: it is neither a .safetensors file nor a "
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
        with warnings.catch_warnings(), torch.serialization.safe_globals(_NUMPY):
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
    found = {_WRAPPED.sub("", name): weights[name] for name in weights.keys() - _NUMBERS}
    levels = zip(*(name.split(".") for name in found), strict=False)
    start = "".join(f"{one[0]}." for one in takewhile(lambda names: len(set(names)) == 1, levels))
    return {name.removeprefix(start): found[name] for name in sorted(found)}

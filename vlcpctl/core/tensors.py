"""Named tensors on disk: safetensors with nothing in them that differs between equal runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from vlcpctl.core.errors import Incompatible, VlcpError


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors by name; the bytes depend on nothing else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}
    try:
        save_file(plain, path)
    except SafetensorError as error:  # what it makes of a full disk
        raise VlcpError(f"{path} cannot be written: {error}") from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read tensors by name; a broken file is named."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise Incompatible(f"{path} cannot be read: {error}") from error


def require_same_names(
    found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], what: str
) -> None:
    """Refuse tensors of another model: the first missing, unexpected or misshapen one is named."""
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            raise Incompatible(f"{what} lacks the tensor {name!r}")
        if name not in wanted:
            raise Incompatible(f"{what} has a tensor {name!r} that does not belong here")
        if found[name].shape != wanted[name].shape:
            raise Incompatible(
                f"{what}: {name!r} has shape {tuple(found[name].shape)}, "
                f"expected {tuple(wanted[name].shape)}"
            )

"""Named tensors on disk: safetensors with nothing in them that differs between equal runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from vlcpctl.core.errors import MOST_NAMES, Incompatible, VlcpError


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


def require_fit(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], what: str) -> None:
    """Refuse tensors of another model; all that are missing, unexpected or misshapen are named."""
    misshapen = [
        f"{name} {tuple(found[name].shape)} for {tuple(wanted[name].shape)}"
        for name in sorted(wanted.keys() & found.keys())
        if found[name].shape != wanted[name].shape
    ]
    missing, unexpected = wanted.keys() - found.keys(), found.keys() - wanted.keys()
    require_names(sorted(missing), sorted(unexpected), what, misshapen)


def require_names(
    missing: Sequence[str], unexpected: Sequence[str], what: str, misshapen: Sequence[str] = ()
) -> None:
    """Incompatible if there is any name; it lists them, up to a number that can be read."""
    problems = {
        "lacks": missing,
        "has more than belongs here:": unexpected,
        "has other shapes:": misshapen,
    }
    told = [f"{verb} {some_of(names)}" for verb, names in problems.items() if names]
    if told:
        raise Incompatible(f"{what} does not fit: it {'; it '.join(told)}")


def some_of(names: Sequence[str]) -> str:
    """Their number, and as many as can be read."""
    shown = ", ".join(names[:MOST_NAMES])
    rest = len(names) - MOST_NAMES
    return f"{len(names)} ({shown}{f', and {rest} more' if rest > 0 else ''})"

"""Named tensors in safetensors files, written so that equal runs give equal bytes.

Torch is imported where tensors are read or written: what writes arrays needs none.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from vlcpctl.core.errors import MOST_NAMES, Incompatible, VlcpError
from vlcpctl.files.inputs import reading

if TYPE_CHECKING:
    from torch import Tensor


@contextmanager
def writing_tensors(path: Path) -> Iterator[None]:
    """Within the block, safetensors writes a file, which gets the modes of the umask.

    Raises VlcpError if it cannot be written, as on a full disk.
    """
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    try:
        yield
    except SafetensorError as error:
        raise VlcpError(f"cannot write {path}: {error}") from error
    path.chmod(mode)  # safetensors renames a file that only its owner may read


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors by name; the bytes depend on names and values only.

    Raises VlcpError if the file cannot be written.
    """
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    with writing_tensors(path):
        save_file(on_cpu(tensors), path)


def on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors by sorted name, contiguous and on the CPU, as safetensors takes them.

    It refuses names that share memory, so that all but the first are copied.
    """
    found: dict[str, Tensor] = {}
    storages = set()
    for name in sorted(tensors):
        one = tensors[name].detach().cpu().contiguous()
        storage = one.untyped_storage().data_ptr()
        found[name] = one.clone() if storage in storages else one
        storages.add(storage)
    return found


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read tensors by name. Raises Incompatible if the file is missing or broken."""
    from safetensors.torch import load_file

    with reading(path, error=Incompatible):
        return load_file(path)


def first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The first name, in order, of a tensor with NaN or infinity; None if all are finite."""
    import torch

    for name in sorted(tensors):
        tensor = tensors[name]
        # The extremes reveal NaN and infinity without the memory that isfinite would need.
        if tensor.is_floating_point() and tensor.numel():
            extremes = torch.stack(tensor.detach().aminmax())
            if not bool(torch.isfinite(extremes).all()):
                return name
    return None


def require_same_names(
    found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], what: str
) -> None:
    """Raise Incompatible if names or shapes differ, with the first tensor that does.

    `what` names the source of `found` in the message.
    """
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            raise Incompatible(f"{what} lacks the tensor {name!r}")
        if name not in wanted:
            raise Incompatible(f"{what} has the unexpected tensor {name!r}")
        if found[name].shape != wanted[name].shape:
            raise Incompatible(
                f"{what}: {name!r} has shape {tuple(found[name].shape)}, "
                f"expected {tuple(wanted[name].shape)}"
            )


def require_fit(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], what: str) -> None:
    """Raise Incompatible if names or shapes differ, with all tensors that do."""
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
    """Raise Incompatible with these names, if there are any."""
    problems = {
        "lacks": missing,
        "has unexpected tensors:": unexpected,
        "has tensors of other shapes:": misshapen,
    }
    found = [f"{verb} {some_of(names)}" for verb, names in problems.items() if names]
    if found:
        raise Incompatible(f"{what} does not fit: it {'; it '.join(found)}")


def some_of(names: Sequence[str]) -> str:
    """The number of names, with the first of them in brackets.

    >>> some_of(["a", "b"])
    '2 (a, b)'
    """
    shown = ", ".join(names[:MOST_NAMES])
    rest = len(names) - MOST_NAMES
    return f"{len(names)} ({shown}{f', and {rest} more' if rest > 0 else ''})"

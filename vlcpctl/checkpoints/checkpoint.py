"""Finished checkpoints: open one as the parent, write the next, carry the methods' slots over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.batch import Weights
from vlcpctl.core.errors import Diverged
from vlcpctl.files.digests import digests_of, file_sha256
from vlcpctl.files.manifest import is_artifact
from vlcpctl.files.outputs import link_or_copy, new_directory
from vlcpctl.files.tensors import first_not_finite, write_tensors
from vlcpctl.models import encoders
from vlcpctl.models.checkpoint_files import SLOTS, verify_slots
from vlcpctl.models.encoders import Encoder


@dataclass(frozen=True)
class ParentCheckpoint:
    """A finished checkpoint that a run starts from or distils from."""

    path: Path
    manifest: CheckpointManifest

    def encoder(self) -> Encoder:
        """The model, loaded from disk with each call. Raises as `encoders.load` does."""
        return encoders.load(self.path)

    def slot_files(self) -> dict[str, Path]:
        """The files of the methods' slots, keyed `METHOD/SLOT`.

        Raises Incompatible if one was changed, removed or added since the checkpoint was written.
        """
        verify_slots(self.path)
        root = self.path / SLOTS
        return {
            str(path.relative_to(root).with_suffix("")): path
            for path in sorted(root.rglob("*.safetensors"))
        }


def open_parent(path: Path) -> ParentCheckpoint:
    """Open a checkpoint directory. Raises BadInput if it is not one, and as `slot_files` does.

    Its weights are verified when the model is loaded.
    """
    found = ParentCheckpoint(path, CheckpointManifest.read(path))
    found.slot_files()  # verified now: they are read, or carried over, after hours of training
    return found


def all_tensors(encoder: Encoder) -> Weights:
    """Copies of a model's parameters and buffers, by name."""
    tensors = {**encoder.weights(), **encoder.buffers()}
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def write_checkpoint(
    out: Path,
    encoder: Encoder,
    manifest: CheckpointManifest,
    *,
    slots: Mapping[str, Mapping[str, Weights]] | None = None,
    parent: ParentCheckpoint | None = None,
    finish: Callable[[Path], None] | None = None,
) -> None:
    """Write a finished checkpoint; it appears with one rename, complete or not at all.

    `slots` are the methods' slots, by method and name; methods without an entry keep those of the
    parent. `finish` is called with the directory before the manifest is written: files that it adds
    are not in the content id. Raises what `new_directory` raises, and Diverged if a weight or slot
    is not finite; nothing is written then.
    """
    _refuse_non_finite(encoder, slots or {})
    with new_directory(out, is_artifact) as directory:
        encoders.save(encoder, directory)
        _write_slots(directory / SLOTS, slots or {}, parent)
        files = _hashes(directory)
        if finish is not None:
            finish(directory)
        manifest.write(directory, files, digests_of(directory))


def _refuse_non_finite(encoder: Encoder, slots: Mapping[str, Mapping[str, Weights]]) -> None:
    tensors = {
        f"{method}/{slot}: {name}": tensor
        for method, named in slots.items()
        for slot, values in named.items()
        for name, tensor in values.items()
    }
    # The state dict, as it is written: it lacks the attention mask, which is infinite on purpose.
    wrong = first_not_finite({**encoder.module.state_dict(), **tensors})
    if wrong is not None:
        raise Diverged(f"the weights diverged: {wrong} contains NaN or infinity")


def _write_slots(
    directory: Path, slots: Mapping[str, Mapping[str, Weights]], parent: ParentCheckpoint | None
) -> None:
    for method, weights in slots.items():
        for name, values in weights.items():
            write_tensors(directory / method / f"{name}.safetensors", values)
    # A method that pauses for a task finds its slots again in a later one.
    for name, path in (parent.slot_files() if parent else {}).items():
        if name.split("/")[0] not in slots:
            target = directory / f"{name}.safetensors"
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(path.resolve(), target)


def _hashes(directory: Path) -> dict[str, str]:
    """The sha256 of every file below a directory, by relative path."""
    return {
        str(path.relative_to(directory)): file_sha256(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }

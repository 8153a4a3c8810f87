"""The manifest of an exported directory, in `.vlcpctl/`, where other programs do not look."""

from __future__ import annotations

from dataclasses import dataclass, field

from vlcpctl.files.digests import FileDigest
from vlcpctl.files.manifest import MANIFESTS, Manifest

KIND = "export"
MANIFEST = MANIFESTS[KIND]
CARD = "README.md"  # of some forms; no change of it is damage, since people fill it in
CARD_DIGEST = "card"  # the field with its digest, by which `forget` sees that it was filled in


@dataclass(frozen=True, kw_only=True)
class ExportedSplit:
    """How much of a split was exported."""

    images: int
    """Number of images."""
    captions: int
    """Number of captions."""


@dataclass(frozen=True, kw_only=True)
class ExportManifest(Manifest):
    """A data set or a model for other programs, made by `export`."""

    to: str
    """Its form: `clip-benchmark`, `hf`, `hf-model` or `onnx`."""
    inputs: tuple[str, ...]
    """Content ids of the tasks, or of the checkpoint."""
    splits: dict[str, ExportedSplit] = field(default_factory=dict)
    """What was exported of each split. Only of a data set."""
    run: str | None = None
    """Name of the run. Only of a model."""
    method: str | None = None
    """Name of the method. Only of a model."""
    step: int | None = None
    """Step of the last task in the run. Only of a model."""
    seed: int | None = None
    """Seed of the run. Only of a model."""
    tasks: tuple[str, ...] = ()
    """Content ids of the tasks that it was trained on. Only of a model."""
    card: FileDigest | None = None
    """Size and digest of `README.md` as it was written. Only of a data set."""
    digests: dict[str, FileDigest]
    """Size and digest of every file but `README.md`, which people fill in."""

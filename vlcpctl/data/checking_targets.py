"""Check precomputed teacher embeddings for damage: their files against the manifest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vlcpctl.core.errors import BadInput
from vlcpctl.data.targets import CAPTION, IMAGES, TEXTS, VIEW, Targets, open_targets
from vlcpctl.data.vector_files import VectorFile


def check_targets(path: Path, *, deep: bool) -> Iterator[str]:
    """Yield a line for each problem of the directory; `deep` reads every embedding.

    Raises BadInput if the manifest cannot be read.
    """
    targets = open_targets(path)
    for name, number in ((IMAGES, VIEW), (TEXTS, CAPTION)):
        try:
            yield from _check_file(targets, VectorFile(path / name, number), name, deep=deep)
        except BadInput as error:
            yield str(error)


def _check_file(targets: Targets, file: VectorFile, name: str, *, deep: bool) -> Iterator[str]:
    listed = targets.manifest["files"][name]
    if len(file) != listed["rows"]:
        yield f"{file.path}: has {len(file)} rows; targets.json says {listed['rows']}"
    if file.width != targets.width:
        yield f"{file.path}: has {file.width} channels; targets.json says {targets.width}"
    if not deep:
        return
    if file.content() != listed["content"]:
        yield f"{file.path}: its rows were changed after it was written (its content id differs)"
    if not all(np.isfinite(file.group(number).vectors_ND).all() for number in file.groups):
        yield f"{file.path}: contains non-finite embeddings"

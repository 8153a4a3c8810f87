"""Check a file of pseudo texts for damage: its rows against its metadata."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vlcpctl.data.pseudo_texts import open_pseudo_texts


def check_pseudo_texts(path: Path, *, deep: bool) -> Iterator[str]:
    """Yield a line for each problem of the file; `deep` reads its rows.

    Raises BadInput if the file is not one of pseudo texts or cannot be read.
    """
    file = open_pseudo_texts(path)
    if file.count != file.identity["count"]:
        yield f"{path}: has {file.count} texts; its metadata says {file.identity['count']}"
    if not deep:
        return
    if file.computed_content() != file.content:
        yield f"{path}: its rows were changed after it was written (its content id differs)"
    length, _ = file.shape
    if not ((file.ends >= 0) & (file.ends < length)).all():
        yield f"{path}: a text ends outside its {length} tokens"
    if not np.isfinite(file.embeddings).all():
        yield f"{path}: contains non-finite embeddings"

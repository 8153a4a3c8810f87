"""Look for damage in a file of pseudo texts: its rows against what its metadata says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vlcpctl.data.pseudo_texts import open_pseudo_texts


def check_pseudo_texts(path: Path, *, deep: bool) -> Iterator[str]:
    """Every problem of the file, a line each; `deep` reads its rows."""
    file = open_pseudo_texts(path)
    if file.count != file.identity["count"]:
        yield f"{path}: has {file.count} texts; its metadata says {file.identity['count']}"
    if not deep:
        return
    if file.computed_content() != file.content:
        yield f"{path}: its rows are not those that were written (its content id differs)"
    length, _ = file.shape
    if not ((file.ends >= 0) & (file.ends < length)).all():
        yield f"{path}: a text ends outside of its {length} tokens"
    if not np.isfinite(file.embeddings).all():
        yield f"{path}: some embeddings are no finite numbers"

"""The choice of a backend for exact search."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass

from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.evaluation.search.index import OpenIndex

BACKENDS = ("auto", "faiss", "torch")


@dataclass(frozen=True)
class Backend:
    """What searches: FAISS, if `open_index` is given, and torch on a device: auto, cpu or cuda."""

    device: str
    open_index: OpenIndex | None = None


def choose(backend: str, device: str) -> Backend:
    """The backend of this name; `device` is auto, cpu or cuda.

    All backends are exact, so that ranks do not depend on the choice (see `ranks`). Raises
    UsageError for an unknown backend, or if FAISS is not installed.
    """
    if backend not in BACKENDS:
        raise UsageError(unknown_name("backend", backend, BACKENDS))
    if backend == "faiss" and not _has_faiss():
        raise UsageError(
            "--backend faiss: FAISS is not installed here; pip install faiss-cpu (or faiss-gpu), "
            "or use --backend torch, which gives the same ranks"
        )
    # On macOS the OpenMP libraries of torch and FAISS conflict and abort the process.
    takes_faiss = backend == "faiss" or (_has_faiss() and sys.platform != "darwin")
    if backend == "torch" or not takes_faiss:
        return Backend(device)
    from vlcpctl.evaluation.search.faiss_index import open_faiss

    return Backend(device, lambda gallery: open_faiss(gallery, device))


def _has_faiss() -> bool:
    # Uninstalling one of two FAISS wheels leaves a folder without an __init__, which has no origin.
    spec = importlib.util.find_spec("faiss")
    return spec is not None and spec.origin is not None

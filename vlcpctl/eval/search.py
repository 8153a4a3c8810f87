"""Exact inner-product search: what a backend offers, and which one serves here."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vlcpctl.core.errors import UsageError, unknown_name

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]

BACKENDS = ("auto", "faiss", "torch")


class Index(Protocol):
    """A gallery that can be searched."""

    def search(self, queries_QD: Vectors, k: int) -> tuple[Vectors, Ids]:
        """The k largest inner products of each query, largest first, and the rows they belong to.

        A place that nothing was found for has row -1.
        """
        ...


OpenIndex = Callable[[Vectors], Index]


def choose(backend: str, device: str) -> OpenIndex:
    """How to open a gallery; `device` is auto, cpu or cuda.

    All backends are exact, so that ranks do not depend on the choice (see `ranks`).
    """
    if backend not in BACKENDS:
        raise UsageError(unknown_name("backend", backend, BACKENDS))
    if backend == "faiss" and not _has_faiss():
        raise UsageError(
            "--backend faiss: FAISS is not installed here; install vlcpctl[cpu] or vlcpctl[gpu], "
            "or take --backend torch, which gives the same ranks"
        )
    # On macOS the OpenMP libraries of torch and FAISS abort each other.
    takes_faiss = backend == "faiss" or (_has_faiss() and sys.platform != "darwin")
    if backend != "torch" and takes_faiss:
        from vlcpctl.eval.faiss_search import open_faiss

        return lambda gallery: open_faiss(gallery, device)
    from vlcpctl.eval.torch_search import TorchIndex

    return lambda gallery: TorchIndex(gallery, device)


def _has_faiss() -> bool:
    # What uninstalling one FAISS wheel leaves of the other is a folder without an __init__.
    spec = importlib.util.find_spec("faiss")
    return spec is not None and spec.origin is not None

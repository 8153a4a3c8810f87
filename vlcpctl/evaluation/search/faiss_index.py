"""Exact search with FAISS: on all GPUs that it finds, else in tiles on the CPU."""

from __future__ import annotations

from typing import final

import faiss
import numpy as np

from vlcpctl.evaluation.search.index import Ids, Index, Vectors

_GPU_MAX_K = 2048  # a limit of FAISS


def open_faiss(gallery_GD: Vectors, device: str) -> Index:
    """Open a gallery (G, D) on all GPUs that FAISS finds, or on the CPU if that is the device."""
    gallery_GD = np.ascontiguousarray(gallery_GD, dtype=np.float32)
    # Checked first: without a GPU, FAISS returns an empty index or aborts the process.
    if device != "cpu" and faiss.get_num_gpus() > 0:
        return FaissGpuIndex(gallery_GD)
    return FaissCpuIndex(gallery_GD)


@final
class FaissCpuIndex:
    """Brute-force search: `knn` reads the gallery in place, tile by tile, without an index."""

    def __init__(self, gallery_GD: Vectors) -> None:
        self.gallery_GD = gallery_GD

    def search(self, queries_QD: Vectors, k: int) -> tuple[Vectors, Ids]:
        """See `Index`."""
        queries_QD = np.ascontiguousarray(queries_QD, dtype=np.float32)
        scores, ids = faiss.knn(queries_QD, self.gallery_GD, k, faiss.METRIC_INNER_PRODUCT)
        return scores, ids


@final
class FaissGpuIndex:
    """A copy of the gallery on each GPU; the queries are divided among them."""

    def __init__(self, gallery_GD: Vectors) -> None:
        index = faiss.IndexFlatIP(gallery_GD.shape[1])
        index.add(gallery_GD)
        self.index = faiss.index_cpu_to_all_gpus(index)
        self.on_cpu = FaissCpuIndex(gallery_GD)

    def search(self, queries_QD: Vectors, k: int) -> tuple[Vectors, Ids]:
        """See `Index`."""
        if k > _GPU_MAX_K:
            return self.on_cpu.search(queries_QD, k)
        scores, ids = self.index.search(np.ascontiguousarray(queries_QD, dtype=np.float32), k)
        return scores, ids

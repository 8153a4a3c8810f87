"""Search with FAISS: on its GPUs where it sees any, else tiled on the CPU."""

from __future__ import annotations

from typing import final

import faiss
import numpy as np

from vlcpctl.eval.search import Ids, Index, Vectors

_GPU_MAX_K = 2048


def open_faiss(gallery_GD: Vectors, device: str) -> Index:
    """The gallery on every GPU that FAISS sees, unless the device is cpu or there is none."""
    gallery_GD = np.ascontiguousarray(gallery_GD, dtype=np.float32)
    # Asked first: without a GPU, FAISS answers with an empty index, or aborts the process.
    if device != "cpu" and faiss.get_num_gpus() > 0:
        return FaissGpuIndex(gallery_GD)
    return FaissCpuIndex(gallery_GD)


@final
class FaissCpuIndex:
    """No index is built: `knn` reads the gallery where it lies, tile by tile."""

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

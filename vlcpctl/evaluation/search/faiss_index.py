"""Exact search with FAISS: by brute force in tiles, on all GPUs that it finds, else on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, final

import faiss
import numpy as np
import torch
from torch import Tensor

from vlcpctl.core.console import warn
from vlcpctl.evaluation.search.index import AnyVectors, Gathered, Ids, Index, Vectors

_GPU_MAX_K = 2048  # a limit of FAISS
_SHARE = 0.5  # of a GPU's free memory that a gallery may take; the rest is for the search
_SCRATCH_BYTES = 256 << 20  # that FAISS keeps on each GPU; its default is 1.5 GB


def open_faiss(gallery_GD: AnyVectors, device: str) -> Index:
    """Open a gallery (G, D) on all GPUs that FAISS finds, or on the CPU if that is the device.

    With `cuda:N` it is only that GPU. Without support of GPUs in FAISS, the CPU searches, which a
    warning says if torch finds a GPU.
    """
    # Checked first: without a GPU, FAISS returns an empty index or aborts the process.
    if device != "cpu":
        gpus = _gpus(device)
        if gpus:
            return FaissGpuIndex(gallery_GD, gpus)
    return FaissCpuIndex(gallery_GD)


@final
class FaissCpuIndex:
    """Brute-force search: `knn` reads the gallery in place, tile by tile, without an index."""

    def __init__(self, gallery_GD: AnyVectors) -> None:
        self.gallery = Gathered([(gallery_GD, None)])

    def search(self, queries_QD: Vectors, k: int) -> tuple[Vectors, Ids]:
        """See `Index`."""
        queries_QD = np.ascontiguousarray(queries_QD, dtype=np.float32)
        scores = torch.empty((len(queries_QD), 0))
        ids = torch.empty((len(queries_QD), 0), dtype=torch.int64)
        for start, rows_BD in self.gallery.blocks():
            block = np.ascontiguousarray(rows_BD, dtype=np.float32)
            some = min(k, len(block))
            found = faiss.knn(queries_QD, block, some, faiss.METRIC_INNER_PRODUCT)
            here, rows = (torch.from_numpy(one) for one in found)
            scores, ids = _best([scores, here], [ids, rows + start], k)
        return scores.numpy(), ids.numpy()


@dataclass(frozen=True)
class Gpu:
    """A GPU by its number, and what FAISS needs to search on it."""

    number: int
    resources: Any  # faiss.StandardGpuResources

    @property
    def device(self) -> torch.device:
        """The GPU as torch names it."""
        return torch.device("cuda", self.number)


@final
class FaissGpuIndex:
    """The rows of a gallery divided among GPUs, on which they stay if they fit.

    Rows that do not fit are copied to their GPU for each search, in parts that do.
    """

    def __init__(self, gallery_GD: AnyVectors, gpus: Sequence[Gpu]) -> None:
        self.on_cpu = FaissCpuIndex(gallery_GD)
        # No more GPUs than rows: a shard without a row could not be searched.
        size = -(-len(gallery_GD) // len(gpus))
        self.shards = [
            _Shard(gpu, gallery_GD[start : start + size], start)
            for gpu, start in zip(gpus, range(0, len(gallery_GD), max(1, size)), strict=False)
        ]

    def search(self, queries_QD: Vectors, k: int) -> tuple[Vectors, Ids]:
        """See `Index`."""
        if k > _GPU_MAX_K:
            return self.on_cpu.search(queries_QD, k)
        queries = torch.from_numpy(np.ascontiguousarray(queries_QD, dtype=np.float32))
        # FAISS releases the interpreter's lock while a GPU searches, so that all search at once.
        with ThreadPoolExecutor(len(self.shards)) as pool:
            found = list(pool.map(lambda shard: shard.search(queries, k), self.shards))
        scores, ids = _best([scores for scores, _ in found], [ids for _, ids in found], k)
        return scores.numpy(), ids.numpy()


class _Shard:
    """The rows of a gallery from `start` that one GPU searches."""

    def __init__(self, gpu: Gpu, gallery_SD: Vectors, start: int) -> None:
        self.gpu, self.start = gpu, start
        on_host = torch.from_numpy(np.ascontiguousarray(gallery_SD, dtype=np.float32))
        free = int(_SHARE * _free_bytes(gpu))
        rows = max(1, free // max(1, on_host[:1].nbytes))
        if len(on_host) <= rows:
            on_host = on_host.to(gpu.device)
        self.parts = on_host.split(rows)

    def search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """(Q, k) best scores and gallery rows, on the CPU; row -1 where there are fewer."""
        queries = queries.to(self.gpu.device)
        scores = torch.full((len(queries), 0), 0.0, device=queries.device)
        ids = torch.full((len(queries), 0), 0, dtype=torch.int64, device=queries.device)
        start = self.start
        for part in self.parts:
            here, rows = _knn(self.gpu, queries, part.to(self.gpu.device), min(k, len(part)))
            scores, ids = _best([scores, here], [ids, rows + start], k)
            start += len(part)
        return scores.cpu(), ids.cpu()


def _knn(gpu: Gpu, queries: Tensor, gallery: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best rows of a gallery on a GPU; FAISS reads and writes torch's memory in place."""
    scores = torch.empty((len(queries), k), device=queries.device)
    ids = torch.empty((len(queries), k), dtype=torch.int64, device=queries.device)
    gallery, queries = gallery.contiguous(), queries.contiguous()
    arguments = faiss.GpuDistanceParams()
    arguments.metric = faiss.METRIC_INNER_PRODUCT
    arguments.k, arguments.dims = k, queries.shape[1]
    arguments.device = gpu.number
    arguments.vectors, arguments.numVectors = _address(gallery), len(gallery)
    arguments.queries, arguments.numQueries = _address(queries), len(queries)
    arguments.outDistances = _address(scores)
    arguments.outIndices = faiss.cast_integer_to_void_ptr(ids.data_ptr())
    # FAISS has a stream of its own: what it reads must be there, and what it writes, afterwards.
    torch.cuda.synchronize(queries.device)
    faiss.bfKnn(gpu.resources, arguments)
    torch.cuda.synchronize(queries.device)
    return scores, ids


def _address(values: Tensor) -> Any:
    return faiss.cast_integer_to_float_ptr(values.data_ptr())


def _best(scores: Sequence[Tensor], ids: Sequence[Tensor], k: int) -> tuple[Tensor, Tensor]:
    """The k best of several searches in descending order; row -1 where there are fewer."""
    every, rows = torch.cat(list(scores), dim=1), torch.cat(list(ids), dim=1)
    absent = k - every.shape[1]
    best, order = every.topk(min(k, every.shape[1]), dim=1)
    rows = rows.gather(1, order)
    if absent <= 0:
        return best, rows
    fill = (len(every), absent)
    return (
        torch.cat([best, best.new_full(fill, -torch.inf)], dim=1),
        torch.cat([rows, rows.new_full(fill, -1)], dim=1),
    )


def _gpus(device: str) -> tuple[Gpu, ...]:
    """The GPUs to search on: the one that `device` names, else all that FAISS finds."""
    if not hasattr(faiss, "StandardGpuResources"):
        if torch.cuda.is_available():
            _warn_of_cpu()
        return ()
    count = min(faiss.get_num_gpus(), torch.cuda.device_count())
    number = torch.device(device).index if device.startswith("cuda:") else None
    return tuple(_gpu(one) for one in range(count) if number in {None, one})


@cache
def _gpu(number: int) -> Gpu:
    """A GPU with its resources, which all galleries share: each would reserve memory."""
    resources = faiss.StandardGpuResources()
    resources.setTempMemory(_SCRATCH_BYTES)
    return Gpu(number, resources)


def _free_bytes(gpu: Gpu) -> int:
    free, _ = torch.cuda.mem_get_info(gpu.device)
    return int(free)


@cache
def _warn_of_cpu() -> None:
    warn(
        "FAISS is installed without GPU support, so the CPU searches; 'pip uninstall faiss-cpu' "
        "and 'pip install faiss-gpu', or use --backend torch"
    )

"""Nearest neighbours by FAISS: on a GPU, and by the same code on the CPU, where tests run it."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import numpy as np
import torch

from vlcpctl.evaluation.search.vectors import AnyVectors, Ids, Vectors

MOST = 2048  # neighbours, a limit of FAISS on GPUs
_SHARE = 4  # a gallery is searched in pieces of at most one part in so many of a GPU's free memory
_SCRATCH_BYTES = 256 << 20  # that FAISS keeps on a GPU; its default is 1.5 GB


def device_of(device: str) -> torch.device:
    """Where to compute, given auto, cpu, cuda or cuda:N."""
    has_gpu = device != "cpu" and torch.cuda.is_available()
    return torch.device(("cuda" if device == "auto" else device) if has_gpu else "cpu")


def has_faiss_for(device: torch.device) -> bool:
    """Whether FAISS can search on a device, and it is a GPU."""
    if device.type != "cuda":
        return False
    if importlib.util.find_spec("faiss") is None:
        return False
    import faiss

    return hasattr(faiss, "StandardGpuResources") and (device.index or 0) < faiss.get_num_gpus()


def nearest(
    query_QD: AnyVectors, gallery_GD: AnyVectors, k: int, device: torch.device
) -> tuple[Vectors, Ids]:
    """(Q, k) largest inner products of each query in descending order, and their gallery rows.

    `k` is at most the size of the gallery, and on a GPU `MOST`.
    """
    import faiss

    sides = [np.ascontiguousarray(one[:], dtype=np.float32) for one in (query_QD, gallery_GD)]
    if device.type == "cpu":
        found: tuple[Vectors, Ids] = faiss.knn(*sides, k, faiss.METRIC_INNER_PRODUCT)
        return found
    limit = torch.cuda.mem_get_info(device)[0] // _SHARE
    number = -1 if device == torch.device("cuda") else device.index  # -1: the current one
    on_gpu: tuple[Vectors, Ids] = faiss.knn_gpu(
        *(_resources(number), *sides, k),
        metric=faiss.METRIC_INNER_PRODUCT,
        device=number,
        vectorsMemoryLimit=limit,
        queriesMemoryLimit=limit,
    )
    return on_gpu


@cache
def _resources(_gpu: int) -> Any:
    """What FAISS needs on a GPU, which all searches share: each would reserve memory."""
    import faiss

    resources = faiss.StandardGpuResources()
    resources.setTempMemory(_SCRATCH_BYTES)
    return resources

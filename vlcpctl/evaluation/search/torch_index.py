"""Exact search with torch, in tiles, for machines without FAISS."""

from __future__ import annotations

from typing import final

import numpy as np
import torch

from vlcpctl.evaluation.search.index import Ids, Vectors

_TILE_ROWS = 2048  # queries; with 8192 of the gallery, a tile of scores takes 64 MB
_TILE_COLUMNS = 8192


@final
class TorchIndex:
    """The gallery as a tensor; at most one tile of scores exists at a time."""

    def __init__(self, gallery_GD: Vectors, device: str) -> None:
        has_gpu = device != "cpu" and torch.cuda.is_available()
        self.gallery_GD = torch.from_numpy(gallery_GD).to("cuda" if has_gpu else "cpu")

    @torch.inference_mode()
    def search(self, queries_QD: Vectors, k: int) -> tuple[Vectors, Ids]:
        """See `Index`."""
        scores = np.empty((len(queries_QD), k), dtype=np.float32)
        ids = np.empty((len(queries_QD), k), dtype=np.int64)
        for start in range(0, len(queries_QD), _TILE_ROWS):
            rows = slice(start, start + _TILE_ROWS)
            queries = torch.from_numpy(queries_QD[rows]).to(self.gallery_GD.device)
            found, places = self._search_tile(queries, k)
            scores[rows], ids[rows] = found.cpu().numpy(), places.cpu().numpy()
        return scores, ids

    def _search_tile(self, queries: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The k best of each query, merged part by part of the gallery into the best so far."""
        scores = torch.full((len(queries), k), -torch.inf, device=queries.device)
        ids = torch.full((len(queries), k), -1, dtype=torch.int64, device=queries.device)
        for start in range(0, len(self.gallery_GD), _TILE_COLUMNS):
            part = queries @ self.gallery_GD[start : start + _TILE_COLUMNS].T
            found, places = part.topk(min(k, part.shape[1]))
            scores, order = torch.cat([scores, found], dim=1).topk(k)
            ids = torch.cat([ids, places + start], dim=1).gather(1, order)
        return scores, ids

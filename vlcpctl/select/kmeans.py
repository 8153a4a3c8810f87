"""The samples nearest to the centroids of k-means, largest clusters first."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from vlcpctl.core.errors import VlcpError

_AUTHORS_SEED, _AUTHORS_ROUNDS = 1234, 500  # FAISS's default seed, and the iterations in their code
ROUNDS = 50  # Lloyd's iterations; centroids of normalised features rarely move after twenty


def nearest_to_centroids(features: np.ndarray, count: int, seed: int) -> np.ndarray:
    """(count,) distinct rows of the (N, D) features, those of the largest clusters first.

    Dropping rows from the end loses the smallest clusters first. Raises VlcpError without FAISS.
    """
    features = np.ascontiguousarray(features, dtype=np.float32)
    count = min(count, len(features))
    if count == 0:
        return np.empty(0, dtype=np.int64)
    centroids, members = _clusters(features, count, seed)
    return pick_nearest(features, centroids, members)


def pick_nearest(features: np.ndarray, centroids: np.ndarray, members: np.ndarray) -> np.ndarray:
    """(K,) for each of K centroids, most members first, the nearest row not picked before.

    `features` are (N, D), `centroids` (K, D) and `members` (K,).

    >>> rows = np.array([[0.0], [1.0], [5.0]])
    >>> pick_nearest(rows, np.array([[5.0], [0.2], [0.2]]), np.array([1, 2, 0]))
    array([0, 2, 1])
    """
    norms = (features**2).sum(axis=1)
    is_taken = np.zeros(len(features), dtype=bool)
    picked = []
    for place in np.argsort(-members, kind="stable"):
        distances = norms - 2 * (features @ centroids[place])
        row = int(np.argmin(np.where(is_taken, np.inf, distances)))
        picked.append(row)
        is_taken[row] = True
    return np.array(picked, dtype=np.int64)


def in_order_of_centroids(features: np.ndarray, count: int) -> np.ndarray:
    """(count,) distinct rows as the CTP authors pick and store them: in the order of the centroids.

    Raises VlcpError without FAISS.
    """
    features = np.ascontiguousarray(features, dtype=np.float32)
    count = min(count, len(features))
    if count == 0:
        return np.empty(0, dtype=np.int64)
    centroids, _ = _clusters(features, count, _AUTHORS_SEED, _AUTHORS_ROUNDS)
    return pick_nearest(features, centroids, np.zeros(count))


def _clusters(
    features: np.ndarray, count: int, seed: int, rounds: int = ROUNDS
) -> tuple[np.ndarray, np.ndarray]:
    """(count, D) centroids from FAISS, and the (count,) numbers of rows nearest to each."""
    faiss = _faiss()
    kmeans = faiss.Kmeans(
        features.shape[1],
        count,
        niter=rounds,
        seed=seed,
        # FAISS would subsample large clusters and warn about small ones.
        min_points_per_centroid=1,
        max_points_per_centroid=len(features),
    )
    kmeans.train(features)
    _, nearest = kmeans.index.search(features, 1)
    return kmeans.centroids, np.bincount(nearest[:, 0], minlength=count)


def _faiss() -> ModuleType:
    try:
        import faiss
    except ImportError as error:
        raise VlcpError(
            "k-means needs FAISS, which is not installed; "
            "pip install faiss-cpu (or faiss-gpu), or choose --policy herding"
        ) from error
    module: ModuleType = faiss
    return module

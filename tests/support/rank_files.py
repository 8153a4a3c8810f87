"""Files of ranks as evaluations write them, from small tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from vlcpctl.evaluation.rank_files import Named, plan_ranks
from vlcpctl.evaluation.rows import Row

Ranks = Mapping[str, Sequence[int]]  # by the key of a sample: the rank of each caption, or of one


def write_ranks(
    path: Path,
    ways: Mapping[str, Ranks],
    labels: Mapping[str, str] | None = None,
    times: int = 1,
    **fields: object,
) -> Path:
    """A file with the ranks of each direction, of the checkpoint c0 on the data d; its path."""
    usual = {"run": "ctp", "seed": 0, "step": 0, "checkpoint": "c0", "data": "d", "gallery": "own"}
    usual |= {"task": "coco", "split": "test", "evaluator": "retrieval"}
    usual |= {"protocol": "cross-modal", "limit": None, "options": {"duplicates": "unite"}}
    row = Row((0,), {**usual, **fields}, ())
    file = plan_ranks(path, [row], None, force=True)
    assert file is not None
    with file.opened():
        for _ in range(times):
            for way, ranks in ways.items():
                keys = [key for key, found in ranks.items() for _ in found]
                captions = [place for found in ranks.values() for place in range(len(found))]
                texts = None if way[0] == "i" else pa.array(captions, pa.int32())
                queries = Named(pa.array(keys, pa.string()), texts)
                found = np.array([one for found in ranks.values() for one in found], dtype=np.int64)
                nothing = np.full(len(found), -1, dtype=np.int64)
                classes = pa.array([labels[key] for key in keys]) if labels else None
                exact = found, nothing, nothing
                file.add(row, way, (queries, queries), exact, classes)
    return path

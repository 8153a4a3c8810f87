"""Writes embeddings in the layout of clip-retrieval, which autofaiss and FAISS can read too.

`img_emb/img_emb_P.npy`, `text_emb/text_emb_P.npy` and `metadata/metadata_P.parquet`: row i of all
three is one image with one of its captions. P numbers the tasks from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.evaluation.search.gallery import Embeddings


@dataclass(frozen=True)
class Samples:
    """The metadata of a task's samples: a key and a label (or None) each."""

    task: str
    keys: Sequence[str]
    labels: Sequence[str | None]


def write_part(
    directory: Path, number: int, parts: int, embedded: Embeddings, samples: Samples
) -> None:
    """Write one task's files, as part `number` (from 0) of `parts`; embeddings become float16."""
    layout = embedded.layout
    digits = len(str(parts))  # as in clip-retrieval: ten parts have two digits
    image_of = layout.image_of_N[layout.sample_of_C]
    name = f"{number:0{digits}d}"
    _save(directory / "img_emb" / f"img_emb_{name}.npy", embedded.image_ID[image_of])
    _save(directory / "text_emb" / f"text_emb_{name}.npy", embedded.text_TD[layout.text_of_C])
    path = directory / "metadata" / f"metadata_{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(_metadata(embedded, samples), path)


def _metadata(embedded: Embeddings, samples: Samples) -> Any:
    layout = embedded.layout
    rows = layout.sample_of_C.tolist()
    return pa.table(
        {
            "image_path": pa.array([samples.keys[row] for row in rows], pa.string()),
            "caption": pa.array([layout.texts[row] for row in layout.text_of_C], pa.string()),
            "task": pa.array([samples.task] * len(rows), pa.string()),
            "label": pa.array([samples.labels[row] for row in rows], pa.string()),
        }
    )


def _save(path: Path, vectors: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, vectors.astype(np.float16))
